"""Every number that a step logs: selection, update, rollouts; and the sample records."""

from torch import Tensor

from d3s.advantage import group_advantages
from d3s.collector import RolloutGroups
from d3s.data.prompts import EncodedPrompts
from d3s.loss import Largest
from d3s.packing import Batch


def selection_metrics(scale: str, rewards: Tensor, advantages: Tensor, kept: Tensor) -> dict[str, float]:
    """What rollout-level down-sampling kept: rewards and advantages [B, G], kept bool [B, G]."""
    everything, selected = group_advantages(rewards, scale), advantages[kept]
    per_group = kept.sum(1).float()
    return {
        "advantage/var_all": everything.var(correction=0).item(),
        "advantage/var_selected": selected.var(correction=0).item() if len(selected) else 0.0,
        "advantage/mean_selected": selected.mean().item() if len(selected) else 0.0,
        "selection/usefulness": (selected != 0).float().mean().item() if len(selected) else 0.0,
        "selection/effective_groups": (per_group.sum() ** 2 / per_group.square().sum().clamp(min=1)).item(),
        "selection/rollouts": int(kept.sum()),
        "selection/rollouts_total": kept.numel(),
    }


def sample_records(
    experience: RolloutGroups,
    advantages: Tensor,
    kept: Tensor,
    batch: Batch,
    prompts: EncodedPrompts,
    tokenizer,
    limit: int,
) -> list[dict]:
    """About `limit` of this rank's rollouts as a reader wants to see them, with what was kept of each."""
    place = {tuple(cell): i for i, cell in enumerate(kept.nonzero().tolist())}  # of each kept rollout in the batch
    rollouts = list(zip(experience.rollouts, experience.slots, experience.texts))
    records = []
    for rollout, slot, text in rollouts[:: max(1, len(rollouts) // limit)][:limit]:
        cell = (rollout.prompt_index, slot)
        problem = experience.problems[rollout.prompt_index]
        selected = cell in place
        trained = (
            batch.selected[batch.tokens_of(place[cell])].tolist() if selected else [False] * len(rollout.response_ids)
        )
        records.append(
            {
                "problem": prompts.problems[problem].problem,
                "answer": prompts.problems[problem].answer,
                "prompt": prompts.texts[problem],
                "response": text,
                "reward": experience.rewards[cell].item(),
                "advantage": advantages[cell].item(),
                "selected": selected,
                "tokens": [tokenizer.decode([token]) for token in rollout.response_ids],
                "entropies": rollout.entropies,
                "kept": trained,
            }
        )
    return records


def update_metrics(steps: list[dict[str, float | Largest]]) -> dict[str, float]:
    """Metrics of a training step from what its optimizer steps gathered; of none, too."""
    count = len(steps)
    if not count:
        return {"loss": 0.0, "grad_norm": 0.0, "optimizer_steps": 0, "selection/tokens_forwarded": 0}
    metrics = {
        "loss": sum(step["loss"] for step in steps) / count,
        "grad_norm": sum(step["grad_norm"] for step in steps) / count,
        "optimizer_steps": count,
        "selection/tokens_forwarded": sum(step["forwarded"] for step in steps),
    }
    for name in (name for name in steps[0] if "/" in name):
        values = [(step[name], step["tokens"]) for step in steps if name in step]  # some are of the first step alone
        if isinstance(values[0][0], Largest):
            metrics[name] = max(float(value.values) for value, _ in values)
        else:
            metrics[name] = sum(value for value, _ in values) / sum(tokens for _, tokens in values)
    return metrics
