"""Our sides of the update benchmarks, each in a process of its own: python -m benchmarks.speed.d3s_side KIND FOLDER.

KIND is `d3s` (N and K as told), `dense` (benchmarks/speed/dense_grpo.py) or `losses` (several steps on one batch,
reported once). FOLDER holds model/ and work.json: the rollouts and what is to be done with them.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.harness import open_channel, report, serve
from benchmarks.speed.dense_grpo import DenseGrpo
from d3s.actor import Actor
from d3s.advantage import group_advantages
from d3s.collector import RolloutGroups, gather_batch
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.distributed import start_accelerator
from d3s.downsampling import downsample_rollouts, downsample_tokens
from d3s.packing import Batch
from d3s.rollout.engine import Rollout


def as_experience(work: dict, group: int) -> RolloutGroups:
    """The rollouts of the file as the trainer collects them."""
    count = len(work["responses"])
    columns = zip(work["prompts"], work["responses"], work["logprobs"], work["entropies"])
    rollouts = [Rollout(i // group, *column, True, i % group) for i, column in enumerate(columns)]
    table = torch.tensor(work["rewards"]).view(-1, group)
    return RolloutGroups(list(range(len(table))), rollouts, [""] * count, table, table, table, table > -1, table)


def settings(work: dict) -> Config:
    """One optimizer step per batch, on micro-batches of as many tokens as the peer's hold."""
    longest = max(map(len, work["prompts"])) + max(map(len, work["responses"]))
    return load_config(
        [],
        [
            f"rollout.num_generations={work['group']}",
            f"rollout.temperature={work['temperature']}",
            f"rollout.max_completion_length={work['response_tokens']}",
            f"train.max_tokens_per_microbatch={work['micro_batch'] * longest}",
            f"optim.learning_rate={work['learning_rate']}",
            "schedule.n_init=null",
            "schedule.n_final=null",
            *work.get("overrides", []),
        ],
    )


def make_actor(folder: Path, config: Config) -> Actor:
    return Actor(str(folder / "model"), config, start_accelerator(config), max_length=4096)


def d3s_side(folder: Path, work: dict, keep: int, fraction: float) -> None:
    """From the rewards of all rollouts to the optimizer's step: both selections are in the time."""
    normalizer = "selected" if fraction < 1 else "sequence"
    config = settings(work | {"overrides": [f"loss.normalizer={normalizer}"]})
    actor = make_actor(folder, config)
    experience = as_experience(work, work["group"])
    chance = torch.Generator().manual_seed(0)

    def turn() -> dict:
        eligible = torch.ones_like(experience.finished)
        advantages, kept = downsample_rollouts(config, experience.rewards, eligible, keep, chance)
        batch = gather_batch(experience, advantages, kept, actor.accelerator)
        batch.selected = downsample_tokens(config.selector, batch, fraction, chance)
        metrics = actor.update(batch, work["learning_rate"], chance)
        return {"forwarded": metrics["selection/tokens_forwarded"], "trained": int(batch.selected.sum())}

    serve(turn)


def dense_side(folder: Path, work: dict) -> None:
    """Every rollout and token, padded, with whole logits and a scoring pass."""
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    dense = DenseGrpo(model, work["micro_batch"])

    def turn() -> None:
        advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, work["group"])).flatten()
        dense.update(work["prompts"], work["responses"], advantages)

    serve(turn)


def losses_side(folder: Path, work: dict) -> None:
    """Loss and gradient norm of several optimizer steps on one batch; from the second on, the ratios are not 1."""
    normalizer = {"grpo": "sequence", "dapo": "selected"}[work["loss"]]
    config = settings(work | {"overrides": [f"loss.normalizer={normalizer}"]})
    actor = make_actor(folder, config)
    lengths = torch.tensor([len(r) for r in work["responses"]])
    advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, work["group"])).flatten()
    nothing = torch.zeros(int(lengths.sum()))
    batch = Batch(work["prompts"], work["responses"], advantages.repeat_interleave(lengths), nothing, nothing)
    batch.selected = torch.ones(len(nothing), dtype=torch.bool)
    batch.old_logprobs = actor.compute_logprobs(batch)[0]
    chance = torch.Generator().manual_seed(0)
    steps = [actor.update(batch, work["learning_rate"], chance) for _ in range(work["iterations"])]
    channel = open_channel()
    report(channel, {key: [step[key] for step in steps] for key in ("loss", "grad_norm")})


def main(kind: str, folder: Path) -> None:
    work = json.loads((folder / "work.json").read_text())
    if kind == "losses":
        losses_side(folder, work)
    elif kind == "dense":
        dense_side(folder, work)
    else:
        keep, fraction = kind.split(":")  # N:K
        d3s_side(folder, work, int(keep), float(fraction))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
