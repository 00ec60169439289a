"""The policy and the actor in one process, against transformers' own model run on one sequence at a time.

The reference computes all logits of every position, takes log-softmax over the vocabulary, and writes each loss as a
sum over tokens in a loop; autograd gives its gradients.
"""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM

import d3s.loss as loss_module
from d3s.actor import Actor, NonFiniteError
from d3s.checkpoint import RunState, load_checkpoint, save_checkpoint
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.downsampling import forward_passes
from d3s.metrics import update_metrics
from d3s.packing import Batch, dummy_micro_batch
from d3s.policy import CHUNK_ELEMENTS, Policy
from d3s.trainer import Trainer
from tests.helpers.models import save_random_model
from tests.helpers.rounding import AFTER_EXP, ROUNDING, assert_same_gradients, assert_same_values, assert_same_way

SIZES = [(3, 7), (12, 1), (1, 5), (6, 16), (2, 2)]  # tokens of prompt and response


def make_batch(sizes=SIZES, seed=0, fraction=0.4) -> Batch:
    """Random tokens; several rollouts have no selected token, one has its last selected token in the middle."""
    g = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 257, (p,), generator=g).tolist() for p, _ in sizes]
    responses = [torch.randint(0, 257, (r,), generator=g).tolist() for _, r in sizes]
    lengths = torch.tensor([r for _, r in sizes])
    advantages = torch.randn(len(sizes), generator=g).repeat_interleave(lengths)
    total = len(advantages)
    batch = Batch(prompts, responses, advantages, -5 - torch.rand(total, generator=g), torch.rand(total, generator=g))
    batch.selected = torch.rand(total, generator=g) < fraction
    batch.selected[batch.tokens_of(1)] = False
    batch.selected[batch.tokens_of(len(sizes) - 2).start + 3 : batch.tokens_of(len(sizes) - 2).stop] = False
    return batch


def make_actor(path, *overrides) -> Actor:
    settings = ["rollout.max_completion_length=20", "optim.max_grad_norm=1e9", *overrides]
    return Actor(str(path), load_config([], settings), Accelerator(), max_length=64)


def update(actor, batch, learning_rate=1e-3):
    """Updates, and returns the metrics and the gradients that each optimizer step saw."""
    seen = []
    optimizer = actor.optimizer.optimizer

    def copy_gradients(*_):
        seen.append({name: p.grad.clone() for name, p in actor.lm.named_parameters()})

    handle = optimizer.register_step_pre_hook(copy_gradients)
    try:
        metrics = update_metrics(actor.update(batch, learning_rate, torch.Generator().manual_seed(0)))
    finally:
        handle.remove()
    return metrics, seen


def parameters(actor):
    return {name: p.detach().clone() for name, p in actor.lm.named_parameters()}


def assert_untouched(a, b):
    """The same numbers to the bit: copies, or one computation done twice."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# --- the reference ---------------------------------------------------------------------------------------------------


def reference_model(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")


def all_logprobs(model, batch, temperature):
    """For each sequence, log-probabilities of all words at the positions before its response tokens, [R, V]."""
    rows = []
    for prompt, response in zip(batch.prompts, batch.responses):
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        rows.append((logits / temperature).log_softmax(-1))
    return rows


def of_tokens(rows, batch):
    return [table.gather(1, torch.tensor(r)[:, None])[:, 0] for table, r in zip(rows, batch.responses)]


def reference_loss(model, batch, config):
    """The loss in loops, as the papers print it, and the sum of the magnitudes of its terms."""
    loss_of, magnitude, settings, temperature = 0.0, 0.0, config.loss, config.rollout.temperature
    high = settings.epsilon if settings.epsilon_high is None else settings.epsilon_high
    upper = high if settings.epsilon_high_is_bound else 1 + high
    sequences = of_tokens(all_logprobs(model, batch, temperature), batch)
    for i, logprobs in enumerate(sequences):
        span = batch.tokens_of(i)
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs[span]
        selected = batch.selected[span]
        whole = (logprobs.detach() - old).mean().exp()
        for t in selected.nonzero()[:, 0].tolist():
            a = batch.advantages[span][t]
            ratio = (logprobs[t] - old[t]).exp()
            if settings.kind == "gspo":
                ratio = whole * (logprobs[t] - logprobs[t].detach()).exp()
            clipped = ratio.clamp(1 - settings.epsilon, upper)
            loss = -clipped.detach() * a * logprobs[t] if settings.kind == "cispo" else -min(ratio * a, clipped * a)
            if settings.beta:
                gap = logprobs[t] - batch.ref_logprobs[span][t]
                kl = {"k1": gap, "k2": gap**2 / 2, "k3": (-gap).exp() + gap - 1}[settings.kl_estimator]
                loss = loss + settings.beta * kl
            divisor = {
                "selected": int(batch.selected.sum()),
                "all": len(batch.selected),
                "sequence": len(sequences) * int(selected.sum()),
                "constant": len(sequences) * config.rollout.max_completion_length,
            }[settings.normalizer]
            loss_of = loss_of + loss / divisor
            magnitude += abs(loss.item()) / divisor
    return loss_of, magnitude


# --- forward ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tied", "gqa"])
def model_path(request, tied_model, gqa_model):
    return {"tied": tied_model, "gqa": gqa_model}[request.param]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("budget", [1, 30, 10_000])
def test_packed_scores_are_those_of_each_sequence_alone(model_path, temperature, budget):
    batch = make_batch()
    overrides = [f"rollout.temperature={temperature}", f"train.max_tokens_per_microbatch={budget}"]
    logprobs, entropies = make_actor(model_path, *overrides).compute_logprobs(batch)
    with torch.no_grad():
        rows = all_logprobs(reference_model(model_path), batch, temperature)
    expected = torch.cat([-(table.exp() * table).sum(-1) for table in rows])
    assert_same_values(logprobs, torch.cat(of_tokens(rows, batch)))
    assert_same_values(entropies, expected, largest=10.0)  # of p log p
    assert expected.std() > 0.03


@pytest.mark.parametrize("chunk", [1, 257 * 3, 2**24])
def test_only_chosen_tokens_have_gradients_and_all_have_values(monkeypatch, gqa_model, chunk):
    from d3s.packing import pack

    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    batch, policy = make_batch(), Policy(str(gqa_model), 64)
    micro = pack(batch, list(range(len(SIZES))), batch.forward_lengths(cut=False))
    chosen = batch.selected[micro.flat]
    picked, every, entropies = policy(micro, chosen, 0.8, with_unchosen=True, entropies=True)
    assert picked.requires_grad and not every.requires_grad and not entropies.requires_grad
    assert torch.equal(picked, every[chosen])
    _, all_of_them, same = policy(micro, torch.ones_like(chosen), 0.8, entropies=True)
    assert_same_values(every, all_of_them)
    assert_same_values(entropies, same, largest=10.0)
    _, some, few = policy(micro, chosen, 0.8)
    assert torch.equal(some[~chosen], torch.zeros(int((~chosen).sum()))) and not few.any()


def test_entropies_survive_large_logits(tied_model):
    """A constant in the logits changes nothing, but exp(100) is too large for float32. Each logit is a sum of 64
    products of up to 100, each of them rounded to 6e-8."""
    policy = Policy(str(tied_model), 64)
    head = policy.lm.get_output_embeddings()
    hidden = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    hidden[:, 0] = 100
    with torch.no_grad():
        head.weight[:, 0] = 1.0
        logprobs, entropies = head(hidden, torch.arange(5), 1.0, True)
        exact = (hidden.double() @ head.weight.double().T).log_softmax(-1)
    torch.testing.assert_close(logprobs.double(), exact.diagonal(), rtol=0, atol=4e-4)
    torch.testing.assert_close(entropies.double(), -(exact.exp() * exact).sum(-1), rtol=0, atol=4e-4)


class Rows:
    """Counts the tokens that a policy's trunk and head are given."""

    def __init__(self, policy: Policy) -> None:
        self.trunk = self.head = 0
        lm = policy.lm
        lm.base_model.register_forward_pre_hook(self._of_trunk, with_kwargs=True)
        lm.get_output_embeddings().register_forward_pre_hook(self._of_head)

    def _of_trunk(self, _, args, kwargs) -> None:
        self.trunk += kwargs["input_ids"].numel()

    def _of_head(self, _, args) -> None:
        self.head += len(args[0])


@pytest.mark.parametrize("reference", [False, True])
def test_only_what_is_wanted_is_scored(gqa_model, reference):
    actor, batch = make_actor(gqa_model, "loss.beta=0.1"), make_batch()
    every = torch.stack(actor.compute_logprobs(batch, reference))
    rows = Rows(actor.reference if reference else actor.policy)
    some = torch.stack(actor.compute_logprobs(batch, reference, wanted=batch.selected))
    assert_same_values(some[:, batch.selected], every[:, batch.selected])
    assert not some[:, ~batch.selected].any()
    assert (rows.trunk, rows.head) == (sum(batch.forward_lengths(cut=True)), int(batch.selected.sum()))
    assert rows.trunk < 0.8 * sum(batch.forward_lengths(cut=False)) and rows.head < 0.5 * len(batch.selected)
    assert not actor.compute_logprobs(batch, reference, wanted=batch.selected, entropies=False)[1].any()


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("kind", ["grpo", "gspo"])
def test_the_trainer_scores_what_is_selected_and_trains_as_if_it_had_scored_all(gqa_model, kind, updates):
    """With importance weights, a KL term and, where there are several updates, pi_old."""
    settings = [f"loss.kind={kind}", f"optim.num_minibatches={updates}", "loss.engine_correction=truncate"]
    settings += ["loss.beta=0.1", "loss.engine_correction_cap=1.5"]
    actor, batch = make_actor(gqa_model, *settings), make_batch()
    batch.old_logprobs, _ = actor.compute_logprobs(batch)
    batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True)
    weights = (batch.old_logprobs - batch.rollout_logprobs).exp().clamp(max=1.5)
    batch.advantages = batch.advantages * weights
    if updates == 1:
        batch.old_logprobs = None
    dense, gradients = update(actor, batch)

    actor, batch = make_actor(gqa_model, *settings), make_batch()
    own, reference = Rows(actor.policy), Rows(actor.reference)
    told = Trainer.add_logprobs(
        SimpleNamespace(config=actor.config, actor=actor), batch, forward_passes(actor.config, 0.2)
    )
    whole = batch.with_a_selected_token() if kind == "gspo" and updates == 2 else batch.selected
    cut = batch.forward_lengths(cut=True, wanted=whole)
    assert (own.trunk, own.head) == (sum(cut), int(whole.sum()))
    assert (reference.trunk, reference.head) == (sum(batch.forward_lengths(cut=True)), int(batch.selected.sum()))
    capped = (weights >= 1.5)[batch.selected].float().mean().item()
    assert told == {"mismatch/tokens_capped": pytest.approx(capped)} and 0 < capped < 1
    lean, same = update(actor, batch)
    assert lean == pytest.approx(dense, rel=1e-3, abs=1e-4)
    for ours, theirs in zip(same, gradients, strict=True):
        assert_same_gradients(ours, theirs)


# --- losses and gradients --------------------------------------------------------------------------------------------

LOSS_CASES = [
    ["loss.kind=grpo", "loss.normalizer=selected"],
    ["loss.kind=grpo", "loss.normalizer=all", "loss.epsilon_high=0.28"],
    ["loss.kind=grpo", "loss.normalizer=sequence"],
    ["loss.kind=grpo", "loss.normalizer=constant", "rollout.temperature=0.7"],
    ["loss.kind=gspo", "loss.normalizer=sequence", "loss.epsilon=0.03", "loss.epsilon_high=0.04"],
    ["loss.kind=gspo", "loss.normalizer=selected", "loss.epsilon=0.9", "rollout.temperature=0.7"],
    ["loss.kind=cispo", "loss.epsilon=1", "loss.epsilon_high=1.1", "loss.epsilon_high_is_bound=true"],
    ["loss.kind=grpo", "loss.beta=0.1", "loss.kl_estimator=k1"],
    ["loss.kind=gspo", "loss.beta=0.1", "loss.kl_estimator=k2"],
    ["loss.kind=cispo", "loss.beta=0.1", "loss.kl_estimator=k3"],
]


@pytest.mark.parametrize("off_policy", [False, True])
@pytest.mark.parametrize("overrides", LOSS_CASES, ids=lambda o: "-".join(x.partition("=")[2] for x in o))
def test_selected_rows_have_the_loss_and_gradients_of_full_logits(model_path, overrides, off_policy):
    actor, batch, model = make_actor(model_path, *overrides), make_batch(), reference_model(model_path)
    noise = torch.Generator().manual_seed(1)
    if off_policy:
        with torch.no_grad():
            logprobs = torch.cat(of_tokens(all_logprobs(model, batch, actor.config.rollout.temperature), batch))
        batch.old_logprobs = logprobs + 0.5 * torch.randn(len(logprobs), generator=noise)
    if actor.config.loss.beta:
        batch.ref_logprobs = -5 + torch.randn(len(batch.selected), generator=noise)
    loss, magnitude = reference_loss(model, batch, actor.config)
    loss.backward()
    metrics, [gradients] = update(actor, batch)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=0, abs=AFTER_EXP * magnitude)
    expected = {name: p.grad for name, p in model.named_parameters()}
    assert_same_gradients(gradients, expected)
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4) and norm > 0.01


@pytest.mark.parametrize("kind", ["grpo", "gspo", "cispo"])
def test_old_logprobs_given_or_not_on_policy(gqa_model, kind):
    results = []
    for given in (False, True):
        actor, batch = make_actor(gqa_model, f"loss.kind={kind}"), make_batch()
        batch.old_logprobs = actor.compute_logprobs(batch)[0] if given else None
        results.append(update(actor, batch))
    _, magnitude = reference_loss(reference_model(gqa_model), make_batch(), actor.config)
    assert results[0][0]["loss"] == pytest.approx(results[1][0]["loss"], rel=0, abs=AFTER_EXP * magnitude)
    assert_same_gradients(results[0][1][0], results[1][1][0])


@pytest.mark.parametrize("kind", ["grpo", "gspo"])
def test_micro_batches_change_nothing(gqa_model, kind):
    """Two passes of three optimizer steps, in micro-batches of one rollout, of a few, and of all."""
    results = []
    for budget in (1, 30, 10_000):
        settings = ["optim.num_minibatches=3", "optim.num_iterations=2", "loss.normalizer=sequence", "loss.beta=0.1"]
        settings += [f"loss.kind={kind}", f"train.max_tokens_per_microbatch={budget}"]
        actor, batch = make_actor(gqa_model, *settings), make_batch(SIZES * 3)
        batch.old_logprobs, _ = actor.compute_logprobs(batch)
        batch.ref_logprobs = batch.old_logprobs - 0.1
        before = parameters(actor)
        metrics, gradients = update(actor, batch, 1e-4)
        results.append((metrics, gradients, parameters(actor)))
        assert len(gradients) == 6
        assert any((before[name] - p).abs().max() > 3e-4 for name, p in results[-1][2].items())
    for metrics, gradients, end in results[1:]:
        assert metrics == pytest.approx(results[0][0], rel=1e-3, abs=1e-5)
        for ours, theirs in zip(gradients, results[0][1]):
            assert_same_gradients(ours, theirs)
        assert_same_way(end, results[0][2], before)


def subset(batch, sequences):
    """These rollouts as a batch of their own."""
    index = torch.cat([torch.arange(batch.starts[i], batch.starts[i + 1]) for i in sequences])
    flat = [x[index] for x in (batch.advantages, batch.rollout_logprobs, batch.entropies)]
    part = Batch([batch.prompts[i] for i in sequences], [batch.responses[i] for i in sequences], *flat)
    part.selected = batch.selected[index]
    return part


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
def test_each_optimizer_step_divides_by_what_it_holds_itself(gqa_model, normalizer):
    actor, batch = make_actor(gqa_model, f"loss.normalizer={normalizer}", "optim.num_minibatches=2"), make_batch()
    metrics, steps = update(actor, batch, learning_rate=0.0)
    order = torch.randperm(len(SIZES), generator=torch.Generator().manual_seed(0)).tolist()
    alone = make_actor(gqa_model, f"loss.normalizer={normalizer}")
    losses = []
    for gradients, sequences in zip(steps, (order[0::2], order[1::2])):
        own, [expected] = update(alone, subset(batch, sequences), learning_rate=0.0)
        losses.append(own["loss"])
        assert_same_gradients(gradients, expected)
    assert metrics["loss"] == pytest.approx(sum(losses) / 2, rel=AFTER_EXP, abs=ROUNDING)


def test_nothing_after_the_last_selected_token_is_run(gqa_model):
    batch, other = make_batch(), make_batch()
    for i in range(len(SIZES)):
        kept = other.selected[other.tokens_of(i)].nonzero()
        last = int(kept[-1]) if len(kept) else -1
        other.responses[i][last + 1 :] = [0] * (len(other.responses[i]) - last - 1)
    assert batch.responses != other.responses
    (metrics, gradients), (same, equal) = (update(make_actor(gqa_model), b) for b in (batch, other))
    assert metrics == same and all(torch.equal(gradients[0][name], equal[0][name]) for name in gradients[0])
    assert metrics["selection/tokens_forwarded"] == sum(batch.forward_lengths(cut=True))
    assert sum(batch.forward_lengths(cut=True)) < 0.8 * sum(batch.forward_lengths(cut=False))


def test_gspo_runs_whole_rollouts_but_only_where_a_token_is_selected(gqa_model):
    batch, actor = make_batch(), make_actor(gqa_model, "loss.kind=gspo")
    batch.old_logprobs, _ = actor.compute_logprobs(batch)
    metrics, _ = update(actor, batch)
    kept = [batch.selected[batch.tokens_of(i)].any() for i in range(len(SIZES))]
    whole = batch.forward_lengths(cut=False)
    assert not all(kept) and metrics["selection/tokens_forwarded"] == sum(n for n, k in zip(whole, kept) if k)


def test_a_dummy_gives_zero_gradients_to_every_parameter(model_path):
    policy = Policy(str(model_path), 64)
    logprobs, every, entropies = policy(dummy_micro_batch(), torch.zeros(0, dtype=torch.bool), 1.0, True, True)
    assert logprobs.shape == every.shape == entropies.shape == (0,)
    logprobs.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in policy.parameters())


@pytest.mark.parametrize("what", ["no selected token", "advantages of 0", "one mini-batch of three"])
def test_without_a_gradient_there_is_no_optimizer_step(gqa_model, what):
    """Momentum and weight decay would still move the parameters, after a first step that moved them."""
    settings = ["optim.weight_decay=0.1", "optim.num_minibatches=5" if "mini" in what else "optim.num_minibatches=1"]
    actor, batch = make_actor(gqa_model, *settings), make_batch()
    update(actor, batch)
    before = parameters(actor)
    if what == "one mini-batch of three":  # that of the first rollout, and those that never had a selected token
        batch.selected[batch.tokens_of(0)] = False
        metrics, steps = update(actor, batch)
        have = [bool(batch.selected[batch.tokens_of(i)].any()) for i in range(len(SIZES))]
        assert metrics["optimizer_steps"] == len(steps) == sum(have) == 2
        return
    if what == "no selected token":
        batch.selected[:] = False
    else:
        batch.advantages[batch.selected] = 0.0
    metrics, steps = update(actor, batch)
    assert not steps
    assert metrics == {"loss": 0, "grad_norm": 0, "optimizer_steps": 0, "selection/tokens_forwarded": 0}
    assert_untouched(parameters(actor), before)


def test_the_kl_term_pulls_without_advantages(gqa_model):
    actor, batch = make_actor(gqa_model, "loss.beta=0.1"), make_batch()
    batch.advantages[:] = 0.0
    batch.ref_logprobs = actor.compute_logprobs(batch)[0] - 1
    metrics, _ = update(actor, batch)
    assert metrics["optimizer_steps"] == 1 and metrics["grad_norm"] > 1e-3


def test_there_are_no_more_optimizer_steps_than_rollouts(gqa_model):
    batch = make_batch()
    batch.selected[batch.starts[:-1]] = True  # one token of each at least
    metrics, steps = update(make_actor(gqa_model, "optim.num_minibatches=8"), batch)
    assert metrics["optimizer_steps"] == len(steps) == len(SIZES)


def test_gradients_are_clipped_and_the_rate_is_the_one_asked_for(gqa_model):
    actor = make_actor(gqa_model, "optim.max_grad_norm=0.01")
    before = parameters(actor)
    metrics, [gradients] = update(actor, make_batch(), 0.25)
    norm = torch.cat([g.flatten() for g in gradients.values()]).norm().item()
    assert metrics["grad_norm"] > 0.1 and norm == pytest.approx(0.01, rel=1e-3)
    moves = [(p - before[name]).abs().max().item() for name, p in parameters(actor).items()]
    assert max(moves) == pytest.approx(0.25, rel=1e-2)  # AdamW's first step


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_an_update(gqa_model):
    actor, batch = make_actor(gqa_model, "rollout.temperature=0.7"), make_batch()
    logprobs, entropies = actor.compute_logprobs(batch)
    batch.old_logprobs = logprobs + 0.4 * torch.randn(len(logprobs), generator=torch.Generator().manual_seed(2))
    batch.rollout_logprobs = logprobs + 0.1
    metrics, _ = update(actor, batch)
    chosen = batch.selected
    change = (logprobs - batch.old_logprobs)[chosen]
    a = batch.advantages[chosen]
    expected = {
        "policy/approx_kl": (change.exp() - 1 - change).mean().item(),
        "policy/clip_low": ((change.exp() < 0.8) & (a < 0)).float().mean().item(),
        "policy/clip_high": ((change.exp() > 1.2) & (a > 0)).float().mean().item(),
        "policy/entropy_selected": entropies[chosen].mean().item(),
        "mismatch/mean_abs": 0.1,
        "mismatch/max_abs": 0.1,
        "mismatch/ratio": math.exp(-0.1),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert min(expected["policy/clip_low"], expected["policy/clip_high"]) > 0


EXAMPLES = re.findall(r"```python\n(def .*?)```", Path("docs/hacking.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["token", "sequence"])
def test_a_loss_as_the_hacking_guide_adds_it(gqa_model, monkeypatch, example):
    """The page's own lines, run in d3s/loss.py; its statistics are logged, over micro-batches and updates."""
    monkeypatch.setattr(loss_module, "LOSSES", dict(loss_module.LOSSES))
    monkeypatch.setattr(loss_module, "SEQUENCE_LOSSES", set(loss_module.SEQUENCE_LOSSES))
    exec(example, vars(loss_module))
    monkeypatch.setattr("d3s.actor.LOSSES", loss_module.LOSSES)
    monkeypatch.setattr("d3s.actor.SEQUENCE_LOSSES", loss_module.SEQUENCE_LOSSES)
    results = []
    for budget in (1, 10_000):
        actor, batch = make_actor(gqa_model, f"train.max_tokens_per_microbatch={budget}"), make_batch()
        actor.config.loss.kind = "mine"
        logprobs, _ = actor.compute_logprobs(batch)
        batch.old_logprobs = logprobs + 0.5 * torch.randn(len(logprobs), generator=torch.Generator().manual_seed(2))
        results.append(update(actor, batch)[0])
    change = logprobs - batch.old_logprobs
    if "sequence_log_ratio" in example.split("return")[0].split("):")[1]:
        rows = [batch.tokens_of(i) for i in range(len(SIZES))]
        change = torch.cat([change[row].mean().expand(row.stop - row.start) for row in rows])
    ratio = change.exp()[batch.selected]
    expected = {"loss/far": ((ratio - 1).abs() > 0.2).float().mean().item(), "loss/largest_ratio": ratio.max().item()}
    for metrics in results:
        assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
        assert metrics["grad_norm"] > 1e-3 and not {"policy/clip_low", "policy/clip_high"} & metrics.keys()
    assert results[1] == pytest.approx(results[0], rel=1e-3, abs=1e-4)
    assert 0 < expected["loss/far"] < 1


def test_the_mismatch_is_measured_before_anything_changes(gqa_model):
    actor, batch = make_actor(gqa_model, "optim.num_minibatches=2", "optim.num_iterations=2"), make_batch()
    batch.old_logprobs = batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
    metrics, _ = update(actor, batch, 0.01)
    assert metrics["mismatch/max_abs"] < 1e-4 and metrics["mismatch/ratio"] == pytest.approx(1, abs=1e-4)
    assert (actor.compute_logprobs(batch)[0] - batch.old_logprobs).abs().max() > 0.1


def test_kl_to_the_reference(gqa_model):
    """Zero at the start, by its formula afterwards, and the reference stays what it was."""
    actor, batch = make_actor(gqa_model, "loss.beta=0.2"), make_batch()
    start, _ = actor.compute_logprobs(batch)
    batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True)
    assert_same_values(batch.ref_logprobs, start)
    assert update(actor, batch)[0]["policy/kl_ref"] == pytest.approx(0, abs=1e-6)
    now, _ = actor.compute_logprobs(batch)
    assert torch.equal(actor.compute_logprobs(batch, reference=True)[0], batch.ref_logprobs)
    gap = (start - now)[batch.selected]
    assert update(actor, batch)[0]["policy/kl_ref"] == pytest.approx((gap.exp() - gap - 1).mean().item(), rel=1e-3)
    assert gap.abs().max() > 1e-3
    assert make_actor(gqa_model).reference is None


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 10_000])
@pytest.mark.parametrize("what", ["advantage", "gradient"])
def test_a_non_finite_step_leaves_everything_untouched(gqa_model, what, budget):
    actor, batch = make_actor(gqa_model, f"train.max_tokens_per_microbatch={budget}"), make_batch()
    update(actor, batch)
    before, moments = parameters(actor), {k: dict(v) for k, v in actor.optimizer.state_dict()["state"].items()}
    if what == "advantage":
        batch.advantages[batch.selected.nonzero()[-1]] = math.inf
    else:
        actor.lm.model.norm.weight.register_hook(lambda grad: grad * math.nan)
    with pytest.raises(NonFiniteError, match="loss is" if what == "advantage" else "gradient norm is"):
        update(actor, batch)
    assert_untouched(parameters(actor), before)
    for key, state in actor.optimizer.state_dict()["state"].items():
        assert_untouched(state, moments[key])
    assert all(p.grad is None or not p.grad.any() for p in actor.lm.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, "window is 8 tokens"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "packed"),
        ({"final_logit_softcapping": 30.0}, "transform their logits"),
        ({"logit_scale": 0.5}, "transform their logits"),
    ],
)
def test_architectures_that_would_be_silently_wrong(tmp_path, tied_model, changes, message):
    """By configuration alone, as the check comes before the weights are loaded."""
    import json

    settings = json.loads((tied_model / "config.json").read_text())
    settings.pop("layer_types", None)
    (tmp_path / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(UserError, match=message):
        Policy(str(tmp_path), 64)


def test_a_window_for_every_layer(tmp_path):
    from transformers import MistralConfig

    MistralConfig(sliding_window=32).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="window is 32 tokens"):
        Policy(str(tmp_path), 33)


# --- memory ----------------------------------------------------------------------------------------------------------


class LargestOf(TorchDispatchMode):
    """Remembers the largest tensor that has the vocabulary as a dimension, the weights and their gradients aside."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.vocabulary, self.aside, self.largest = vocabulary, {vocabulary, hidden}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        for tensor in tree_leaves(result):
            of_vocabulary = isinstance(tensor, torch.Tensor) and self.vocabulary in tensor.shape
            if of_vocabulary and set(tensor.shape) != self.aside:
                self.largest = max(self.largest, tensor.numel())
        return result


def test_no_tensor_of_tokens_by_vocabulary_is_larger_than_a_chunk(monkeypatch, tmp_path):
    words, chunk = 150_000, 2**20  # 6 rows of the vocabulary
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    path = save_random_model(tmp_path / "model", 0, vocab_size=words, hidden_size=32, **heads)
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    batch = make_batch([(4, 20)] * 4, fraction=0.5)
    assert 12 < batch.selected.sum() < 70  # of 80: both passes of the head take several chunks
    actor = make_actor(path, "loss.kind=gspo", "loss.beta=0.1")
    with LargestOf(words, 32) as scoring:
        batch.old_logprobs, _ = actor.compute_logprobs(batch)
        batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True)
    with LargestOf(words, 32) as updating:
        update(actor, batch)
    assert 0.5 * chunk < scoring.largest <= chunk and 0.5 * chunk < updating.largest <= chunk
    with LargestOf(words, 32) as plain:  # the same instrument sees what it should
        logits = torch.zeros(7, 32, requires_grad=True) @ actor.lm.get_output_embeddings().weight.detach().T
        logits.log_softmax(-1).sum().backward()
    assert plain.largest == 7 * words > chunk


def test_a_tied_embedding_has_one_gradient_tensor(monkeypatch, tmp_path):
    """Not one for the head, one for the lookup and one for their sum."""
    words = 30_000
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    path = save_random_model(tmp_path / "model", 0, vocab_size=words, hidden_size=32, **heads)
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", 2**18)
    batch, actor = make_batch([(4, 20)] * 4, fraction=0.5), make_actor(path)
    made = set()

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **kwargs or {})
            tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
            made.update(t.untyped_storage().data_ptr() for t in tensors if t.shape == (words, 32))
            return result

    monkeypatch.setattr(actor, "_step", lambda: 0.0)
    weight = actor.lm.get_input_embeddings().weight
    with Made():
        update_metrics(actor.update(batch, 1e-3, torch.Generator().manual_seed(0)))
    assert made - {weight.data_ptr()} == {weight.grad.data_ptr()}


# --- half precision, weights, checkpoints ----------------------------------------------------------------------------


def test_bfloat16_is_close_and_keeps_float32_weights(gqa_model):
    batch, exact = make_batch(), make_actor(gqa_model, "loss.beta=0.1")
    batch.ref_logprobs = exact.compute_logprobs(batch)[0] - 0.1
    expected = exact.compute_logprobs(batch), update(exact, batch)
    AcceleratorState._reset_state(True)
    try:
        settings = load_config([], ["rollout.max_completion_length=20", "optim.max_grad_norm=1e9", "loss.beta=0.1"])
        actor = Actor(str(gqa_model), settings, Accelerator(mixed_precision="bf16"), 64)
        scores = actor.compute_logprobs(batch)
        rough, _ = actor.compute_logprobs(batch, reference=True)
        metrics, [gradients] = update(actor, batch)
    finally:
        AcceleratorState._reset_state(True)
    for got, want in zip(scores, expected[0]):
        assert got.dtype == torch.float32 and 1e-5 < (got - want).abs().max() < 0.3
        assert (got - want).abs().mean() < 0.05
    torch.testing.assert_close(rough, scores[0], rtol=0, atol=1e-3)
    assert metrics["loss"] == pytest.approx(expected[1][0]["loss"], abs=0.05)
    flat = [torch.cat([g[name].flatten() for name in sorted(g)]) for g in (gradients, expected[1][1][0])]
    assert torch.cosine_similarity(*flat, dim=0) > 0.99
    assert all(p.dtype == torch.float32 for p in actor.lm.parameters())


def test_gradient_checkpointing_changes_nothing(gqa_model):
    (metrics, gradients), (same, equal) = (
        update(make_actor(gqa_model, f"model.gradient_checkpointing={flag}"), make_batch()) for flag in (False, True)
    )
    assert metrics == pytest.approx(same, rel=1e-4, abs=ROUNDING)
    assert_same_gradients(gradients[0], equal[0])


def save_dropping_model(path, rate):
    """A GPT-2, which has dropout modules and dropout inside attention, of this rate; always with the same weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    rates = {"attn_pdrop": rate, "embd_pdrop": rate, "resid_pdrop": rate}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=257, n_positions=128, eos_token_id=0, **rates)
        GPT2LMHeadModel(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_is_never_active(tmp_path, checkpointing):
    """The update sees the probabilities that were scored; its gradients are those of the model without dropout."""
    results = []
    for rate in (0.5, 0.0):
        path = save_dropping_model(tmp_path / str(rate), rate)
        actor, batch = make_actor(path, f"model.gradient_checkpointing={checkpointing}"), make_batch()
        batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
        results.append(update(actor, batch, learning_rate=0.0))
    assert results[0][0]["mismatch/max_abs"] < 1e-5
    assert results[0][0]["grad_norm"] > 0.01
    assert_same_gradients(results[0][1][0], results[1][1][0])


def test_layers_that_drop_out_by_themselves_do_not_either(tmp_path):
    """OPT's layers call dropout as a function; checkpointing asks such a layer to train."""
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 96, "num_hidden_layers": 2, "vocab_size": 257}
    config = OPTConfig(**sizes, num_attention_heads=2, max_position_embeddings=128, dropout=0.5, layerdrop=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        OPTForCausalLM(config).save_pretrained(tmp_path)
    actor, batch = make_actor(tmp_path, "model.gradient_checkpointing=true"), make_batch()
    batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
    assert update(actor, batch)[0]["mismatch/max_abs"] < 1e-5


def test_checkpointing_recomputes_in_the_update_only(gqa_model):
    """One forward pass when scoring; in an update one and the recomputation, which ends before the layer does."""
    calls = {}
    for flag in (False, True):
        actor, batch = make_actor(gqa_model, f"model.gradient_checkpointing={flag}"), make_batch()
        seen = []
        actor.lm.model.layers[0].mlp.register_forward_pre_hook(lambda *_, seen=seen: seen.append(1))
        actor.compute_logprobs(batch)
        scored = len(seen)
        update(actor, batch)
        calls[flag] = scored, len(seen) - scored
    assert calls == {False: (1, 1), True: (1, 2)}


def test_weights_are_copies_under_every_name(tied_model, gqa_model):
    for path in (tied_model, gqa_model):
        actor = make_actor(path)
        handed = dict(actor.weights())
        expected = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).state_dict()
        assert "lm_head.weight" in handed
        assert_untouched(handed, dict(expected))
        before = {name: t.clone() for name, t in handed.items()}
        update(actor, make_batch())
        assert_untouched(handed, before)


def test_save_and_load_go_on_bitwise(tmp_path, tied_model):
    actor, batch = make_actor(tied_model), make_batch()
    update(actor, batch)
    actor.save(tmp_path)
    assert "model.embed_tokens.weight" in load_file(tmp_path / "model.safetensors")
    again = make_actor(tied_model)
    again.load(tmp_path, saved_by=1)
    (metrics, _), (same, _) = update(actor, batch), update(again, batch)
    assert metrics == same
    assert_untouched(parameters(actor), parameters(again))


@pytest.mark.parametrize(("device", "restored"), [(1, 11), (2, None)])
def test_random_states_of_all_devices_of_a_larger_machine(tmp_path, monkeypatch, device, restored):
    """Checkpoints of before have a list; one of a device that was not there leaves the own one as it is."""
    actor = SimpleNamespace(zero3=False, accelerator=Accelerator(), save=lambda folder: None, load=lambda *_: None)
    states = []
    path = save_checkpoint(actor, RunState(step=1), load_config([], []), tmp_path, keep=1)
    before = torch.load(path / "random_0.pt", weights_only=True)
    torch.save(before | {"cuda": [torch.tensor([10]), torch.tensor([11])]}, path / "random_0.pt")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: device)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state: states.append(int(state)))
    assert load_checkpoint(actor, path) == RunState(step=1)
    assert states == ([] if restored is None else [restored])
