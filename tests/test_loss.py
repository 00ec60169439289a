"""Losses and their gradients against published formulas on padded rows and hand-computed values.

`padded_loss` follows the documentation of TRL's GRPOTrainer: one row per completion, a mask, and `loss_type` for the
aggregation of tokens. The losses under test take flat tensors of the selected tokens and a denominator instead.
"""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.loss import LOSS_RULES, Clip, denominators, kl_penalty
from d3s.plan.trials import attempt
from tests.helpers.actors import SIZES, make_actor, make_batch, update
from tests.helpers.losses import compute_loss

KINDS = list(LOSS_RULES.builtin)

LENGTHS, LIMIT = [5, 1, 8], 10
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))
MASK = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


def random_inputs(spread=0.4):
    """Log-probabilities of the policy (a leaf), the old policy and the reference, [14] float64; advantages [3]."""
    g = torch.Generator().manual_seed(0)
    logprobs, noise, other = torch.rand(3, len(IDS), generator=g, dtype=torch.float64)
    advantages = torch.tensor([1.3, -0.9, -0.4], dtype=torch.float64)
    return (-3 * logprobs).requires_grad_(), -3 * logprobs + spread * (2 * noise - 1), -3 * other, advantages


def in_rows(flat):
    """Flat tokens [14] as rows [3, 8], padded with 0."""
    return torch.zeros(MASK.shape, dtype=flat.dtype).masked_scatter(MASK, flat)


def padded_loss(kind, level, logprobs, old, advantages, low, high, beta, ref):
    """The loss with `loss_type` = kind and `importance_sampling_level` = level."""
    logprobs, old, m = in_rows(logprobs), in_rows(old), MASK.double()
    log_ratio = logprobs - old
    if level == "sequence":
        log_ratio = ((log_ratio * m).sum(1) / m.sum(1))[:, None]
    ratio, a = log_ratio.exp(), advantages[:, None]
    if kind == "cispo":
        per_token = -ratio.clamp(max=high).detach() * a * logprobs
    else:
        per_token = -torch.min(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
    gap = in_rows(ref) - logprobs
    per_token = per_token.expand(MASK.shape) + beta * (gap.exp() - gap - 1)
    if kind == "grpo":
        return ((per_token * m).sum(1) / m.sum(1)).mean()
    if kind == "dr_grpo":
        return (per_token * m).sum() / (len(LENGTHS) * LIMIT)
    return (per_token * m).sum() / m.sum()  # bnpo, dapo and cispo, with the full batch as one micro-batch


def assert_same(loss, expected, logprobs):
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    gradients = [torch.autograd.grad(x, logprobs, retain_graph=True)[0] for x in (loss, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-9)
    assert gradients[0].abs().max() > 1e-3


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize(
    ("loss_type", "level", "kind", "normalizer", "low", "high"),
    [
        ("grpo", "token", "grpo", "sequence", 0.2, 0.2),
        ("bnpo", "token", "grpo", "selected", 0.2, 0.2),
        ("dapo", "token", "grpo", "selected", 0.2, 0.28),
        ("dapo", "token", "grpo", "all", 0.2, 0.28),
        ("dr_grpo", "token", "grpo", "constant", 0.2, 0.2),
        ("grpo", "sequence", "gspo", "sequence", 3e-4, 4e-4),
        ("grpo", "sequence", "gspo", "sequence", 0.5, 0.5),
        ("cispo", "token", "cispo", "selected", 1.0, 1.1),
        ("cispo", "token", "cispo", "selected", 1.0, 5.0),
    ],
)
def test_losses_match_published_padded_formulas(loss_type, level, kind, normalizer, low, high, beta):
    logprobs, old, ref, advantages = random_inputs()
    expected = padded_loss(loss_type, level, logprobs, old, advantages, low, high, beta, ref)
    counts = torch.tensor(LENGTHS)
    per_token = denominators(normalizer, counts, counts, LIMIT).double()[IDS]
    sequence_log_ratio = (in_rows((logprobs - old).detach()).sum(1) / counts)[IDS]
    clip = Clip(low, None if high == low else high)
    loss, _ = compute_loss(kind, logprobs, old, advantages[IDS], sequence_log_ratio, clip, per_token)
    loss = loss + beta * (kl_penalty(logprobs, ref) / per_token).sum()
    assert_same(loss, expected, logprobs)


# --- hand-computed values --------------------------------------------------------------------------------------


# ratio, advantage -> loss, its derivative by the log-probability, tokens clipped below and above
@pytest.mark.parametrize(
    ("kind", "clip", "table"),
    [
        (
            "grpo",
            Clip(0.2, 0.3),
            [
                (1.0, 2.0, -2.0, -2.0, 0, 0), (1.25, 2.0, -2.5, -2.5, 0, 0), (1.5, 2.0, -2.6, 0.0, 0, 1),
                (0.5, 2.0, -1.0, -1.0, 0, 0), (1.5, -2.0, 3.0, 3.0, 0, 0), (0.5, -2.0, 1.6, 0.0, 1, 0),
                (0.9, -2.0, 1.8, 1.8, 0, 0), (5.0, 0.0, 0.0, 0.0, 0, 0),
            ],
        ),
        (
            "cispo",  # the log-probability is log(ratio), as the old one is 0
            Clip(0.2, 1.3),
            [
                (1.0, 2.0, 0.0, -2.0, 0, 0), (1.5, 2.0, -2.6 * math.log(1.5), -2.6, 0, 1),
                (0.5, 2.0, -1.6 * math.log(0.5), -1.6, 1, 0), (1.5, -2.0, 2.6 * math.log(1.5), 2.6, 0, 1),
            ],
        ),
        ("cispo", Clip(1.0, 5.0), [(0.1, 2.0, -0.2 * math.log(0.1), -0.2, 0, 0), (7, 1, -9.72955, -5, 0, 1)]),
    ],
)  # fmt: skip
def test_single_token_losses_match_hand_values(kind, clip, table):
    for ratio, advantage, value, slope, below, above in table:
        logprob = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
        zero, a = torch.zeros(1, dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64)
        got, stats = compute_loss(kind, logprob, zero, a, None, clip, 1.0)
        got.backward()
        assert got.item() == pytest.approx(value, abs=1e-5)
        assert logprob.grad.item() == pytest.approx(slope, abs=1e-6)
        assert (int(stats["clip_low"]), int(stats["clip_high"])) == (below, above)
        halved, _ = compute_loss(kind, logprob, zero, a, None, clip, torch.tensor([2.0]))
        assert halved.item() == pytest.approx(got.item() / 2)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_ratios_stay_finite(kind):
    logprobs = torch.tensor([-1e4, -1.0, 0.0], requires_grad=True)
    old = torch.tensor([-1.0, -1e4, 0.0])
    for sign in (1.0, -1.0):
        loss, _ = compute_loss(kind, logprobs, old, torch.full((3,), sign), logprobs.detach() - old, Clip(0.2), 3.0)
        assert torch.isfinite(loss) and torch.isfinite(torch.autograd.grad(loss, logprobs)[0]).all()


@given(st.permutations(range(len(IDS))), st.lists(st.integers(0, len(IDS)), max_size=4), st.sampled_from(list(KINDS)))
def test_losses_add_up_over_any_split(order, cuts, kind):
    """The last part has no token."""
    logprobs, old, _, advantages = random_inputs()
    a, gaps, per_token = advantages[IDS], (logprobs - old).detach(), 3.0 * torch.tensor(LENGTHS)[IDS]

    def part(index):
        return compute_loss(kind, logprobs[index], old[index], a[index], gaps[index], Clip(0.1), per_token[index])

    full_loss, stats = part(torch.arange(len(IDS)))
    edges = [0, *sorted(cuts), len(IDS), len(IDS)]
    parts = [part(torch.tensor(order[i:j], dtype=torch.long)) for i, j in itertools.pairwise(edges)]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(full_loss.item(), abs=1e-12)
    assert all(sum(int(s[name]) for _, s in parts) == int(stats[name]) for name in stats)


# --- KL --------------------------------------------------------------------------------------------------------------


def test_kl_estimators_match_hand_values():
    logprobs, ref = torch.tensor([[-1.0, -2.0, -3.0], [-1.5, -2.0, -1.0]], dtype=torch.float64)
    logprobs.requires_grad_()
    log_ratios = [0.5, 0.0, -2.0]
    values = {"k2": [x * x / 2 for x in log_ratios], "k3": [math.exp(-x) + x - 1 for x in log_ratios]}
    slopes = {"k2": log_ratios, "k3": [1 - math.exp(-x) for x in log_ratios]}
    for estimator in values:
        kl = kl_penalty(logprobs, ref, estimator)
        assert kl.tolist() == pytest.approx(values[estimator])
        assert torch.autograd.grad(kl.sum(), logprobs)[0].tolist() == pytest.approx(slopes[estimator])
    assert kl_penalty(torch.tensor(-500.0), torch.tensor(0.0)).item() == pytest.approx(math.exp(20) - 501)  # limited


def test_kl_estimators_match_exact_kl_in_expectation():
    """In expectation over pi, k3 equals KL(pi || ref), and the gradient of k2 equals that of the KL."""
    logits, ref = torch.randn(2, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    logprobs, ref = logits.log_softmax(0), ref.log_softmax(0)
    exact = (logprobs.exp() * (logprobs - ref)).sum()
    weights = logprobs.exp().detach()
    torch.testing.assert_close((weights * kl_penalty(logprobs, ref, "k3")).sum(), exact)
    slope = torch.autograd.grad((weights * kl_penalty(logprobs, ref, "k2")).sum(), logits, retain_graph=True)[0]
    torch.testing.assert_close(slope, torch.autograd.grad(exact, logits)[0])


# --- denominators and the engine's correction ------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30))
def test_denominators_match_a_count_per_token(tokens):
    """Against the definition of each normalizer at every token; a rollout without tokens counts too."""
    ids, selected = torch.tensor([i for i, _ in tokens]), torch.tensor([chosen for _, chosen in tokens])
    counts = ids.bincount(selected.double(), minlength=5), ids.bincount(minlength=5)
    own = torch.tensor([sum(chosen for j, chosen in tokens if j == i) for i, _ in tokens])
    expected = {"selected": selected.sum(), "all": len(tokens), "sequence": 5 * own.clamp(min=1), "constant": 5 * 7}
    for normalizer, value in expected.items():
        per_token = denominators(normalizer, *counts, 7)[ids]
        assert per_token.dtype == torch.float32
        assert torch.equal(per_token, torch.as_tensor(value).clamp(min=1).expand(len(ids)).float())


# --- losses added by a user -------------------------------------------------------------------------------------------

EXAMPLES = re.findall(r"```python\n([^`]*?_loss\([^`]*?)```", Path("docs/hacking.md").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=["token", "sequence"])
def test_hacking_guide_losses_train_and_log(gqa_model, example, tmp_path, monkeypatch):
    """Their statistics against full log-probabilities, in micro-batches of one rollout and of all."""
    name = f"guide_{EXAMPLES.index(example)}"
    (tmp_path / f"{name}.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    kind = f"{name}:{re.search('def (.*?_loss)', example)[1]}"
    attempt(LOSS_RULES, kind, None)
    results = []
    for budget in (1, 10_000):
        actor = make_actor(gqa_model, f"train.max_tokens_per_microbatch={budget}", f"loss.kind={kind}")
        batch = make_batch()
        logprobs, _ = actor.compute_logprobs(batch)
        batch.old_logprobs = logprobs + 0.5 * torch.randn(len(logprobs), generator=torch.Generator().manual_seed(2))
        results.append(update(actor, batch)[0])
    log_ratios = logprobs - batch.old_logprobs
    if "sequence_log_ratio" in example:
        log_ratios = torch.cat([x.mean().expand(len(x)) for x in log_ratios.split([r for _, r in SIZES])])
    ratios = log_ratios.exp()[batch.selected]
    expected = {"loss/far": ((ratios - 1).abs() > 0.2).float().mean().item(), "loss/largest_ratio": ratios.max().item()}
    for metrics in results:
        assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
        assert metrics["grad_norm"] > 1e-3 and not {"policy/clip_low", "policy/clip_high"} & metrics.keys()
    assert results[1] == pytest.approx(results[0], rel=1e-3, abs=1e-4)
    assert 0 < expected["loss/far"] < 1
