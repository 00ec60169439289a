"""The work of a step by phase, whose seconds per unit `make bench-scaling` fits to steps of many sizes.

Prompts and the quadratic part of attention are not counted: both are small for responses of up to a few thousand
tokens.
"""

import math

from d3s.config.schema import Config
from d3s.flops import TRAINED, ModelShape, forward_flops
from d3s.memory import longest_response
from d3s.schedule import schedule_at

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
