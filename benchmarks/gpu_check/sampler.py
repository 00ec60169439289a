"""Entropies, row copies and noise at the sizes of a sampler: exactness, milliseconds, and what waits for the device."""

import warnings
from collections.abc import Callable, Iterator

import torch

from benchmarks.gpu_check.chunks import best_seconds
from benchmarks.gpu_check.rows import Row, at_most, equals
from d3s.rollout.engine import rollout_seeds, token_entropies

VOCABULARY = {"cuda": 152_064, "cpu": 1_000}
REQUESTS = {"cuda": [256, 512, 1024], "cpu": [4, 8]}
CHECKED_ROWS = 64  # of the entropies; float64 copies of all would fill a small card
MASKED = 100  # tokens that cannot be sampled, with a logit of -inf
# Sums of 150,000 terms p log p in float32, each from a log-softmax of magnitude 20: errors of 1e-6 to 1e-5. A row that
# is taken for another is off by 0.1 and more, as random logits differ that much.
ENTROPY_LIMIT = 1e-4  # nats


def run(device: str, seconds: float) -> Iterator[Row]:
    """Entropies against float64, then milliseconds by number of requests."""
    vocabulary = VOCABULARY[device]
    for requests in REQUESTS[device]:
        logits = random_logits(requests, vocabulary, device)
        rows = slice(max(0, requests - CHECKED_ROWS), requests)  # the last ones
        error = (token_entropies(logits)[rows] - exact_entropies(logits[rows])).abs().max().item()
        yield at_most(f"{requests} requests: largest error of entropies", error, ENTROPY_LIMIT)
        milliseconds = 1000 * best_seconds(lambda x=logits: token_entropies(x))
        yield Row(f"{requests} requests: entropies", f"{milliseconds:.2f} ms")
        order = list(range(requests - 1, -1, -1))
        milliseconds = 1000 * best_seconds(lambda x=logits, i=order: x[i])
        yield Row(f"{requests} requests: copy of their logits by a list", f"{milliseconds:.2f} ms")
        noise, seeds = torch.empty_like(logits), rollout_seeds(0, "train", [0], requests)
        one, each = torch.Generator(device).manual_seed(0), [torch.Generator(device).manual_seed(s) for s in seeds]
        milliseconds = 1000 * best_seconds(lambda x=noise, g=one: x.exponential_(generator=g))
        yield Row(f"{requests} requests: noise of one generator", f"{milliseconds:.2f} ms")
        milliseconds = 1000 * best_seconds(lambda x=noise, g=each: draw_each(x, g))
        yield Row(f"{requests} requests: noise of a generator each", f"{milliseconds:.2f} ms")
    yield from seed_rows(device)
    if device == "cuda":
        few = random_logits(8, vocabulary, device)
        yield equals("entropies wait for the device", waits(lambda: token_entropies(few)), False)
        yield Row("copy of logits by a list waits for the device", str(waits(lambda: few[[1, 0]])))


def random_logits(requests: int, vocabulary: int, device: str) -> torch.Tensor:
    """Logits [requests, vocabulary] in float32, flat in the first row and ever more peaked; some are -inf."""
    logits = torch.randn(requests, vocabulary, generator=torch.Generator(device).manual_seed(0), device=device)
    logits *= torch.linspace(0, 5, requests, device=device)[:, None]
    logits[:, :MASKED] = -torch.inf
    return logits


def exact_entropies(logits: torch.Tensor) -> torch.Tensor:
    """-sum p log p over the tokens with p > 0, in float64."""
    logprobs = logits[:, MASKED:].double().log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def draw_each(noise: torch.Tensor, generators: list[torch.Generator]) -> None:
    """Fill each row from its own generator, as vLLM does for requests with seeds."""
    for row, generator in zip(noise, generators):
        row.exponential_(generator=generator)


def seed_rows(device: str) -> Iterator[Row]:
    """The noise of a seed does not depend on the batch, and different seeds have different noise."""
    requests, vocabulary = REQUESTS[device][0], VOCABULARY[device]
    seeds = rollout_seeds(0, "train", [0], requests)

    def noise(chosen: list[int]) -> torch.Tensor:
        rows = torch.empty(len(chosen), vocabulary, device=device)
        draw_each(rows, [torch.Generator(device).manual_seed(seed) for seed in chosen])
        return rows

    batch = noise(seeds)
    yield equals("noise of a seed in a batch and alone is equal", torch.equal(batch[-1:], noise(seeds[-1:])), True)
    yield equals("seeds with noise of their own", len({tuple(row[:4].tolist()) for row in batch}), requests)


def waits(function: Callable[[], object]) -> bool:
    """Whether a call makes the host wait for the device, according to PyTorch's own detection."""
    function()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return any("synchroniz" in str(warning.message) for warning in caught)
