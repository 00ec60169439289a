"""vLLM in the trainer's process: weight sync, sleep and wake, against the actor and against its own tokens before.

The order of calls is the trainer's: sleep, then sync_engine, which wakes the weights, loads, wakes the KV cache,
compares checksums and probes. A step that keeps no rollout does the same without an update, as each cycle here does.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from benchmarks.gpu_check.models import DTYPE, random_prompts, save_random
from benchmarks.gpu_check.rows import Row, at_least, at_most, equals

CYCLES = 2  # of sleep and wake; the second meets what the first left behind
CACHE_GB = {"cuda": 2.0, "cpu": 0.01}
TOKENS = {"cuda": 64, "cpu": 16}  # of a greedy response
LENGTHS = [5, 40, 70, 128]
# Sleeping must return the KV cache and the weights to the actor. Less than this share of the KV cache alone means that
# it stayed; CUDA graphs and workspaces are not counted.
LEAST_FREED = 0.9
LEAST_TOKENS = 2 * len(LENGTHS)  # responses that each repeat one token would be the same for too many weights
NOISE = 0.5  # of the weights' standard deviation: a change that every response must show


@dataclass
class Sides:
    """An engine and an actor of the same weights."""

    engine: Any
    actor: Any
    accelerator: Accelerator
    config: Any
    device: str

    def sync(self, step: int) -> dict[str, float]:
        """Load the actor's weights; raises UserError if checksums or the probe differ."""
        from d3s.rollout.sync import sync_engine

        return sync_engine(
            self.engine, self.actor, self.accelerator, random_prompts(LENGTHS), self.config, step, trained=True
        )

    def greedy(self) -> list:
        """Greedy responses."""
        from d3s.rollout.engine import SamplingParams

        params = SamplingParams(temperature=0.0, max_tokens=TOKENS[self.device])
        return self.engine.generate(random_prompts(LENGTHS), 1, params, seeds=[0] * len(LENGTHS))


def open_sides(folder: Path, device: str, max_model_len: int, *options: str) -> Sides:
    """Build an engine, which sleeps, and an actor, in the trainer's order."""
    from d3s.actor import Actor
    from d3s.config.load import load_config
    from d3s.rollout import build_engine

    path = save_random(folder / "model", device)
    config = load_config([], [f"model.name={path}", f"model.dtype={DTYPE[device]}", *options])
    accelerator = Accelerator(mixed_precision={"float32": "no", "bfloat16": "bf16"}[DTYPE[device]])
    engine = build_engine(path, config.rollout, dtype=DTYPE[device], max_model_len=max_model_len, seed=0)
    engine.can_sleep = True  # on a CPU its scheduler sleeps, its memory does not
    engine.sleep()
    return Sides(engine, Actor(path, config, accelerator, max_model_len), accelerator, config, device)


def logprob_gap(actor, rollouts: list) -> float:
    """Mean |engine's - actor's| log-probability of responses."""
    from d3s.packing import Batch

    logprobs = torch.tensor([x for r in rollouts for x in r.logprobs])
    batch = Batch([r.prompt_ids for r in rollouts], [r.response_ids for r in rollouts], logprobs, logprobs, logprobs)
    return (actor.compute_logprobs(batch, entropies=False)[0] - logprobs).abs().mean().item()


def run(device: str, seconds: float) -> Iterator[Row]:
    """Tokens and memory over cycles of sleep and wake, with the same weights, with others, and with the first again."""
    import vllm  # noqa: F401 (reports that it is missing before a model is made)

    with tempfile.TemporaryDirectory() as folder:
        yield from cycles(open_sides(Path(folder), device, 256, f"rollout.kv_cache_gb={CACHE_GB[device]}"))


def cycles(sides: Sides) -> Iterator[Row]:
    """The rows of `run` for an open engine."""
    from d3s.rollout.sync import DEFAULT_GAPS

    engine, limit = sides.engine, DEFAULT_GAPS[DTYPE[sides.device]]  # the limit that ends a training run
    metrics = sides.sync(0)
    yield at_most("mean gap of the probe after a sync", metrics["sync/mean_abs_dlogp"], limit)
    yield Row("largest gap of the probe", f"{metrics['sync/max_abs_dlogp']:.3g}")
    first = sides.greedy()
    yield at_most("mean gap of greedy tokens to the actor", logprob_gap(sides.actor, first), limit)
    tokens = [r.response_ids for r in first]
    yield at_least("different tokens among them", len({x for ids in tokens for x in ids}), LEAST_TOKENS)
    again = sides.greedy()  # from cached prompts: in bfloat16 on a GPU, products of other shapes round otherwise
    yield at_most("generated again: mean gap of greedy tokens to the actor", logprob_gap(sides.actor, again), limit)
    if sides.device == "cpu":
        yield equals("generated again: the same tokens", ids_of(again) == tokens, True)
    for cycle in range(1, CYCLES + 1):
        before = free_memory(sides.device)
        engine.sleep()
        if sides.device == "cuda":
            freed = (free_memory("cuda") - before) / (CACHE_GB["cuda"] * 2**30)
            yield at_least(f"sleep {cycle}: memory freed to the KV cache's", freed, LEAST_FREED)
        yield equals(f"sleep {cycle}: generation is refused", refuses(sides), True)
        sides.sync(cycle)
        yield equals(f"sleep {cycle}: the same tokens after waking", ids_of(sides.greedy()) == tokens, True)
    yield from changed_weights(sides, tokens, limit)


def changed_weights(sides: Sides, tokens: list[list[int]], limit: float) -> Iterator[Row]:
    """Other weights give other tokens, those of the actor; the first weights give the first tokens again."""
    kept = [p.detach().clone() for p in sides.actor.policy.parameters()]
    with torch.no_grad():
        for p in sides.actor.policy.parameters():
            p.add_(NOISE * p.std() * torch.randn_like(p) if p.numel() > 1 else 0)
    sides.engine.sleep()
    sides.sync(CYCLES + 1)
    other = sides.greedy()
    yield equals("other weights: responses that stay the same", sum(a == b for a, b in zip(ids_of(other), tokens)), 0)
    yield at_most("other weights: mean gap of greedy tokens to the actor", logprob_gap(sides.actor, other), limit)
    with torch.no_grad():
        for p, value in zip(sides.actor.policy.parameters(), kept):
            p.copy_(value)
    sides.engine.sleep()
    sides.sync(CYCLES + 2)
    yield equals("first weights again: the same tokens", ids_of(sides.greedy()) == tokens, True)


def ids_of(rollouts: list) -> list[list[int]]:
    """Token ids of responses."""
    return [r.response_ids for r in rollouts]


def free_memory(device: str) -> int:
    """Bytes that the device has left."""
    return torch.cuda.mem_get_info()[0] if device == "cuda" else 0


def refuses(sides: Sides) -> bool:
    """Whether a sleeping engine raises instead of waiting forever."""
    try:
        sides.greedy()
    except RuntimeError as error:
        return "asleep" in str(error)
    return False
