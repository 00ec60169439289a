"""What a training step did, and its metrics by stage: rollouts, selection, update."""

from dataclasses import dataclass

import torch

from d3s.groups import RolloutGroups
from d3s.loss import Largest
from d3s.packing import Batch
from d3s.selector import Selection


@dataclass
class TrainingStep:
    """What a step did. Its metrics and samples are made from this, and no rule is called again."""

    k: float  # fraction of the tokens of the kept rollouts; N is in `selection`
    groups: RolloutGroups
    selection: Selection
    batch: Batch
    updates: list[dict[str, float | Largest]]  # one of each optimizer step, see Actor.update
    metrics: dict[str, float]  # those of single stages: engine correction, learning rate, check of the weights


def step_metrics(done: TrainingStep) -> dict[str, float]:
    """All metrics of a step but its cost."""
    trained, selected = int(done.batch.trained.sum()), int(done.batch.selected.sum())
    decided = {"schedule/n": done.selection.n, "schedule/k": done.k}
    tokens = {"selection/tokens": trained, "selection/tokens_skipped": selected - trained}
    stages = rollout_metrics(done.groups) | selection_metrics(done.selection) | update_metrics(done.updates)
    return done.metrics | decided | tokens | stages


def rollout_metrics(groups: RolloutGroups) -> dict[str, float]:
    """Rewards, lengths and entropies of all rollouts sampled."""
    rewards, lengths, counts = groups.rewards, groups.lengths.float(), groups.counts
    metrics = {
        "reward/mean": rewards.mean().item(),
        "reward/accuracy": groups.verdicts.mean().item(),
        "reward/std": rewards.std().item(),
        "reward/zero_std_groups": 1 - groups.has_signal().float().mean().item(),
        "completion/length": lengths.mean().item(),
        "completion/truncated": 1 - groups.finished.float().mean().item(),
        "completion/unclosed_thought": counts["thinking"] / counts["responses"],
        "completion/distinct": counts["distinct"] / counts["responses"],
        "policy/entropy": ((groups.entropies * lengths).sum() / lengths.sum()).item(),
        "selection/tokens_total": groups.generated,
    }
    metrics |= {f"rewards/{name}": table.nanmean().item() for name, table in groups.parts.items()}
    return metrics | {name: count for name, count in counts.items() if name.startswith("strategy/")}


def selection_metrics(selection: Selection) -> dict[str, float]:
    """Variance, usefulness and spread of the kept rollouts and of their advantages."""
    kept = selection.kept
    selected, per_group = selection.advantages[kept] if kept.any() else torch.zeros(1), kept.sum(1).float()
    return {
        "advantage/var_all": selection.all_advantages.var(correction=0).item(),
        "advantage/var_selected": selected.var(correction=0).item(),
        "advantage/mean_selected": selected.mean().item(),
        "advantage/max_abs": selected.abs().max().item(),
        "selection/usefulness": (selected != 0).float().mean().item(),
        "selection/effective_groups": (per_group.sum() ** 2 / per_group.square().sum().clamp(min=1)).item(),
        "selection/rollouts": int(kept.sum()),
        "selection/rollouts_total": kept.numel(),
    }


def token_metrics(batch: Batch, selection: Selection) -> dict[str, float]:
    """How many tokens have another advantage than their response."""
    changed = batch.advantages != selection.advantages[selection.kept][batch.sequence_ids]
    return {"advantage/tokens_changed": changed.float().mean().nan_to_num().item()}


def update_metrics(steps: list[dict[str, float | Largest]]) -> dict[str, float]:
    """Metrics of a training step from its optimizer steps, of which there may be none (see Actor.update).

    A sum over tokens becomes a mean per selected token; of a Largest, the largest counts.
    """
    if not steps:
        return {"loss": 0.0, "grad_norm": 0.0, "optimizer_steps": 0, "selection/tokens_forwarded": 0}
    metrics = {
        "loss": sum(step["loss"] for step in steps) / len(steps),
        "grad_norm": sum(step["grad_norm"] for step in steps) / len(steps),
        "optimizer_steps": len(steps),
        "selection/tokens_forwarded": sum(step["forwarded"] for step in steps),
    }
    for name in (name for name in steps[0] if "/" in name):
        values = [(step[name], step["tokens"]) for step in steps if name in step]  # some are of the first step alone
        if isinstance(values[0][0], Largest):
            metrics[name] = max(float(value.values) for value, _ in values)
        else:
            metrics[name] = sum(value for value, _ in values) / sum(tokens for _, tokens in values)
    return metrics
