"""Prepare the environment of vLLM, load a model into it, and report in one sentence why it cannot."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from d3s.common import UserError, require_gpu
from d3s.config.schema import RolloutConfig
from d3s.rollout.engine import OTHER_ENGINE
from d3s.rollout.entropy_recorder import RUNNER_ENVIRONMENT, runner_problem

if TYPE_CHECKING:
    from vllm import LLM

GIVEN = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}  # vLLM sets more of them


def vllm_environment() -> dict[str, str]:
    """Return the environment variables that vLLM reads at import, and that vLLM servers and benchmarks share."""
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # an engine in this process starts in 2 s instead of 20
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else two ranks can be pinned to the same core
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        **RUNNER_ENVIRONMENT,
    }
    if not torch.cuda.is_available():
        settings["TORCHDYNAMO_DISABLE"] = "1"  # the first call would compile two tiny functions for 9 s
    return settings


def prepare_vllm_environment() -> None:
    """Set the environment of vLLM in this process, without overriding what is set. Call before importing vllm."""
    # read by the external launcher backend; `accelerate launch` sets them
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in (vllm_environment() | launcher).items():
        os.environ.setdefault(name, value)
    if "MASTER_PORT" not in os.environ:
        os.environ["MASTER_PORT"] = str(free_port("127.0.0.1"))


def free_port(address: str) -> int:
    """A port of this machine's `address` on which no process listens."""
    with socket.socket() as free:
        free.bind((address, 0))
        return free.getsockname()[1]


def batch_invariant() -> bool:
    """Whether VLLM_BATCH_INVARIANT asks for kernels with which a response does not depend on its batch."""
    return os.environ.get("VLLM_BATCH_INVARIANT", "0") != "0"


# On compute capability 8.x vLLM replaces linear and matmul for all of the process (enable_batch_invariant_mode in
# vllm/model_executor/determinism). PyTorch has no backward pass for replaced ones, so an actor could not train there.
# On 9.0 and higher it configures cuBLAS instead. On the CPU its Triton kernels fail at the first prompt.
def check_batch_invariance(config: RolloutConfig, trains: bool) -> None:
    """Raise UserError if VLLM_BATCH_INVARIANT=1 asks for kernels that vLLM in this process cannot use.

    Args:
        trains: an actor shares the process.
    """
    if not batch_invariant() or config.engine != "vllm":
        return
    if config.seeds == "engine":
        raise UserError("VLLM_BATCH_INVARIANT: requires rollout.seeds: request, else a response depends on its batch")
    if config.servers:
        return
    if not torch.cuda.is_available():
        raise UserError("VLLM_BATCH_INVARIANT: got a CPU, expected a GPU, as vLLM's kernels are; unset it")
    major, minor = torch.cuda.get_device_capability()
    least = 9 if trains else 8
    if major < least:
        expected = f"expected {least}.0 or higher" + " next to an actor" * trains
        remedy = "unset it" + ", or set it for rollout.servers" * (major == 8)
        raise UserError(f"VLLM_BATCH_INVARIANT: got a GPU of compute capability {major}.{minor}, {expected}; {remedy}")


def remove_stale_shared_memory(tensor_parallel_size: int) -> None:
    """Remove this rank's shared memory of an earlier run. Call before `load_vllm` on the CPU.

    vLLM's CPU ranks share memory under names that are the same in every run, leave it behind when they are killed, and
    refuse to start if it exists.
    """
    rank, size = int(os.environ["RANK"]), tensor_parallel_size
    first = rank - rank % size
    ranks = "-".join(map(str, range(first, first + size)))
    Path(f"/dev/shm/-tp:0-[{ranks}]-cpushm_{rank % size}").unlink(missing_ok=True)


# vLLM runs architectures that it does not implement by the classes of transformers (its Base). For torch.compile it
# gives the trunk's class another base, __init__ and __call__, which need the engine's configuration: an actor of that
# class could not be built. These go into a subclass for the engine's model, and the class becomes what it was.
@contextmanager
def own_transformers_classes() -> Iterator[Callable[["LLM"], None]]:
    """Undo vLLM's changes to classes of transformers at the end. Yields what keeps them for an engine's model."""
    from vllm.model_executor.models.transformers.base import Base

    decorate, before, kept = Base._decorate_cls_for_torch_compile, {}, []

    def recorded(self: Any, cls: type, *arguments: Any, **options: Any) -> None:
        before.setdefault(cls, (cls.__bases__, dict(vars(cls))))
        decorate(self, cls, *arguments, **options)

    def give_own(llm: "LLM") -> None:
        if before:
            kept.extend(llm.collective_rpc(lambda worker: list(worker.model_runner.get_model().modules()))[0])

    Base._decorate_cls_for_torch_compile = recorded
    try:
        yield give_own
    finally:
        Base._decorate_cls_for_torch_compile = decorate
        for cls, (bases, members) in before.items():
            changed = {name: value for name, value in vars(cls).items() if members.get(name) is not value}
            added = [base for base in cls.__bases__ if base not in bases]
            for name in changed.keys() - {"__doc__"}:
                setattr(cls, name, members[name]) if name in members else delattr(cls, name)
            cls.__bases__ = bases
            engine_class = type(cls.__name__, (cls, *added), changed)
            for module in kept:
                if type(module) is cls:
                    module.__class__ = engine_class


def load_vllm(model_path: str, settings: dict[str, Any]) -> "LLM":
    """Load a model with `settings` and those that every run needs. Raises UserError for a model that vLLM refuses.

    So it does if vLLM's build needs a GPU and torch can use none.
    """
    require_gpu(optional=False)
    from vllm import LLM

    rng_state = torch.get_rng_state()  # LLM() reseeds torch's global generator
    try:
        with own_transformers_classes() as give_own:
            llm = LLM(
                model_path,
                load_format="safetensors",
                trust_remote_code=False,
                distributed_executor_backend="external_launcher",  # the only one that puts each rank on its own GPU
                use_tqdm_on_load=False,
                logprobs_mode="processed_logprobs",  # at the sampling temperature, as the actor computes them
                **settings,
            )
            give_own(llm)
    except Exception as error:
        if "KV cache" in str(error) or "cache blocks" in str(error):
            option = "kv_cache_gb" if "kv_cache_memory_bytes" in settings else "gpu_memory_utilization"
            problem = f"the KV cache cannot hold one sequence of {settings['max_model_len']} tokens"
            remedy = "raise it, or lower rollout.max_completion_length (eval.py: --max-tokens)"
            raise UserError(f"rollout.{option}: {problem}; {remedy}") from error
        raise UserError(vllm_problem(model_path, error)) from error
    finally:
        torch.set_rng_state(rng_state)
    if not torch.cuda.is_available():
        _check_head_size(model_path, llm.llm_engine.model_config)
    return llm


def vllm_problem(model_path: str, error: Exception) -> str:
    """Describe an exception of vLLM: memory, a port or shared memory in use, a runner or model that it refuses."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if "EntropyRecorder" in reason or "Model Runner V" in reason:
        return runner_problem(reason)
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        port = os.environ.get("MASTER_PORT")
        return f"MASTER_PORT: got {port}, expected a free port, but another process listens on it; unset it"
    if isinstance(error, torch.OutOfMemoryError) or "Free memory on device" in reason:
        problem = f"too little free GPU memory ({reason})"
        return f"rollout.gpu_memory_utilization: {problem}; lower it, or end the other processes on this GPU"
    if "SHMManager" in reason:
        problem = "another run on this machine uses the shared memory of vLLM's CPU ranks"
        return f"rollout.tensor_parallel_size: {problem}; run one at a time"
    defaults = vllm_environment()
    changed = [name for name, value in GIVEN.items() if value != defaults.get(name)]
    unset = f", or unset {', '.join(changed)} if that is at fault" if changed else ""
    return f"{model_path}: vLLM cannot load this model ({reason}); {OTHER_ENGINE}{unset}"


def _check_head_size(model_path: str, config: Any) -> None:
    """Raise UserError for attention heads that vLLM's CPU kernels would refuse at the first prompt."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size, supported = config.get_head_size(), CPUAttentionBackend.get_supported_head_sizes()
    if not config.use_mla and size not in supported:
        problem = f"attention heads have size {size}, vLLM on the CPU supports {', '.join(map(str, supported))}"
        raise UserError(f"{model_path}: {problem}; {OTHER_ENGINE}")
