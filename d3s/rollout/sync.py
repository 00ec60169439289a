"""Copy the actor's weights to the rollout engine and check that they arrived."""

from collections.abc import Iterator

import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects
from d3s.packing import Batch
from d3s.rollout.engine import Engine, SamplingParams, rollout_seeds, weight_checksums

ATTEMPTS = 2
PROBE_PROMPTS = PROBE_TOKENS = 4  # a few tokens of several prompts: the engine decodes the prompts together
PROBE_CONTEXT = 64  # last tokens of a prompt, once anything has been trained: stale weights differ after any tokens
DEFAULT_GAPS = {"float32": 1e-3, "bfloat16": 0.1}  # by model.dtype, where rollout.max_logprob_gap is not set


def sync_engine(
    engine: Engine,
    actor,  # d3s.actor.Actor
    accelerator: Accelerator,
    prompts: list[list[int]],
    config: Config,
    step: int,
    trained: bool,
) -> dict[str, float]:
    """Load the weights after `step` into the engine and verify them by checksums and by a probe. Collective.

    Args:
        prompts: token ids; the probe generates from the first ones, later from their ends.
        trained: whether any token has been trained. Before that, a gap means that engine and actor compute the
            architecture differently, not that the weights are stale.

    Returns: metrics: mean and maximum of |engine's - actor's| log-probabilities over the probe's tokens.
    Raises: UserError if a check fails, and fails again after a second attempt.
    """
    limit = config.rollout.max_logprob_gap or DEFAULT_GAPS[config.model.dtype]
    probed = prompts[: max(PROBE_PROMPTS, len(config.rollout.servers))]  # rotating over the servers
    probed = [ids[-PROBE_CONTEXT:] for ids in probed] if trained else probed
    for _ in range(ATTEMPTS):
        differing = _load_weights(engine, actor, getattr(torch, config.model.dtype))
        differing = sorted(set(all_gather_objects(differing, accelerator)))
        gaps = _probe_gaps(engine, actor, accelerator, probed, config, step)
        mean, largest = gaps.mean().item(), gaps.max().item()
        if not differing and mean <= limit:
            return {"sync/mean_abs_dlogp": mean, "sync/max_abs_dlogp": largest}
    raise UserError(_failure(differing, mean, largest, limit, config, step, trained))


def _failure(
    differing: list[str], mean: float, largest: float, limit: float, config: Config, step: int, trained: bool
) -> str:
    """What is wrong after the last attempt."""
    stale = f"after {ATTEMPTS} attempts; the weights are stale or wrongly loaded"
    stale += ", or another run uses the servers" if config.rollout.servers else ""
    if differing:
        names = ", ".join(differing[:3])
        return f"weight sync of step {step}: the engine's values of {names} are not the actor's, {stale}"
    gap = (
        f"mean log-probability gap between engine and actor is {mean:.3g} (maximum {largest:.3g}), "
        f"rollout.max_logprob_gap allows {limit:g}"
    )
    if trained:
        return f"weight sync of step {step}: {gap}, {stale}"
    return (
        f"{config.model.name}: {gap}; nothing has been trained yet, so engine and actor compute this architecture "
        "differently; use rollout.engine: transformers"
    )


def _load_weights(engine: Engine, actor, dtype: torch.dtype) -> list[str]:
    """Load the actor's weights and leave the engine awake. Return the names whose checksums differ afterwards."""
    expected = {}

    def weights() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in actor.weights():
            expected.update(weight_checksums([(name, tensor)], dtype))
            yield name, tensor

    engine.wake("weights")
    engine.load_weights(weights())
    engine.wake("kv_cache")
    loaded = engine.checksums()
    return [key[0] for key in expected.keys() & loaded.keys() if expected[key] != loaded[key]]


def _probe_gaps(
    engine: Engine, actor, accelerator: Accelerator, prompts: list[list[int]], config: Config, step: int
) -> Tensor:
    """|engine's - actor's| log-probabilities [T] of a few fresh tokens of every rank's engine."""
    rollout = config.rollout
    indices = [step * len(prompts) + i for i in range(len(prompts))]
    rollouts = engine.generate(
        prompts,
        n=1,
        params=SamplingParams(temperature=rollout.temperature, max_tokens=PROBE_TOKENS),
        seeds=rollout_seeds(config.train.seed, "probe", indices, 1),
        entropies=False,
    )
    probes = [(r.prompt_ids, r.response_ids, r.logprobs) for r in rollouts]
    probes = all_gather_objects(probes, accelerator)
    logprobs = torch.tensor([x for *_, values in probes for x in values])
    batch = Batch([ids for ids, _, _ in probes], [ids for _, ids, _ in probes], logprobs, logprobs, logprobs)
    budget = actor.micro_batches.max_tokens
    try:
        return (actor.compute_logprobs(batch)[0] - logprobs).abs()
    except UserError as error:  # of memory; as such, the trainer would save these weights as those of the step before
        raise UserError(f"weight sync of step {step}: {error}; or lower rollout.gpu_memory_utilization") from error
    finally:
        actor.micro_batches.max_tokens = budget  # a probe that had to be halved says nothing about updates
