"""The actor's peak memory in an update against the prediction of train.py --dry-run (d3s/memory.py)."""

import gc
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
from accelerate import Accelerator
from torch import Tensor

from benchmarks.gpu_check.head import chunk_elements
from benchmarks.gpu_check.rows import Row, at_most, equals, within
from benchmarks.speed.gpu_sides import random_model
from d3s.actor import Actor
from d3s.flops import ModelShape
from d3s.memory import Placement, memory, peaks
from d3s.packing import Batch
from d3s.policy import CHUNK_ELEMENTS

MODELS = {"cuda": ["0.5B", "1.5B"], "cpu": ["tiny, deep"]}
TOKENS = {"cuda": [16_384, 8_192, 4_096, 2_048], "cpu": [512]}  # of a micro-batch; the largest that fits
LENGTH = {"cuda": 1_024, "cpu": 128}  # tokens of a sequence
PROMPT = 32
CPU_CHUNK = 2**15  # logits at once, so that the head does not dominate the tiny shape, as it does not at real ones
MICRO_BATCHES = 2  # the second finds gradients allocated
FITS = 0.85  # of the free memory, as predicted; the check of the prediction must not end in a lack of memory
# The plan asks for 10 % of a GPU to be left free for what it does not count: a run that exceeds its prediction by more
# does not fit where it was planned to fit. On a CPU the peaks of three small models were 0.91 to 1.04 of predictions,
# which count more temporaries of the head than are in use at once; at less than 0.75 they would refuse runs that fit.
LOW, HIGH = 0.75, 1.1
# A gradient norm with and without recomputed activations: the recomputation repeats the same operations, only additions
# into gradients may change their order.
CHECKPOINTING_LIMIT = 0.01


def run(device: str, seconds: float) -> Iterator[Row]:
    """For each model, the peak of an update with and without gradient checkpointing."""
    for name in MODELS[device]:
        with tempfile.TemporaryDirectory() as folder, chunk_elements("cpu", CPU_CHUNK):
            random_model(name, "sdpa").to(torch.bfloat16).save_pretrained(folder)
            shape = ModelShape.of(json.loads((Path(folder) / "config.json").read_text()))
            sizes = [n for n in TOKENS[device] if predict(shape, settings(n, False), device) <= room(device)]
            if not sizes:
                least = predict(shape, settings(TOKENS[device][-1], False), device)
                yield Row(f"{name}: peak of an update", f"not run: needs {least / 2**30:.0f} GB of free memory")
                continue
            norms = []
            for checkpointing in (False, True):  # with the same sequences, so that the norms can be compared
                label = f"{name}{', checkpointing' if checkpointing else ''}"
                config = settings(sizes[0], checkpointing)
                predicted, (measured, metrics) = predict(shape, config, device), update_peak(folder, config, device)
                note = f"{measured / 2**30:.3g} of {predicted / 2**30:.3g} GB, micro-batches of {sizes[0]:,} tokens"
                yield within(f"{label}: peak of an update to its prediction", measured / predicted, LOW, HIGH, note)
                finite = math.isfinite(metrics["loss"]) and 0 < metrics["grad_norm"] < math.inf
                yield equals(f"{label}: loss and gradient are finite, the gradient is not 0", finite, True)
                norms.append(metrics["grad_norm"] if finite else math.nan)
            difference = abs(norms[1] / norms[0] - 1)
            yield at_most(f"{name}: change of the gradient norm by checkpointing", difference, CHECKPOINTING_LIMIT)


def settings(tokens: int, checkpointing: bool) -> SimpleNamespace:
    """The options that Actor and the plan read, as Config, which needs pydantic, has them: GRPO in bfloat16."""
    return SimpleNamespace(
        model=SimpleNamespace(dtype="bfloat16", head_dtype="auto", gradient_checkpointing=checkpointing, compile=False),
        lora=SimpleNamespace(rank=None, targets="all-linear"),
        data=SimpleNamespace(max_prompt_length=PROMPT),
        rollout=SimpleNamespace(temperature=1.0, max_completion_length=1, num_generations=2),
        schedule=SimpleNamespace(n_shape="constant", k_shape="constant", n_init=2, n_final=2, k_init=1.0, k_final=1.0),
        selector=SimpleNamespace(tokens="advantage_entropy"),
        loss=SimpleNamespace(
            kind="grpo", beta=0.0, reference=None, normalizer="selected", epsilon=0.2, epsilon_high=None
        ),
        optim=SimpleNamespace(
            learning_rate=1e-6,
            betas=(0.9, 0.999),
            weight_decay=0.0,
            max_grad_norm=1.0,
            num_minibatches=1,
            num_iterations=1,
        ),
        train=SimpleNamespace(max_tokens_per_microbatch=tokens, prompts_per_step=tokens, deterministic=False),
    )


def predict(shape: ModelShape, config: SimpleNamespace, device: str) -> int:
    """Bytes of the peak of an update in one process, without an engine, according to the plan."""
    parts = memory(config, shape, Placement(), CHUNK_ELEMENTS[device])
    return peaks(parts, engine=0, engine_sleeps=True, zero3=False)["update"]


def room(device: str) -> float:
    """Bytes that the prediction may have."""
    gc.collect()
    if device != "cuda":
        return math.inf
    torch.cuda.empty_cache()
    return FITS * torch.cuda.mem_get_info()[0]


def update_peak(folder: str, config: SimpleNamespace, device: str) -> tuple[int, dict[str, float]]:
    """Bytes in use at the peak of the second update, which has optimizer states, and statistics of the first one."""
    actor = Actor(folder, config, Accelerator(mixed_precision="bf16"), LENGTH[device])
    batch = make_batch(config.train.max_tokens_per_microbatch, LENGTH[device], actor.lm.config.vocab_size)

    def update() -> dict[str, float]:
        return actor.update(batch, 1e-6, torch.Generator().manual_seed(0))[0]

    first = update()
    tensors = [*actor.policy.parameters()]
    tensors += [x for state in actor.optimizer.state.values() for x in state.values() if isinstance(x, Tensor)]
    return sum(x.nbytes for x in tensors) + peak_above(update, device), first


def make_batch(tokens: int, length: int, vocabulary: int) -> Batch:
    """Random sequences of `length` tokens, in MICRO_BATCHES micro-batches of `tokens`; all tokens are selected."""
    g = torch.Generator().manual_seed(0)
    count, response = MICRO_BATCHES * tokens // length, length - PROMPT + 1  # the last token is not run
    ids = torch.randint(1, vocabulary, (count, PROMPT + response), generator=g).tolist()
    total = count * response
    advantages = torch.randn(count, generator=g).repeat_interleave(response)
    batch = Batch(
        [x[:PROMPT] for x in ids], [x[PROMPT:] for x in ids], advantages, torch.zeros(total), torch.ones(total)
    )
    batch.selected = torch.ones(total, dtype=torch.bool)
    return batch


def peak_above(function: Callable[[], object], device: str) -> int:
    """The largest number of bytes that a call has allocated at the same time."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        function()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "[memory]"]
    used = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        used += event["args"]["Bytes"]
        peak = max(peak, used)
    return peak
