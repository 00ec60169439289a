"""How long a step takes: its amounts of work times what a unit of each took on this machine.

`make bench-scaling` measures steps of many sizes and fits the units; `train.py --dry-run` multiplies. The prompts and
attention's growth with length are not among the amounts: for responses of up to a few thousand tokens both are small.
"""

import json
import math
from pathlib import Path

from d3s.config.schema import Config
from d3s.downsampling import schedule_at
from d3s.plan.memory import ModelShape, Placement, longest_response, spread_steps

MEASURED = Path("runs/benchmarks/scaling.json")

Amounts = dict[str, dict[str, float]]  # phase -> kind of work -> how much of it


# Multiplications and additions: 2 per weight and token forward, 4 backward; the head computes its logits once more.
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
    """The work of one training step.

    Args:
        rollouts: responses generated; length: tokens of each.
        forwarded: tokens that the update runs forward; selected: those that are trained.
        engine_rows: responses that the engine decodes at once (rollout.max_num_seqs).
        updates: optimizer steps.
    """
    head = shape.vocabulary * shape.hidden
    trunk = shape.parameters - head * (1 if shape.tied else 2)
    tokens = rollouts * length
    generate = {"calls": length * math.ceil(rollouts / engine_rows), "tokens": tokens}
    generate |= {"trunk": 2 * trunk * tokens, "head": 2 * head * tokens, "vocabulary": shape.vocabulary * tokens}
    update = {"calls": updates, "trunk": 6 * trunk * forwarded, "head": 8 * head * selected}
    return {
        "generate": generate,
        "update": update | {"parameters": updates * shape.parameters},
        "sync": {"calls": 1, "parameters": shape.parameters},
    }


def predict(work: Amounts, units: Amounts) -> dict[str, float]:
    """Seconds of each phase, from the seconds that one unit of each kind of work takes."""
    return {phase: sum(units[phase][kind] * amount for kind, amount in kinds.items()) for phase, kinds in work.items()}


def config_work(config: Config, shape: ModelShape, step: int, scored: int) -> Amounts:
    """The most work that step `step` (0-based) of a run can be: responses of full length, kept ones run whole.

    Args:
        scored: forward passes over the kept rollouts before the update.
    """
    n, k = schedule_at(config, step)
    length, optim = config.rollout.max_completion_length, config.optim
    kept = n * config.train.prompts_per_step * longest_response(config)
    return step_work(
        shape,
        rollouts=config.train.prompts_per_step * config.rollout.num_generations,
        length=length,
        forwarded=kept * (optim.num_iterations + scored / 3),  # forward alone is a third of forward and backward
        selected=kept * (k * optim.num_iterations + scored / 4),
        engine_rows=config.rollout.max_num_seqs,
        updates=optim.num_minibatches * optim.num_iterations,
    )


def estimate_seconds(config: Config, shape: ModelShape, place: Placement, scored: int, gpu: str) -> str:
    """A sentence on how long the run takes, or on why that is not known; gpu is its name, or "none"."""
    if not MEASURED.is_file():
        return "Seconds: not estimated; make bench-scaling measures what a step takes on this machine."
    measured = json.loads(MEASURED.read_text())
    alike = measured["machine"]["gpu"] == gpu and config.model.dtype == measured["dtype"]
    if not alike or place.ranks > 1 or config.rollout.engine != "vllm" or config.rollout.servers:
        return "Seconds: not estimated; what make bench-scaling measured was one process with vLLM of another kind."
    steps = spread_steps(config.train.steps)
    each = [predict(config_work(config, shape, step, scored), measured["units"]) for step in steps]
    first, last = (
        predict(config_work(config, shape, s, scored), measured["units"]) for s in (0, config.train.steps - 1)
    )
    ends = ", ".join(f"{phase} {first[phase]:.2g} to {last[phase]:.2g}" for phase in first)
    whole = config.train.steps * sum(sum(step.values()) for step in each) / len(each)
    return (
        f"Seconds a step, at most: {sum(first.values()):.2g} at first, {sum(last.values()):.2g} at the end ({ends}); "
        f"the run {whole / 60:,.1f} minutes, evaluations and checkpoints not counted. From make bench-scaling."
    )
