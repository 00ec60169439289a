"""Launch the processes of a run: what they need, and their group."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import sysconfig
import time
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs, set_seed

from d3s.common import UserError, require_gpu
from d3s.distributed import no_response, watch_ranks

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config


def start_accelerator(config: Config) -> Accelerator:
    """Connect to the other processes of the launch, over gloo on CPUs, and start the watchdog.

    Raises: UserError if torch can use no GPU, for options that this launch cannot serve, and if
        rollout.tensor_parallel_size does not divide the number of processes.
    """
    require_gpu(optional=True)
    check_requirements(config)
    if config.train.deterministic:  # read by cuBLAS and NCCL when they start
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # no workspaces shared between streams
        os.environ.setdefault("NCCL_ALGO", "Ring")  # one order of adding over the ranks
    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed, which transformers imports
        if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
            import deepspeed

            # else DeepSpeed compiles at start an operator that training never uses
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        else:  # accelerate would not wrap gloo ranks in DDP; with DeepSpeed it would leave out DeepSpeed
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    elif not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        # less fragmentation; vLLM keeps it off its pool; read by torch with the first allocation
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    store = wait_for_ranks(config.train.collective_timeout_s)
    limit = timedelta(seconds=config.train.collective_timeout_s + 60)  # later than the watchdog, which names ranks
    group = InitProcessGroupKwargs(backend="gloo" if on_cpu else "nccl", timeout=limit)
    # DDP would send buffers in forward passes, which a rank that runs out of memory may leave out; they never change
    handlers = [group, DistributedDataParallelKwargs(broadcast_buffers=False)] if "RANK" in os.environ else []
    precision = {"float32": "no", "bfloat16": "bf16"}[config.model.dtype]
    AcceleratorState._reset_state()  # of an earlier run of this process, which may have had another precision
    accelerator = Accelerator(mixed_precision=precision, kwargs_handlers=handlers)
    del store  # the process group has it now
    set_seed(config.train.seed)
    ranks, size = accelerator.num_processes, config.rollout.tensor_parallel_size
    if ranks % size:
        expected = f"a divisor of the number of processes, {ranks}; change it, or launch another number"
        raise UserError(f"rollout.tensor_parallel_size: got {size}, expected {expected}")
    if ranks > 1:
        watch_ranks(config.train.collective_timeout_s, accelerator)
    return accelerator


def wait_for_ranks(limit_s: float) -> torch.distributed.TCPStore | None:
    """Wait until all processes of the launch have started; end this one as the watchdog does if they do not.

    Returns: the launch's store, which on rank 0 may live in this object; None for one process.
    """
    rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if size == 1 or torch.distributed.is_initialized():
        return None
    hosts = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # as torch's env:// decides
    address, deadline = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), time.monotonic() + limit_s
    store, missing = None, [0]  # until its store is there
    while missing and time.monotonic() < deadline:
        if store is None and (hosts or _listens(address)):  # torch's own client prints a stack when it times out
            limit = timedelta(seconds=limit_s)
            store = torch.distributed.TCPStore(*address, size, hosts, limit, wait_for_workers=False, multi_tenant=True)
            store.set(f"started{rank}", "")
        if store:
            missing = [other for other in range(size) if not store.check([f"started{other}"])]
        time.sleep(0.05 if missing else 0)
    if missing:
        print(f"error: {no_response('start', missing, limit_s)} (never started)", file=sys.stderr, flush=True)
        os._exit(1)
    return store


def _listens(address: tuple[str, int]) -> bool:
    with suppress(OSError):
        socket.create_connection(address, timeout=5).close()
        return True
    return False


def check_requirements(config: Config) -> None:
    """Raise UserError for LoRA and compiled layers under DeepSpeed, or without the package or programs they need.

    DeepSpeed shards the weights that each sync of LoRA merges, and gathers weights in hooks within a compiled layer.
    """
    lora, compiled = config.lora.rank, config.model.compile
    for option, value, off in (("lora.rank", lora, "null"), ("model.compile", compiled, "false")):
        if value and os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
            problem = f"got {str(value).lower()} under DeepSpeed, expected one process or DDP"
            remedy = f"launch with configs/accelerate/gpu1.yaml or torchrun, or set {option}: {off}"
            raise UserError(f"{option}: {problem}; {remedy}")
    if lora and find_spec("peft") is None:
        raise UserError("lora.rank: the package peft is not installed; run pip install peft")
    if compiled and (problem := compiler_problem()):
        raise UserError(f"model.compile: {problem}, or set model.compile: false")


def compiler_problem() -> str | None:
    """Why torch.compile would do nothing or fail: what is exported, or not installed, and the remedy."""
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(name) == "1":
            return f"got true with {name}=1, which turns torch.compile off; unset it"
    # as torch/_inductor/cpp_builder.py and, on a GPU, triton/runtime/build.py look for them
    variable, usual = ("CC", ["gcc", "clang"]) if torch.cuda.is_available() else ("CXX", ["g++"])
    compilers = [os.environ[variable]] if variable in os.environ else usual
    if not any(map(shutil.which, compilers)):
        return f"the compiler {' or '.join(compilers)} is not installed; install it, or name another by {variable}"
    header = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    if not header.is_file():
        return f"{header} is missing; install the headers of Python (python3-dev)"
    return None
