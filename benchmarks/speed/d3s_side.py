"""Sides of benchmarks/speed/update.py that run this repository's code.

    python -m benchmarks.speed.d3s_side KIND FOLDER

KIND is `N:K` (D3S with N rollouts per prompt and the fraction K of their tokens), `distill:K` (on-policy distillation
from an equal model, on the fraction K of the tokens with the highest entropy), `dense` (benchmarks/speed/dense_grpo.py)
or `losses` (several optimizer steps on one batch, reported once). FOLDER contains model/ and work.json, the rollouts
and settings that update.py writes.
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
from d3s.collector import gather_batch
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.groups import Rollout, RolloutGroups
from d3s.launch import start_accelerator
from d3s.packing import Batch
from d3s.passes import add_logprobs, forward_passes
from d3s.selector import Selector
from d3s.tracking.metrics import update_metrics


def as_groups(work: dict, group: int) -> RolloutGroups:
    """The rollouts of work.json in the form in which the trainer collects them."""
    columns = zip(work["prompts"], work["responses"], work["logprobs"], work["entropies"])
    rollouts = [Rollout(i // group, *column, True, i % group, row=i // group) for i, column in enumerate(columns)]
    table = torch.tensor(work["rewards"]).view(-1, group)
    lengths = torch.tensor([len(response) for response in work["responses"]]).view(-1, group)
    return RolloutGroups(list(range(len(table))), rollouts, table, table, lengths, lengths > 0, table)


def make_config(work: dict, normalizer: str, *more: str) -> Config:
    """One optimizer step per batch, with micro-batches of as many tokens as TRL's hold."""
    longest = max(map(len, work["prompts"])) + max(map(len, work["responses"]))
    overrides = {
        "rollout.num_generations": work["group"],
        "rollout.temperature": work["temperature"],
        "rollout.max_completion_length": work["response_tokens"],
        "train.max_tokens_per_microbatch": work["micro_batch"] * longest,
        "optim.learning_rate": work["learning_rate"],
        "schedule.n_init": "null",
        "schedule.n_final": "null",
        "loss.normalizer": normalizer,
    }
    return load_config([], [*(f"{key}={value}" for key, value in overrides.items()), *more])


def make_actor(folder: Path, config: Config) -> Actor:
    model = str(folder / "model")
    return Actor(model, config, start_accelerator(config), max_length=4096, teacher=config.loss.reference and model)


def serve_d3s(folder: Path, work: dict, n: int, k: float, *options: str) -> None:
    """Measure from the rewards of all rollouts to the end of the optimizer step, selections and passes included."""
    config = make_config(work, "selected" if k < 1 or options else "sequence", *options)
    actor, groups = make_actor(folder, config), as_groups(work, work["group"])
    selector, generator = Selector(config.selector, config.reward), torch.Generator().manual_seed(0)
    passes = forward_passes(config, k)

    def update() -> dict:
        eligible = torch.ones_like(groups.finished)
        selection = selector.rollouts(groups, selector.advantages(groups), eligible, 1.0, n, generator)
        batch = gather_batch(groups, selection, actor.accelerator)
        selector.tokens(batch, k, generator)
        add_logprobs(actor, batch, passes)
        metrics = update_metrics(actor.update(batch, work["learning_rate"], generator))
        return {"forwarded": metrics["selection/tokens_forwarded"], "trained": int(batch.selected.sum())}

    serve(update)


def serve_dense(folder: Path, work: dict) -> None:
    """Measure an update on every rollout and token, padded, with full logits and a pass for old log-probabilities."""
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    dense = DenseGrpo(model, work["micro_batch"])

    def update() -> None:
        advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, work["group"])).flatten()
        dense.update(work["prompts"], work["responses"], advantages)

    serve(update)


def report_losses(folder: Path, work: dict) -> None:
    """Report loss and gradient norm of several optimizer steps on one batch; after the first step, ratios are not 1."""
    channel = open_channel()
    actor = make_actor(folder, make_config(work, {"grpo": "sequence", "dapo": "selected"}[work["loss"]]))
    lengths = torch.tensor([len(response) for response in work["responses"]])
    advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, work["group"])).flatten()
    zeros = torch.zeros(int(lengths.sum()))
    batch = Batch(work["prompts"], work["responses"], advantages.repeat_interleave(lengths), zeros, zeros)
    batch.selected = torch.ones(len(zeros), dtype=torch.bool)
    batch.old_logprobs = actor.compute_logprobs(batch)[0]
    generator = torch.Generator().manual_seed(0)
    updates = [actor.update(batch, work["learning_rate"], generator) for _ in range(work["iterations"])]
    metrics = [update_metrics(steps) for steps in updates]
    report(channel, {key: [step[key] for step in metrics] for key in ("loss", "grad_norm")})


def main(kind: str, folder: Path) -> None:
    work = json.loads((folder / "work.json").read_text())
    if kind == "losses":
        report_losses(folder, work)
    elif kind == "dense":
        serve_dense(folder, work)
    elif kind.startswith("distill:"):
        teacher = f"loss.reference={folder / 'model'}"
        rules = ("loss.kind=d3s.methods.distill:distill", "selector.tokens=entropy")
        serve_d3s(folder, work, work["group"], float(kind.removeprefix("distill:")), teacher, *rules)
    else:
        n, k = kind.split(":")
        serve_d3s(folder, work, int(n), float(k))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
