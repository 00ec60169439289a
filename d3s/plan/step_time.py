"""Estimate the time of a step: amounts of work times the seconds per unit measured on this machine.

`make bench-scaling` measures steps of many sizes and fits the seconds per unit; `train.py --dry-run` multiplies.
Prompts and the quadratic part of attention are not counted: both are small for responses of up to a few thousand
tokens.
"""

import json
import math
from pathlib import Path

from d3s.config.schema import Config
from d3s.flops import TRAINED, ModelShape, forward_flops
from d3s.memory import Placement, longest_response, spread_steps
from d3s.schedule import schedule_at

MEASURED = Path("runs/benchmarks/scaling.json")

Amounts = dict[str, dict[str, float]]  # phase -> kind of work -> amount


def step_work(
    shape: ModelShape,
    *,
    rollouts: int,
    length: int,
    forwarded: float,
    selected: float,
    engine_rows: int,
    updates: int = 1,
) -> Amounts:
    """Work of one training step, by phase.

    Args:
        rollouts: responses generated.
        length: tokens per response.
        forwarded: tokens in the update's forward and backward passes.
        selected: tokens that are trained.
        engine_rows: responses that the engine decodes at the same time (rollout.max_num_seqs).
        updates: optimizer steps.

    Returns: per phase "calls" (of the model), "tokens", "trunk" and "head" (floating-point operations), "vocabulary"
        (logits), "parameters" (updated or copied).
    """
    tokens = rollouts * length
    decoded, trained = forward_flops(shape, tokens, rows=tokens), forward_flops(shape, forwarded, rows=selected)
    generate = {"calls": length * math.ceil(rollouts / engine_rows), "tokens": tokens}
    generate |= {"trunk": decoded["trunk"], "head": decoded["head"], "vocabulary": shape.vocabulary * tokens}
    update = {"calls": updates, "trunk": TRAINED * trained["trunk"]}
    update["head"] = (TRAINED + 1) * trained["head"]  # its backward pass computes the logits again
    return {
        "generate": generate,
        "update": update | {"parameters": updates * shape.parameters},
        "sync": {"calls": 1, "parameters": shape.parameters},
    }


def predict(work: Amounts, units: Amounts) -> dict[str, float]:
    """Seconds per phase; `units` has the seconds per unit of each kind of work."""
    return {phase: sum(units[phase][kind] * amount for kind, amount in kinds.items()) for phase, kinds in work.items()}


def config_work(config: Config, shape: ModelShape, step: int, passes: int) -> Amounts:
    """Maximum work of step `step` (0-based): all responses have full length, kept ones are computed to their end.

    Args:
        passes: forward passes over the kept rollouts before the update.
    """
    n, k = schedule_at(config, step)
    length, optim = config.rollout.max_completion_length, config.optim
    kept = n * config.train.prompts_per_step * longest_response(config)
    return step_work(
        shape,
        rollouts=config.train.prompts_per_step * config.rollout.num_generations,
        length=length,
        forwarded=kept * (optim.num_iterations + passes / 3),  # forward alone is a third of forward and backward
        selected=kept * (k * optim.num_iterations + passes / 4),
        engine_rows=config.rollout.max_num_seqs,
        updates=optim.num_minibatches * optim.num_iterations,
    )


def estimate_seconds(config: Config, shape: ModelShape, place: Placement, passes: int, gpu: str) -> str:
    """Describe the time per step and per run in a sentence, or why it is unknown.

    Args:
        passes: forward passes over the kept rollouts before the update.
        gpu: name of the local GPU, or "none".
    """
    if config.lora.rank:
        return "Seconds: unknown; make bench-scaling measures training of all weights."
    if not MEASURED.is_file():
        return "Seconds: unknown; make bench-scaling measures the time of a step on this machine."
    measured = json.loads(MEASURED.read_text())
    same_machine = measured["machine"]["gpu"] == gpu and config.model.dtype == measured["dtype"]
    if not same_machine or place.ranks > 1 or config.rollout.engine != "vllm" or config.rollout.servers:
        return (
            f"Seconds: unknown; make bench-scaling measured one process with vLLM, GPU {measured['machine']['gpu']}, "
            f"{measured['dtype']}."
        )

    def seconds(step: int) -> dict[str, float]:
        return predict(config_work(config, shape, step, passes), measured["units"])

    steps = spread_steps(config.train.steps)
    mean = sum(sum(seconds(step).values()) for step in steps) / len(steps)
    first, last = seconds(0), seconds(config.train.steps - 1)
    phases = ", ".join(f"{phase} {first[phase]:.2g} to {last[phase]:.2g}" for phase in first)
    return (
        f"Seconds per step, at most: {sum(first.values()):.2g} in the first, {sum(last.values()):.2g} in the last "
        f"({phases}); run: {config.train.steps * mean / 60:,.1f} minutes without evaluations and checkpoints. "
        "From make bench-scaling."
    )
