"""Metrics of a step against hand computations, plain sums and full log-probabilities."""

import math
import statistics
from collections import Counter
from dataclasses import replace

import pytest
import torch

from d3s.advantage import ADVANTAGE_RULES
from d3s.groups import RolloutGroups
from d3s.loss import Largest
from d3s.tracking.metrics import rollout_metrics, selection_metrics, update_metrics
from tests.helpers.actors import make_actor, make_batch, update
from tests.helpers.selection import selection_of
from tests.helpers.subsets import variance


def make_groups() -> RolloutGroups:
    """Three groups of two: different verdicts, equal verdicts with different rewards, all equal."""
    return RolloutGroups(
        problems=[7, 2, 5],
        rollouts=[],
        rewards=torch.tensor([[1.0, 0.0], [1.0, 0.5], [0.0, 0.0]]),
        verdicts=torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]),
        lengths=torch.tensor([[1, 2], [3, 4], [5, 5]]),
        finished=torch.tensor([[True, True], [True, True], [False, True]]),
        entropies=torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]),
        counts=Counter(responses=8, distinct=6, decoded=33, thinking=2) | Counter({"strategy/branches": 4}),
    )


def test_rollout_metrics_match_plain_sums():
    rewards, lengths, entropies = [1, 0, 1, 0.5, 0, 0], [1, 2, 3, 4, 5, 5], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert rollout_metrics(make_groups()) == pytest.approx(
        {
            "reward/mean": statistics.fmean(rewards),
            "reward/accuracy": 3 / 6,
            "reward/std": statistics.stdev(rewards),
            "reward/zero_std_groups": 2 / 3,
            "completion/length": 20 / 6,
            "completion/truncated": 1 / 6,
            "completion/distinct": 6 / 8,
            "completion/unclosed_thought": 2 / 8,
            "policy/entropy": sum(n * h for n, h in zip(lengths, entropies)) / 20,  # a mean over tokens
            "selection/tokens_total": 33,
            "strategy/branches": 4,
        }
    )


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_selection_metrics_match_hand_values(scale):
    """Two rollouts of the first group and three of the second are kept, one with advantage 0; then none is kept."""
    advantages = torch.tensor([[1.5, -0.5, 0.0, 0.0], [0.5, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    kept = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    rewards = torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 0, 0], [0.0, 0, 0, 0]])
    of_all_rollouts = ADVANTAGE_RULES.builtin[scale](rewards)[0]
    expected = {
        "advantage/var_all": variance(of_all_rollouts.flatten().tolist()),
        "advantage/var_selected": variance([1.5, -0.5, 0.5, 0.0, -1.0]),
        "advantage/mean_selected": 0.5 / 5,
        "advantage/max_abs": 1.5,
        "selection/usefulness": 4 / 5,
        "selection/effective_groups": 5**2 / (2**2 + 3**2),
        "selection/rollouts": 5,
        "selection/rollouts_total": 12,
    }
    selection = selection_of(advantages, kept, all_advantages=of_all_rollouts)
    assert selection_metrics(selection) == pytest.approx(expected, rel=1e-5)
    of_all = {name: expected[name] for name in ("advantage/var_all", "selection/rollouts_total")}
    nothing = selection_metrics(replace(selection, kept=torch.zeros_like(kept)))
    assert nothing == pytest.approx(dict.fromkeys(expected, 0.0) | of_all, rel=1e-5)


def test_update_metrics_match_sums_over_tokens():
    """Three optimizer steps of unequal token counts; one statistic exists in the first step only."""
    steps = [([0.1, 0.2, 0.6], [1.0, 3.0, 2.0]), ([0.5], [5.0]), ([0.3, 0.7], [0.0, 4.0])]  # kl, gap of each token
    gathered = [
        {
            "loss": 0.1 * i, "grad_norm": 2.0 + i, "forwarded": 10.0 * (i + 1), "tokens": float(len(kl)),
            "policy/kl": sum(kl), "mismatch/max_abs": Largest(torch.tensor(max(gaps))),
        }
        for i, (kl, gaps) in enumerate(steps)
    ]  # fmt: skip
    gathered[0]["mismatch/mean_abs"] = sum(steps[0][1])
    assert update_metrics(gathered) == pytest.approx(
        {
            "loss": 0.1, "grad_norm": 3.0, "optimizer_steps": 3, "selection/tokens_forwarded": 60,
            "policy/kl": (0.1 + 0.2 + 0.6 + 0.5 + 0.3 + 0.7) / 6, "mismatch/max_abs": 5.0, "mismatch/mean_abs": 6 / 3,
        }
    )  # fmt: skip
    assert set(update_metrics([]).values()) == {0}


@pytest.mark.parametrize("budget", [1, 10_000])
def test_policy_metrics_match_full_logprobs(gqa_model, budget):
    """Micro-batches hold one rollout or all; the formulas read the log-probabilities of all tokens."""
    overrides = ["rollout.temperature=0.7", f"train.max_tokens_per_microbatch={budget}"]
    actor, batch = make_actor(gqa_model, *overrides), make_batch()
    logprobs, entropies = actor.compute_logprobs(batch)
    batch.old_logprobs = logprobs + 0.4 * torch.randn(len(logprobs), generator=torch.Generator().manual_seed(2))
    batch.rollout_logprobs = logprobs + 0.1
    metrics, _ = update(actor, batch)
    selected = batch.selected
    log_ratios, advantages = (logprobs - batch.old_logprobs)[selected], batch.advantages[selected]
    expected = {
        "policy/approx_kl": (log_ratios.exp() - 1 - log_ratios).mean().item(),
        "policy/clip_low": ((log_ratios.exp() < 0.8) & (advantages < 0)).float().mean().item(),
        "policy/clip_high": ((log_ratios.exp() > 1.2) & (advantages > 0)).float().mean().item(),
        "policy/entropy_selected": entropies[selected].mean().item(),
        "mismatch/mean_abs": 0.1,
        "mismatch/max_abs": 0.1,
        "mismatch/ratio": math.exp(-0.1),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert min(expected["policy/clip_low"], expected["policy/clip_high"]) > 0


def test_each_update_is_measured_before_it(gqa_model):
    """The KL is that of the policy from which an update starts, 0 at the first; nothing measures the last one.

    The mismatch compares engine and actor with the same weights, before the first of several optimizer steps.
    """

    def run(iterations):
        actor, batch = make_actor(gqa_model, f"optim.num_iterations={iterations}"), make_batch()
        batch.old_logprobs = batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
        metrics, _ = update(actor, batch, 0.01)
        assert metrics["mismatch/max_abs"] < 1e-4 and metrics["mismatch/ratio"] == pytest.approx(1, abs=1e-4)
        change = (actor.compute_logprobs(batch)[0] - batch.old_logprobs)[batch.selected]
        return metrics["policy/approx_kl"], (change.exp() - 1 - change).mean().item()

    (one, after_one), (two, _) = run(1), run(2)
    assert one == pytest.approx(0, abs=1e-9) and after_one > 1e-3
    assert two == pytest.approx(after_one / 2, rel=1e-2)
