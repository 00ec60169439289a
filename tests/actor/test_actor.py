"""The actor in one process against transformers on one sequence at a time (helpers/reference.py); its memory."""

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from d3s.actor import Actor, NonFiniteError
from d3s.loss import LOSS_RULES, grpo_loss, kl_penalty
from d3s.passes import add_logprobs, forward_passes
from d3s.policy import CHUNK_ELEMENTS
from tests.helpers.actors import (
    LOSS_CASES,
    SIZES,
    Operations,
    assert_bitwise_equal,
    copy_parameters,
    make_actor,
    make_batch,
    nothing_changes,
    tokens_to_run,
    update,
)
from tests.helpers.models import save_random_model
from tests.helpers.reference import (
    load_reference,
    reference_loss,
    response_entropies,
    response_logprobs,
    vocabulary_logprobs,
)
from tests.helpers.rounding import AFTER_EXP, ROUNDING, assert_same_gradients, assert_same_values

ON_DEVICES = pytest.mark.parametrize(  # both models on a CPU and a GPU, one on a pretended GPU
    ("device", "model_path"),
    [("cpu", "tied"), ("cpu", "gqa"), ("pretended", "gqa")]
    + [pytest.param("cuda", model, marks=pytest.mark.gpu) for model in ("tied", "gqa")],
    indirect=True,
)
NORMALIZERS = ("selected", "all", "sequence", "constant")

# --- log-probabilities ------------------------------------------------------------------------------------------------


@ON_DEVICES
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("budget", [1, 30, 10_000])
def test_packed_logprobs_match_single_sequences(device, model_path, temperature, budget):
    batch = make_batch()
    overrides = [f"rollout.temperature={temperature}", f"train.max_tokens_per_microbatch={budget}"]
    logprobs, entropies = make_actor(model_path, *overrides).compute_logprobs(batch)
    with torch.no_grad():
        tables = vocabulary_logprobs(load_reference(model_path), batch, temperature)
    expected = response_entropies(tables)
    assert_same_values(logprobs, torch.cat(response_logprobs(tables, batch)))
    assert_same_values(entropies, expected, largest=10.0)  # the largest magnitude of a p log p
    assert expected.std() > 0.03


def count_rows(policy):
    """Counts of the tokens that enter a policy's trunk and its head from now on."""
    rows = {"trunk": 0, "head": 0}

    def add(name, ids):
        rows[name] += len(ids)

    policy.lm.base_model.register_forward_pre_hook(lambda _, a, k: add("trunk", k["input_ids"][0]), with_kwargs=True)
    policy.lm.get_output_embeddings().register_forward_pre_hook(lambda _, args: add("head", args[0]))
    return rows


@pytest.mark.parametrize("reference", [False, True])
def test_logprobs_run_wanted_tokens_only(gqa_model, reference):
    actor, batch = make_actor(gqa_model, "loss.beta=0.1"), make_batch()
    full = torch.stack(actor.compute_logprobs(batch, reference))
    rows = count_rows(actor.reference if reference else actor.policy)
    partial = torch.stack(actor.compute_logprobs(batch, reference, wanted=batch.selected))
    assert_same_values(partial[:, batch.selected], full[:, batch.selected])
    assert not partial[:, ~batch.selected].any()
    assert rows == {"trunk": tokens_to_run(batch, batch.selected), "head": batch.selected.sum()}
    assert rows["trunk"] < 0.8 * sum(batch.forward_lengths()) and rows["head"] < 0.5 * len(batch.selected)
    assert not actor.compute_logprobs(batch, reference, wanted=batch.selected, entropies=False)[1].any()


# --- losses and gradients ---------------------------------------------------------------------------------------------


def assert_update_is_exact(actor, batch, model):
    """Loss, gradients and norm are those of the full computation. Returns the metrics."""
    loss, magnitude = reference_loss(model, batch, actor.config)
    loss.backward()
    metrics, [gradients] = update(actor, batch)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=0, abs=AFTER_EXP * magnitude)
    expected = {name: p.grad for name, p in model.named_parameters()}
    assert_same_gradients(gradients, expected)
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4) and norm > 0.01
    return metrics


@ON_DEVICES
@pytest.mark.parametrize("overrides", LOSS_CASES, ids=lambda o: "-".join(x.partition("=")[2] for x in o))
def test_update_matches_full_logits(device, model_path, overrides):
    """Off policy, with an advantage and a weight of its own for each token, some 0; the next has no pi_old."""
    actor, batch, model = make_actor(model_path, *overrides), make_batch(), load_reference(model_path)
    noise = torch.Generator().manual_seed(1)
    batch.advantages = torch.randn(len(batch.selected), generator=noise)
    with torch.no_grad():
        tables = vocabulary_logprobs(model, batch, actor.config.rollout.temperature)
    logprobs = torch.cat(response_logprobs(tables, batch))
    batch.old_logprobs = logprobs + 0.5 * torch.randn(len(logprobs), generator=noise)
    if actor.config.loss.beta:
        batch.ref_logprobs = -5 + torch.randn(len(batch.selected), generator=noise)
    batch.weigh(torch.arange(len(logprobs)), (2 * torch.rand(len(logprobs), generator=noise) - 0.5).relu())
    assert_update_is_exact(actor, batch, model)
    assert batch.trained.sum() < batch.selected.sum()


def penalized(logprobs, old_logprobs, advantages, ref_logprobs, epsilon, epsilon_high, denominator):
    surrogate, _ = grpo_loss(logprobs, old_logprobs, advantages, epsilon, epsilon_high, denominator)
    return surrogate + (0.1 * kl_penalty(logprobs, ref_logprobs, "k2") / denominator).sum(), {}


def from_engine(logprobs, rollout_logprobs, advantages, epsilon, epsilon_high, denominator):
    return grpo_loss(logprobs, rollout_logprobs, advantages, epsilon, epsilon_high, denominator)


def mean_of_sequences(logprobs, sequence_ids, advantages):
    sequences = [sequence_ids == i for i in sequence_ids.unique()]
    return -sum((logprobs * advantages)[i].mean() for i in sequences) / len(SIZES), {}


@pytest.mark.parametrize(
    ("own", "builtin"),
    [
        (penalized, ["loss.beta=0.1", "loss.kl_estimator=k2"]),
        (from_engine, ["loss.old_logprobs=engine"]),
        (mean_of_sequences, ["loss.normalizer=sequence"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_own_losses_receive_what_they_take(gqa_model, own, builtin):
    """Gradients of losses of a user's own equal those of built-in ones that compute the same."""
    gradients = []
    for settings in ([f"loss.kind={__name__}:{own.__name__}"], builtin):
        actor, batch = make_actor(gqa_model, *settings), make_batch()
        batch.advantages[batch.tokens_of(0)] = 0  # a token without an advantage has a penalty
        passes = forward_passes(actor.config, 0.5)
        assert passes.reference == (own is penalized)
        with torch.no_grad():  # the reference is no longer the policy
            next(actor.lm.parameters()).mul_(1.1)
        add_logprobs(actor, batch, passes)
        gradients.append(update(actor, batch)[1][0])
    assert_same_gradients(*gradients)


@pytest.mark.parametrize(("kind", "normalizer"), zip(("grpo", "gspo", "grpo", "cispo"), NORMALIZERS))
def test_minibatch_losses_are_normalized_separately(gqa_model, kind, normalizer):
    """Two iterations, each of two mini-batches of its own, whose passes define pi_old, as the rate is 0."""
    settings = [f"loss.kind={kind}", f"loss.normalizer={normalizer}", "optim.num_iterations=2"]
    actor, batch = make_actor(gqa_model, *settings, "optim.num_minibatches=2"), make_batch()
    metrics, steps = update(actor, batch, learning_rate=0.0)
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(SIZES), generator=generator).tolist() for _ in range(2)]
    parts = [order[i::2] for order in orders for i in (0, 1)]
    assert len({frozenset(part) for part in parts}) == 4
    losses, model = [], load_reference(gqa_model)
    for gradients, sequences in zip(steps, parts, strict=True):
        model.zero_grad()
        loss, _ = reference_loss(model, batch, actor.config, sequences)
        loss.backward()
        assert_same_gradients(gradients, {name: p.grad for name, p in model.named_parameters()})
        losses.append(loss.item())
    assert metrics["loss"] == pytest.approx(sum(losses) / 4, rel=AFTER_EXP, abs=ROUNDING)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("kind", ["grpo", "gspo", "cispo"])
def test_tokens_without_gradient_are_not_run(gqa_model, kind, normalizer):
    """Tokens of advantage 0, which the denominators count, untrainable ones, which are never read, and unselected ones.

    The ratio of GSPO reads the full rollouts of trained tokens. The log-probabilities of pi_old at untrainable tokens
    are far off.
    """
    settings = [f"loss.kind={kind}", f"loss.normalizer={normalizer}", "loss.epsilon=0.9"]
    actor, batch = make_actor(gqa_model, *settings), make_batch([*SIZES, (4, 20), (5, 9), (2, 11)], fraction=0.7)
    batch.trainable = torch.arange(len(batch.selected)) % 3 != 1
    batch.selected &= batch.trainable
    batch.advantages[batch.tokens_of(5)] = 0.0
    noise = torch.randn(len(batch.selected), generator=torch.Generator().manual_seed(1))
    batch.old_logprobs = actor.compute_logprobs(batch)[0] + 0.5 * noise
    batch.old_logprobs[~batch.trainable] -= 5.0
    trained = batch.selected & (batch.advantages != 0)
    computed = batch.rollouts_with(trained) if kind == "gspo" else trained
    rows = count_rows(actor.policy)
    metrics = assert_update_is_exact(actor, batch, load_reference(gqa_model))
    assert rows == {"trunk": tokens_to_run(batch, computed), "head": computed.sum()}
    assert metrics["selection/tokens_forwarded"] == rows["trunk"] < 0.8 * sum(batch.forward_lengths())
    with_kl = make_actor(gqa_model, *settings, "loss.beta=0.1")
    batch.old_logprobs, batch.ref_logprobs = None, batch.rollout_logprobs
    assert update(with_kl, batch)[0]["selection/tokens_forwarded"] == tokens_to_run(batch, batch.selected)


@pytest.mark.parametrize("normalizer", ["selected", "sequence"])
def test_weights_let_all_tokens_count(gqa_model, normalizer):
    """The advantages hold the weights; the denominators are those of the update that selects every token."""
    batch, everything = make_batch(), make_batch()
    chosen = batch.selected & (torch.arange(len(batch.selected)) % 2 == 0)
    batch.select(chosen, torch.full((len(chosen),), 2.0))
    everything.select(torch.ones_like(chosen))
    everything.advantages = (2.0 * everything.advantages).where(chosen, 0.0)
    (metrics, [gradients]), (expected_metrics, [expected]) = (
        update(make_actor(gqa_model, f"loss.normalizer={normalizer}"), b) for b in (batch, everything)
    )
    assert metrics["loss"] == expected_metrics["loss"] != 0
    assert_bitwise_equal(gradients, expected)


def test_reference_kl_follows_its_formula(gqa_model):
    """k3 is 0 before the first update and follows its formula afterwards; the reference does not change."""
    actor, batch = make_actor(gqa_model, "loss.beta=0.2", "model.head_dtype=float32"), make_batch()
    start, _ = actor.compute_logprobs(batch)
    batch.ref_logprobs, entropies = actor.compute_logprobs(batch, reference=True)
    assert_same_values(batch.ref_logprobs, start)
    assert not entropies.any() and actor.reference.lm.get_output_embeddings().exact
    assert update(actor, batch)[0]["policy/kl_ref"] == pytest.approx(0, abs=1e-6)
    now, _ = actor.compute_logprobs(batch)
    assert torch.equal(actor.compute_logprobs(batch, reference=True)[0], batch.ref_logprobs)
    gap = (start - now)[batch.selected]
    assert update(actor, batch)[0]["policy/kl_ref"] == pytest.approx((gap.exp() - gap - 1).mean().item(), rel=1e-3)
    assert gap.abs().max() > 1e-3
    assert make_actor(gqa_model).reference is None


def test_bfloat16_is_close_with_float32_weights(device, gqa_model):
    batch, exact = make_batch(), make_actor(gqa_model)
    expected = exact.compute_logprobs(batch), update(exact, batch)
    AcceleratorState._reset_state(True)  # the fixture does it again
    actor = Actor(str(gqa_model), exact.config, Accelerator(mixed_precision="bf16"), 64)
    logprobs_and_entropies = actor.compute_logprobs(batch)
    metrics, [gradients] = update(actor, batch)
    for got, float32 in zip(logprobs_and_entropies, expected[0]):
        assert got.dtype == torch.float32 and 1e-5 < (got - float32).abs().max() < 0.3
        assert (got - float32).abs().mean() < 0.05
    assert metrics["loss"] == pytest.approx(expected[1][0]["loss"], abs=0.05)
    flat = [torch.cat([g[name].flatten() for name in sorted(g)]) for g in (gradients, expected[1][1][0])]
    assert torch.cosine_similarity(*flat, dim=0) > 0.99
    assert all(p.dtype == torch.float32 for p in actor.lm.parameters())


# --- optimizer steps --------------------------------------------------------------------------------------------------


def test_updates_without_gradient_take_no_step(gqa_model):
    """After a first step, momentum and weight decay alone would still move the parameters."""
    actor, batch = make_actor(gqa_model, "optim.weight_decay=0.1", "optim.num_minibatches=8"), make_batch()
    metrics, steps = update(actor, batch)
    assert metrics["optimizer_steps"] == len(steps) == (batch.counts_of(batch.selected) > 0).sum() == 3
    batch.advantages[batch.selected] = 0.0
    with nothing_changes(actor):
        metrics, steps = update(actor, batch)
    assert not steps
    assert metrics == {"loss": 0, "grad_norm": 0, "optimizer_steps": 0, "selection/tokens_forwarded": 0}


@pytest.mark.parametrize(("option", "everywhere"), [("true", True), ("false", False)])
def test_kernels_of_the_update_are_deterministic(tied_model, option, everywhere):
    """On the CPU the lookup's gradient always, as its default adds in any order on several threads; all by the option.

    The forward passes without gradient, and what runs after the update, are left alone.
    """
    settings = {}

    def see(function, args, _):
        if function is not torch.ops.aten.index_put_.default or args[3:] == (True,):  # those that accumulate
            settings.setdefault(str(function), set()).add(torch.are_deterministic_algorithms_enabled())

    actor, batch = make_actor(tied_model, f"train.deterministic={option}"), make_batch()
    with Operations(see):
        actor.compute_logprobs(batch)
        assert settings["aten.mm.default"] == {False}
        settings.clear()
        actor.update(batch, 1e-3, torch.Generator().manual_seed(0))
    assert settings["aten.index_put_.default"] == {True}
    for name in ("aten.scatter_add_.default", "aten.index_add.default", "aten._fused_adamw_.default"):
        assert settings[name] == {everywhere}
    assert not torch.are_deterministic_algorithms_enabled()


# p <- (1 - lr wd) p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + 1e-8), moments m and v; Loshchilov & Hutter 2019
def test_optimizer_step_follows_adamw(gqa_model):
    """With gradients that are clipped before."""
    actor = make_actor(gqa_model, "optim.weight_decay=0.3", "optim.max_grad_norm=0.01")
    expected = {name: p.double() for name, p in copy_parameters(actor).items()}
    m, v = ({name: torch.zeros_like(p) for name, p in expected.items()} for _ in range(2))
    for t in (1, 2, 3):
        metrics, [gradients] = update(actor, make_batch(seed=t), learning_rate=0.01)
        norm = torch.cat([g.flatten() for g in gradients.values()]).norm().item()
        assert metrics["grad_norm"] > 0.1 and norm == pytest.approx(0.01, rel=1e-3)
        for name, gradient in gradients.items():
            m[name] = 0.9 * m[name] + 0.1 * gradient.double()
            v[name] = 0.999 * v[name] + 0.001 * gradient.double().square()
            step = m[name] / (1 - 0.9**t) / ((v[name] / (1 - 0.999**t)).sqrt() + 1e-8)
            expected[name] = (1 - 0.01 * 0.3) * expected[name] - 0.01 * step
    for name, p in copy_parameters(actor).items():
        torch.testing.assert_close(p.double(), expected[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("budget", [1, 10_000])
@pytest.mark.parametrize("source", ["advantage", "gradient", "own loss"])
def test_non_finite_update_changes_nothing(gqa_model, source, budget):
    actor, batch = make_actor(gqa_model, f"train.max_tokens_per_microbatch={budget}"), make_batch()
    update(actor, batch)
    if source == "advantage":
        batch.advantages[batch.selected.nonzero()[-1]] = math.inf
    elif source == "gradient":
        actor.lm.model.norm.weight.register_hook(lambda grad: grad * math.nan)
    else:
        actor.loss, actor._statistics = LOSS_RULES.rule("tests.helpers.own_rules:nan_loss"), None
    messages = {"advantage": "the loss is", "gradient": "gradient norm is", "own loss": "loss of tests.*:nan_loss is"}
    with nothing_changes(actor), pytest.raises(NonFiniteError, match=messages[source]):
        update(actor, batch)


# --- memory -----------------------------------------------------------------------------------------------------------

VOCABULARY, HIDDEN, CHUNK = 30_000, 32, 2**18  # 8 rows of logits in a chunk


@pytest.fixture
def vocabulary_actor(monkeypatch, tmp_path):
    """vocabulary_actor(overrides): an actor of a model whose vocabulary is most of it."""
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    path = save_random_model(tmp_path / "model", 0, vocab_size=VOCABULARY, hidden_size=HIDDEN, **heads)
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", CHUNK)
    return lambda *overrides: make_actor(path, "loss.kind=gspo", "loss.beta=0.1", *overrides)


def test_vocabulary_tensors_fit_in_a_chunk(vocabulary_actor):
    """All but the weights and their gradients."""
    actor, batch, sizes = vocabulary_actor(), make_batch([(4, 20)] * 4, fraction=0.5), [0]
    assert 16 < batch.selected.sum() < 64  # of 80: both passes of the head take several chunks

    def see(_, args, results):
        shapes = [x.shape for x in results if VOCABULARY in x.shape]
        sizes[-1] = max([sizes[-1], *(s.numel() for s in shapes if set(s) != {VOCABULARY, HIDDEN})])

    with Operations(see):
        batch.old_logprobs, _ = actor.compute_logprobs(batch)
        batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True)
        sizes.append(0)
        update(actor, batch)
        assert all(CHUNK / 2 < size <= CHUNK for size in sizes)
        torch.zeros(9, HIDDEN) @ actor.lm.get_output_embeddings().weight.T
        assert sizes[-1] == 9 * VOCABULARY > CHUNK  # what would be seen without chunks


@pytest.mark.parametrize("lora", [False, True])
def test_tied_embedding_has_one_gradient_tensor(vocabulary_actor, monkeypatch, lora):
    """The head and the lookup add to one tensor, instead of one each and a third for the sum; frozen ones have none."""
    created, actor = set(), vocabulary_actor(*["lora.rank=4"] * lora)

    def see(_, args, results):
        created.update(x.untyped_storage().data_ptr() for x in results if set(x.shape) == {VOCABULARY, HIDDEN})

    monkeypatch.setattr(actor.optimizer, "step", lambda: None)  # AdamW's moments have that shape too
    monkeypatch.setattr(actor.optimizer, "zero_grad", lambda: None)
    weight, batch = actor.lm.get_input_embeddings().weight, make_batch([(4, 20)] * 4, fraction=0.5)
    batch.ref_logprobs = batch.rollout_logprobs
    with Operations(see):
        actor.update(batch, 1e-3, torch.Generator().manual_seed(0))
    assert created - {weight.data_ptr()} == (set() if lora else {weight.grad.data_ptr()})
    assert all((p.grad is not None) == p.requires_grad for p in actor.lm.parameters())
