"""Distillation against the reverse KL summed over a vocabulary and against loops over full logits; its refusals."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.loss import LOSS_RULES
from d3s.methods.distill import gap_entropy, uncertain_or_wrong
from d3s.passes import add_logprobs, add_ranks, forward_passes
from d3s.reference import open_reference, require_use
from d3s.selector import Selector
from d3s.tiny import byte_tokenizer
from tests.helpers.actors import make_actor, make_batch, update
from tests.helpers.models import save_random_model
from tests.helpers.reference import load_reference, response_entropies, response_logprobs, vocabulary_logprobs
from tests.helpers.rounding import assert_same_gradients
from tests.helpers.subsets import seeded
from tests.helpers.training import train

DISTILL, TEACHER = "d3s.methods.distill:distill", "loss.reference=teacher"


def loss_of(logprobs, old, advantages, ref, denominator, weight=1.0, high=None):
    rule = LOSS_RULES.rule({"rule": DISTILL, "weight": weight})
    return rule(
        logprobs=logprobs, old_logprobs=old, advantages=advantages, ref_logprobs=ref, epsilon=0.2, epsilon_high=high,
        denominator=denominator,
    )  # fmt: skip


@given(st.integers(0, 2**31), st.integers(2, 7))
def test_expected_gradient_is_that_of_the_reverse_kl(seed, vocabulary):
    logits, teacher = torch.randn(2, vocabulary, generator=seeded(seed), dtype=torch.float64)
    logits.requires_grad_()
    own, ref = logits.log_softmax(0), teacher.log_softmax(0)
    (expected,) = torch.autograd.grad((own.exp() * (own - ref)).sum(), logits, retain_graph=True)
    got = torch.zeros_like(expected)
    for token, probability in enumerate(own.exp().tolist()):
        loss, _ = loss_of(own[token, None], own[token, None].detach(), torch.ones(1), ref[token, None], 1.0)
        got += probability * torch.autograd.grad(loss, logits, retain_graph=True)[0]
    torch.testing.assert_close(got, expected)


@given(st.lists(st.tuples(*[st.floats(-4, 0)] * 3, st.floats(-2, 2)), max_size=6), st.floats(0.01, 1), st.booleans())
def test_loss_matches_a_loop(tokens, weight, higher):
    """Mixed with the advantages of the rewards, off policy."""
    logprobs, old, ref, advantages = torch.tensor(tokens, dtype=torch.float64).view(-1, 4).unbind(1)
    loss, stats = loss_of(logprobs, old, advantages, ref, 3.0, weight, 0.28 if higher else None)
    expected = 0.0
    for new, before, teacher, advantage in tokens:
        mixed = (1 - weight) * advantage + weight * (teacher - before)
        ratio = math.exp(new - before)
        expected -= min(ratio * mixed, min(max(ratio, 0.8), 1.28 if higher else 1.2) * mixed) / 3
    assert float(loss) == pytest.approx(expected, abs=1e-9)
    assert float(stats["teacher_gap"]) == pytest.approx(sum(t[1] - t[2] for t in tokens), abs=1e-9)


@given(st.lists(st.tuples(st.floats(-4, 0), st.floats(-4, 0), st.floats(0, 5), st.floats(-2, 2)), min_size=1))
def test_priorities_match_a_loop(tokens):
    logprobs, ref, entropies, advantages = torch.tensor(tokens, dtype=torch.float64).view(-1, 4).unbind(1)
    got = gap_entropy(advantages, logprobs, ref, entropies, 0.25)
    assert got.tolist() == pytest.approx([abs(0.75 * a + 0.25 * (r - p)) * h for p, r, h, a in tokens])
    largest = sorted(h for _, _, h, _ in tokens)[int(0.98 * (len(tokens) - 1))]
    uncertain, wrong = [min(h, largest) for *_, h, _ in tokens], [abs(r - p) for p, r, *_ in tokens]

    def unit(values):
        spread = max(values) - min(values)
        return [(v - min(values)) / spread if spread else 0.0 for v in values]

    expected = [1 - (1 - h) * (1 - d) for h, d in zip(unit(uncertain), unit(wrong))]
    assert uncertain_or_wrong(logprobs, ref, entropies).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [0.3, 1.0])
@pytest.mark.parametrize(
    "rule", ["entropy", "d3s.methods.distill:gap_entropy", "d3s.methods.distill:uncertain_or_wrong"]
)
@pytest.mark.parametrize("more", [[], ["lora.rank=4"]], ids=["all weights", "lora"])
def test_update_matches_full_logits(more, rule, k, tied_model, tmp_path_factory):
    """Of a larger teacher, whose head runs on the chosen tokens alone if the student chooses them; K = 1 trains all."""
    teacher = tmp_path_factory.getbasetemp() / "larger"
    if not teacher.exists():
        save_random_model(teacher, seed=3, hidden_size=96, num_hidden_layers=3, tie_word_embeddings=False)
    actor = make_actor(tied_model, f"loss.kind={DISTILL}", f"loss.reference={teacher}", f"selector.tokens={rule}",
                       "loss.old_logprobs=actor", "optim.num_minibatches=1", *more, teacher=str(teacher))  # fmt: skip
    batch, student = make_batch(), load_reference(tied_model)
    tables = vocabulary_logprobs(student, batch, 1.0)
    own = torch.cat(response_logprobs(tables, batch))
    with torch.no_grad():
        ref = torch.cat(response_logprobs(vocabulary_logprobs(load_reference(teacher), batch, 1.0), batch))
    batch.rollout_logprobs, batch.entropies = own.detach(), response_entropies(tables).detach()
    rows = []
    actor.reference.lm.get_output_embeddings().register_forward_hook(lambda _, args, __: rows.append(len(args[0])))
    passes = forward_passes(actor.config, k)
    add_ranks(actor, batch, passes)
    Selector(actor.config.selector, actor.config.reward).tokens(batch, k, seeded(0))
    add_logprobs(actor, batch, passes)
    chosen = batch.selected
    assert int(chosen.sum()) == math.ceil(k * len(own))
    assert sum(rows) == (len(own) if rule != "entropy" else chosen.sum())
    torch.testing.assert_close(batch.ref_logprobs[chosen], ref[chosen], rtol=1e-4, atol=1e-4)
    (-(ref - own.detach()) * own)[chosen].mean().backward()
    metrics, [gradients] = update(actor, batch)
    gap = (own - ref)[chosen].mean().item()
    assert [metrics["loss/teacher_gap"], metrics["loss"]] == pytest.approx([gap, gap], rel=1e-3)
    if not more:
        assert_same_gradients(gradients, {name: p.grad for name, p in student.named_parameters()})
    else:
        assert any(g.abs().max() > 1e-4 for g in gradients.values()) and actor.reference.lm.config.hidden_size == 96


def test_other_models_are_one_sentence(gqa_model, tmp_path):
    """Another tokenizer, fewer rows, a window shorter than the responses; more tokens are welcome."""
    own = byte_tokenizer()
    config = load_config([], [TEACHER, f"loss.kind={DISTILL}", "rollout.max_completion_length=12"])
    own.embedding_rows = 257
    assert open_reference(config, str(gqa_model), own) == 500
    larger = byte_tokenizer()
    larger.add_tokens(["<think>"])
    larger.embedding_rows = 258
    with pytest.raises(
        UserError, match=r"^loss.reference: got teacher, whose tokenizer does not have 1 of the 258 .*<think>"
    ):
        open_reference(config, str(gqa_model), larger)
    save_random_model(tmp_path / "larger", seed=0, vocab_size=258)
    larger.save_pretrained(tmp_path / "larger")
    assert open_reference(config, str(tmp_path / "larger"), own) == 500
    own.embedding_rows = 300
    with pytest.raises(UserError, match=r"^loss.reference: got teacher with vocab_size 257, expected at least 300"):
        open_reference(config, str(gqa_model), own)


@pytest.mark.parametrize(
    "use", [["loss.beta=0.1"], [f"loss.kind={DISTILL}", "selector.tokens=d3s.methods.distill:gap_entropy"]]
)
def test_a_reference_that_nothing_reads_is_refused(use):
    require_use(load_config([], [TEACHER, *use]))
    with pytest.raises(
        UserError, match=re.escape("loss.reference: got teacher, which nothing reads; requires loss.beta")
    ):
        require_use(load_config([], [TEACHER]))
    with pytest.raises(UserError, match=r"^selector.tokens: .*:gap_entropy takes ref_logprobs; requires"):
        require_use(load_config([], ["selector.tokens=d3s.methods.distill:gap_entropy"]))


@pytest.mark.parametrize("overlay", ["distill", "distill_gap", "distill_tip"])
def test_overlays_refuse_a_missing_teacher(overlay, tied_model, tmp_path):
    with pytest.raises(UserError, match=f"^{tmp_path}/absent: no such directory"):
        train(tied_model, tmp_path, [f"configs/method/{overlay}.yaml"], [f"loss.reference={tmp_path}/absent"])


def test_weight_out_of_range_is_refused():
    for weight in (0, 1.5):
        with pytest.raises(UserError, match=re.escape(f"weight must be in (0, 1], not {weight}")):
            loss_of(*torch.zeros(4, 2), 1.0, weight)
