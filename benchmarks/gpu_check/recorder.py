"""The entropy recorder while requests are evicted and prefills are cut, against the actor's entropies."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu_check.engine import Sides, open_sides
from benchmarks.gpu_check.models import DTYPE, random_prompts
from benchmarks.gpu_check.rows import Row, at_least, at_most, equals

REQUESTS = {"cuda": 64, "cpu": 24}
LONGEST = {"cuda": 128, "cpu": 48}  # tokens of a response
# A cache of less than a third of the tokens of all requests, so that some are evicted.
CACHE_GB = {"cuda": 0.04, "cpu": 0.0015}
BUDGET = 200  # tokens of a scheduler step, below the length of two prompts, so that a prefill is cut
# The engine's and the actor's logits differ by float32 rounding, or by that of bfloat16 in every layer: published gaps
# of log-probabilities are 0.02 to 0.05 in the mean. An error of a logit changes the entropy by -p (log p + H) times it,
# so errors of entropies are limited as a share of the mean entropy; on an H100 they were 1 % in the mean, 7 % at most.
GAP_LIMITS = {"float32": 2e-3, "bfloat16": 0.1}
MEAN_LIMITS = {"float32": 1e-3, "bfloat16": 0.02}
LARGEST_LIMITS = {"float32": 1e-2, "bfloat16": 0.15}
# An entropy recorded at the next position would be off by the difference of neighbors. Errors must be far below that,
# or the limits above would not see it.
MOST_TO_SHIFT = 0.2


def run(device: str, seconds: float) -> Iterator[Row]:
    """Entropies and log-probabilities of responses that were interrupted."""
    import vllm  # noqa: F401 (reports that it is missing before a model is made)

    options = [f"rollout.kv_cache_gb={CACHE_GB[device]}", f"rollout.max_num_seqs={REQUESTS[device]}"]
    with tempfile.TemporaryDirectory() as folder:
        yield from interrupted(open_sides(Path(folder), device, 320, *options, "rollout.enforce_eager=true"))


def interrupted(sides: Sides) -> Iterator[Row]:
    """The rows of `run` for an open engine."""
    from d3s.packing import Batch
    from d3s.rollout.engine import SamplingParams, rollout_seeds

    device, engine = sides.device, sides.engine
    sides.sync(0)
    engine.take_preemptions()
    cuts = count_cuts(engine)
    prompts, params = (
        random_prompts([100 + i for i in range(REQUESTS[device])]),
        SamplingParams(max_tokens=LONGEST[device]),
    )
    rollouts = engine.generate(prompts, 1, params, rollout_seeds(0, "train", list(range(len(prompts))), 1))
    scheduling = engine.llm.llm_engine.vllm_config.scheduler_config.async_scheduling
    yield Row("asynchronous scheduling", str(bool(scheduling)))
    if device == "cuda":  # on a CPU prefills are never cut
        yield at_least("prefills that were cut", len(cuts), 1)
    yield at_least("evicted and recomputed requests", engine.take_preemptions(), 1)
    yield equals("responses with an entropy per token", sum(map(complete, rollouts)), len(prompts))
    if not all(map(complete, rollouts)):
        return
    recorded, logprobs = (
        torch.tensor([x for r in rollouts for x in getattr(r, name)]) for name in ("entropies", "logprobs")
    )
    batch = Batch([r.prompt_ids for r in rollouts], [r.response_ids for r in rollouts], logprobs, logprobs, logprobs)
    actor_logprobs, expected = sides.actor.compute_logprobs(batch)
    dtype = DTYPE[device]
    yield equals("entropies that are not finite", int((~recorded.isfinite()).sum()), 0)
    errors = (recorded - expected).abs()
    mean = expected.mean().item()
    note = f"{len(recorded):,} tokens, entropies of {mean:.2f} nats"
    yield at_most("mean error of entropies to their mean", errors.mean().item() / mean, MEAN_LIMITS[dtype], note)
    yield at_most("largest error of entropies to their mean", errors.max().item() / mean, LARGEST_LIMITS[dtype])
    shifted = expected.diff().abs().mean().item()
    yield at_most("mean error to that of a shift by one", errors.mean().item() / shifted, MOST_TO_SHIFT)
    gap = (actor_logprobs - logprobs).abs().mean().item()
    yield at_most("mean gap of log-probabilities", gap, GAP_LIMITS[dtype])


def complete(rollout) -> bool:
    """Whether a response has tokens, and as many entropies."""
    return len(rollout.entropies) == len(rollout.response_ids) > 0


def count_cuts(engine) -> list[str]:
    """Give the scheduler a small budget; the result is a live list of the requests whose prompt a step has cut."""
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    scheduler.max_num_scheduled_tokens = BUDGET
    schedule, cuts = scheduler.schedule, []

    def counting(*args, **options):
        output = schedule(*args, **options)
        requests = [scheduler.requests[name] for name in output.num_scheduled_tokens]
        cuts.extend(r.request_id for r in requests if r.num_computed_tokens < r.num_prompt_tokens)
        return output

    scheduler.schedule = counting
    return cuts
