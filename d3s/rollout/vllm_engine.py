"""Rollouts: prompts in, sampled responses out, from a vLLM engine in this process.

Every engine (`rollout_server.py` and `rollout_transformers.py` hold the others) takes token ids and returns token ids
with the log-probability and the full-vocabulary entropy of every sampled token, at the sampling temperature. Each
response has its own seed, so on the CPU what is sampled does not depend on the batch, the order, or the rank it is
sampled on; on GPUs log-probabilities depend on them by rounding, and tokens where two are about equally likely.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import RolloutConfig
from d3s.pretrained import as_saved, stop_token_ids
from d3s.rollout.engine import Key, Rollout, SamplingParams, token_entropies, weight_checksums

if TYPE_CHECKING:
    from vllm import LLM
    from vllm import SamplingParams as VllmSamplingParams


OTHER_ENGINE = "use rollout.engine: transformers (eval.py: --engine transformers)"


def prepare_vllm_environment() -> None:
    """What vLLM reads from the environment at import: one process, no compiler on the CPU, no telemetry, no pinning."""
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # an engine in this process starts in 2 s instead of 20
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # custom logits processors, which return the entropies, live in the first
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else two ranks can be pinned to the same core
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "RANK": "0",  # the external launcher reads these; under `accelerate launch` they are set already
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
    }
    if not torch.cuda.is_available():
        settings["TORCHDYNAMO_DISABLE"] = "1"  # the first call would compile two tiny functions for 9 s
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    if "MASTER_PORT" not in os.environ:
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])


def _whole_prefills(max_num_seqs: int, max_model_len: int, budget: int = 4096) -> dict[str, Any]:
    """Settings with which vLLM reads every prompt in one piece: one that exceeds what is left of a step's token budget
    waits for the next step. vLLM rewinds the generator of a seeded request after each piece of a prompt but the last,
    which only CUDA generators can do.
    """
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": max(budget, max_model_len, max_num_seqs)}


def _load_vllm(model_path: str, settings: dict[str, Any]) -> "LLM":
    """vLLM with these settings and those that every run needs. Raises UserError for a model that it refuses."""
    from vllm import LLM

    rng_state = torch.get_rng_state()  # LLM() reseeds torch's global generator
    try:
        return LLM(
            model_path,
            load_format="safetensors",
            trust_remote_code=False,
            distributed_executor_backend="external_launcher",  # the only one that puts each rank on its own GPU
            skip_tokenizer_init=True,
            use_tqdm_on_load=False,
            logprobs_mode="processed_logprobs",  # at the sampling temperature, as the actor computes them
            **settings,
        )
    except Exception as error:
        if "KV cache" in str(error) or "cache blocks" in str(error):
            given = "kv_cache_gb" if "kv_cache_memory_bytes" in settings else "gpu_memory_utilization"
            raise UserError(
                f"rollout.{given}: the KV cache cannot hold one sequence of "
                f"{settings['max_model_len']} tokens, prompt and response; raise it, or lower "
                "rollout.max_completion_length (eval.py: --max-tokens)"
            ) from error
        raise UserError(_cannot_load(model_path, error)) from error
    finally:
        torch.set_rng_state(rng_state)


def _cannot_load(model_path: str, error: Exception) -> str:
    """One sentence for an exception with which vLLM refuses a model, or finds too little memory."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if isinstance(error, torch.OutOfMemoryError) or "Free memory on device" in reason:
        return (
            f"rollout.gpu_memory_utilization: too little free GPU memory ({reason}); lower it, or end the other "
            "processes on this GPU"
        )
    if "SHMManager" in reason:
        return (
            "rollout.tensor_parallel_size: another run on this machine holds the shared memory that vLLM's ranks on a "
            "CPU find by a fixed name; run one at a time"
        )
    return f"{model_path}: vLLM cannot load this model ({reason}); {OTHER_ENGINE}"


def _require_head_size(model_path: str, config: Any) -> None:
    """Raises UserError for attention heads that vLLM's CPU kernels would refuse at the first prompt."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size, sizes = config.get_head_size(), CPUAttentionBackend.get_supported_head_sizes()
    if not config.use_mla and size not in sizes:
        raise UserError(
            f"{model_path}: attention heads have size {size}, vLLM on the CPU supports "
            f"{', '.join(map(str, sizes))}; {OTHER_ENGINE}"
        )


class VllmEngine:
    """A vLLM engine inside this process; under tensor parallelism one share of it per rank."""

    def __init__(
        self,
        model_path: str,
        config: RolloutConfig,
        *,
        dtype: str,
        max_model_len: int,
        seed: int,
        head_dtype: str = "auto",
    ) -> None:
        prepare_vllm_environment()
        on_gpu = torch.cuda.is_available()
        self._recorder = _entropy_recorder()
        settings = {
            "dtype": dtype,
            "seed": seed,
            "max_model_len": max_model_len,
            "max_num_seqs": config.max_num_seqs,
            "tensor_parallel_size": config.tensor_parallel_size,
            "enforce_eager": config.enforce_eager or not on_gpu,
            "logits_processors": [self._recorder],
            "hf_overrides": {} if head_dtype == "auto" else {"head_dtype": head_dtype},
        }
        if config.kv_cache_gb:
            settings["kv_cache_memory_bytes"] = int(config.kv_cache_gb * 2**30)
        if on_gpu:
            settings |= {"gpu_memory_utilization": config.gpu_memory_utilization, "enable_sleep_mode": config.sleep}
        else:
            settings = {"kv_cache_memory_bytes": 2**29, "block_size": 32} | settings
            settings |= _whole_prefills(config.max_num_seqs, max_model_len)
        self._llm = _load_vllm(model_path, settings)
        if not on_gpu:
            _require_head_size(model_path, self._llm.llm_engine.model_config)
        self._stop = stop_token_ids(model_path)
        self._path, self._dtype = model_path, getattr(torch, dtype)
        self._ranks = config.tensor_parallel_size
        self._sleeps = on_gpu and config.sleep
        self._seeded_once = config.seeds == "engine"
        cache = self._llm.llm_engine.vllm_config.cache_config
        self.kv_cache_tokens = cache.num_gpu_blocks * cache.block_size

    def generate(
        self,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        *,
        entropies: bool = True,
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """See Engine.generate. Raises RuntimeError if the engine sleeps, as vLLM would step forever."""
        engine = self._llm.llm_engine
        if engine.is_sleeping():
            raise RuntimeError("the engine sleeps: wake('weights'), load_weights and wake('kv_cache') come first")
        entropies = entropies and params.temperature > 0  # vLLM calls no logits processor for greedy requests
        self._recorder.steps.clear()
        repeated = [prompt for prompt in prompts for _ in range(n)]
        if len(seeds) != len(repeated):
            raise ValueError(f"{len(seeds)} seeds for {len(repeated)} responses")
        for request, (prompt, seed) in enumerate(zip(repeated, seeds)):
            settings = self._request_settings(request if entropies else None, seed, params)
            engine.add_request(str(request), {"prompt_token_ids": prompt}, settings)

        rollouts: list[Rollout | None] = [None] * len(repeated)
        with self._seeded(seeds):
            while engine.has_unfinished_requests():
                for output in engine.step():
                    request, completion = int(output.request_id), output.outputs[0]
                    ids, logprobs = list(completion.token_ids), list(completion.logprobs.logprobs)
                    finished, (index, i) = completion.finish_reason == "stop", divmod(request, n)
                    rollouts[request] = Rollout(index, prompts[index], ids, logprobs, [], finished, i)
                    if on_finished:
                        on_finished(rollouts[request])
        if entropies:
            self._recorder.write_to(rollouts)
        return rollouts

    def _request_settings(self, recorded_as: int | None, seed: int, params: SamplingParams) -> "VllmSamplingParams":
        """vLLM's settings of one request; its entropies are recorded under that number, if any."""
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        return VllmSamplingParams(
            **asdict(params),
            seed=None if self._seeded_once else seed,
            logprobs=0,
            flat_logprobs=True,
            stop_token_ids=self._stop,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args=None if recorded_as is None else {"request": recorded_as},
        )

    @contextmanager
    def _seeded(self, seeds: list[int]) -> Iterator[None]:
        """With rollout.seeds: engine, torch's own generator starts at the first seed and is put back afterwards.

        The prefix cache is emptied, as what it holds would change which responses are sampled together.
        """
        if not (self._seeded_once and seeds):
            yield
            return
        self._llm.reset_prefix_cache()
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
            torch.manual_seed(seeds[0])
            yield

    def take_preemptions(self) -> int:
        """How often a response lost its place in the KV cache and was computed again, since the last call."""
        count, self._recorder.preemptions = self._recorder.preemptions, 0
        return count

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Replaces the engine's weights; names as in the model's state dict, tied ones under both of their names.

        Raises: UserError for weights that vLLM cannot load.
        """
        weights = as_saved(self._path, weights)
        try:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        except UserError:
            raise
        except Exception as error:  # of architectures that vLLM can build but not load a second time
            raise UserError(_cannot_load(self._path, error)) from error
        self._llm.reset_prefix_cache()  # else cached prefixes of the old weights are silently used

    def checksums(self) -> dict[Key, int]:
        """Those of the weights that the engine uses; see `weight_checksums`."""
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() % self._ranks == 0
        named = self._llm.collective_rpc(lambda worker: list(worker.model_runner.get_model().named_parameters()))[0]
        return weight_checksums(((name, p) for name, p in named if first or p.ndim == 1), self._dtype)

    def sleep(self) -> None:
        """Frees the engine's GPU memory for the actor; the weights are discarded, load_weights brings the new ones."""
        if self._sleeps:
            self._llm.sleep(level=2)

    def wake(self, tag: str) -> None:
        """Takes the memory back: first tag "weights", then load_weights, then "kv_cache", so that they never add up."""
        if self._sleeps:
            self._llm.wake_up(tags=[tag])


def _entropy_recorder() -> type:
    """A vLLM logits processor, as a class because vLLM instantiates it, that records entropies and changes nothing.

    It is called once per engine step with the float32 logits [requests, vocabulary] after temperature, from which the
    next tokens are sampled: their entropy is exact and costs one softmax of numbers that are at hand anyway.
    """
    from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

    class EntropyRecorder(LogitsProcessor):
        steps: ClassVar[list[tuple[list[tuple[int, int]], Tensor]]] = []  # (request, position) of rows, their entropies
        preemptions: ClassVar[int] = 0

        def __init__(self, vllm_config, device, is_pin_memory) -> None:
            self.rows: dict[int, tuple[int, list[int]]] = {}  # batch row -> request, its live list of output tokens

        def is_argmax_invariant(self) -> bool:
            return True  # which also places it after the temperature

        def update_state(self, batch_update) -> None:
            if batch_update is None:
                return
            for row in batch_update.removed:
                self.rows.pop(row, None)
            for row, params, _, output_ids in batch_update.added:
                self.rows.pop(row, None)
                type(self).preemptions += bool(output_ids)  # it has been here before
                if params.extra_args:
                    self.rows[row] = (params.extra_args["request"], output_ids)
            for source, target, direction in batch_update.moved:
                moving, there = self.rows.pop(source, None), self.rows.pop(target, None)
                if moving is not None:
                    self.rows[target] = moving
                if direction == MoveDirectionality.SWAP and there is not None:
                    self.rows[source] = there

        def apply(self, logits: Tensor) -> Tensor:
            if self.rows:
                index = sorted(self.rows)  # a new request may have taken any row that was free
                rows = logits if len(index) == len(logits) else logits[index]  # copies, and on a GPU waits
                keys = [(request, len(output_ids)) for request, output_ids in map(self.rows.get, index)]
                type(self).steps.append((keys, token_entropies(rows)))
            return logits

        @classmethod
        def write_to(cls, rollouts: list[Rollout]) -> None:
            """Fills in the entropies of all rollouts and forgets them."""
            for rollout in rollouts:
                rollout.entropies = [float("nan")] * len(rollout.response_ids)
            for keys, values in cls.steps:
                for (request, position), value in zip(keys, values.tolist()):
                    if position < len(rollouts[request].entropies):
                        rollouts[request].entropies[position] = value
            cls.steps.clear()

    return EntropyRecorder
