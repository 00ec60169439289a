"""Rollouts: prompts in, sampled responses out, from a vLLM engine in this process.

Every engine (`rollout_server.py` and `rollout_transformers.py` hold the others) takes token ids and returns token ids
with the log-probability and the full-vocabulary entropy of every sampled token, at the sampling temperature. Each
response has its own seed, so what is sampled does not depend on the batch, the order, or the rank it is sampled on.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d3s.config import RolloutConfig
from d3s.errors import UserError
from d3s.loading import as_saved

if TYPE_CHECKING:
    from d3s.rollout_server import ServerEngine
    from d3s.rollout_transformers import TransformersEngine


@dataclass
class Rollout:
    """One sampled response."""

    prompt_index: int  # row of its problem in this step's batch
    prompt_ids: list[int]
    response_ids: list[int]  # as sampled, never re-tokenised; the end-of-sequence token is part of the response
    logprobs: list[float]  # the engine's log-probability of each response token
    entropies: list[float]  # nats, over the full vocabulary, before each response token was drawn; [] if not asked for,
    # or if the response is greedy (temperature 0), for which log-probabilities are those of temperature 1
    finished: bool  # False: cut at the length limit
    sample: int = 0  # which of its prompt's n responses


def build_engine(
    model_path: str,
    config: RolloutConfig,
    *,
    dtype: str,
    max_model_len: int,
    seed: int,
    head_dtype: str = "auto",
    weights_folder: Path | None = None,
) -> "VllmEngine | TransformersEngine | ServerEngine":
    """Loads the model at `model_path` into the engine that the configuration names, or finds the servers that have it.

    `head_dtype` is model.head_dtype. `weights_folder` is where servers find new weights; other engines need none.
    """
    if config.servers:
        from d3s.rollout_server import ServerEngine

        options = {"weights_folder": weights_folder, "head_dtype": head_dtype}
        return ServerEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, **options)
    if config.tensor_parallel_size > 1 and not torch.cuda.is_available():
        _remove_shared_memory(config.tensor_parallel_size)
    if config.engine == "transformers":
        from d3s.rollout_transformers import TransformersEngine

        return TransformersEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, head_dtype=head_dtype)
    return VllmEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, seed=seed, head_dtype=head_dtype)


def _remove_shared_memory(size: int) -> None:
    """What an earlier run has left: vLLM's CPU ranks share memory under names that are the same in every run, leave it
    there when they are killed, and do not start where it is. Each rank makes, and here removes, its own."""
    rank = int(os.environ["RANK"])
    group = range(rank - rank % size, rank - rank % size + size)
    Path(f"/dev/shm/-tp:0-[{'-'.join(map(str, group))}]-cpushm_{rank % size}").unlink(missing_ok=True)


def stop_token_ids(model_path: str) -> list[int]:
    """The model's end-of-sequence tokens, of which some chat models have several."""
    from transformers import AutoConfig, GenerationConfig

    try:
        eos = GenerationConfig.from_pretrained(model_path).eos_token_id
    except OSError:
        eos = None
    if eos is None:
        eos = AutoConfig.from_pretrained(model_path, trust_remote_code=False).eos_token_id
    if eos is None:
        raise UserError(f"{model_path}: neither generation_config.json nor config.json names an eos_token_id")
    return eos if isinstance(eos, list) else [eos]


def token_entropies(logits: Tensor) -> Tensor:
    """Entropy in nats of each row of `logits` [B, V], in float32; [B].

    In chunks that stay in a core's cache, or on a GPU are small against its memory.
    """
    rows = max(1, (2**24 if logits.is_cuda else 2**17) // logits.shape[1])
    entropies = []
    for part in logits.split(rows):
        logprobs = part.float().log_softmax(-1)
        entropies.append(-(logprobs.exp() * logprobs.nan_to_num_(neginf=0.0)).sum(-1))
    return torch.cat(entropies)


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
        from vllm import LLM

        on_gpu = torch.cuda.is_available()
        memory = {"kv_cache_memory_bytes": int(config.kv_cache_gb * 2**30)} if config.kv_cache_gb else {}
        if on_gpu:
            memory |= {"gpu_memory_utilization": config.gpu_memory_utilization, "enable_sleep_mode": config.sleep}
        elif not memory:
            memory = {"kv_cache_memory_bytes": 2**29}
        self._path = model_path
        self._recorder = _entropy_recorder()
        rng_state = torch.get_rng_state()  # LLM() reseeds torch's global generator
        self._llm = LLM(
            model_path,
            dtype=dtype,
            seed=seed,
            max_model_len=max_model_len,
            max_num_seqs=config.max_num_seqs,
            tensor_parallel_size=config.tensor_parallel_size,
            distributed_executor_backend="external_launcher",  # the only one that puts each rank on its own GPU
            enforce_eager=config.enforce_eager or not on_gpu,
            block_size=None if on_gpu else 32,
            skip_tokenizer_init=True,
            use_tqdm_on_load=False,
            logprobs_mode="processed_logprobs",  # at the sampling temperature, as the actor computes them
            logits_processors=[self._recorder],
            hf_overrides={} if head_dtype == "auto" else {"head_dtype": head_dtype},
            **memory,
        )
        torch.set_rng_state(rng_state)
        self._stop = stop_token_ids(model_path)
        self._sleeps = on_gpu and config.sleep

    def generate(
        self,
        prompts: list[list[int]],
        *,
        n: int,
        temperature: float,
        max_tokens: int,
        seeds: list[int],
        top_p: float = 1.0,
        top_k: int = -1,
        entropies: bool = True,
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """n responses to each prompt, ordered by prompt; response i of a prompt is sampled with seed + i.

        Args:
            prompts: token ids of each prompt.
            seeds: one per prompt; space them by at least n.
            entropies: whether the rollouts carry them.
            on_finished: called with each rollout the moment it ends, while the others still generate.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine = self._llm.llm_engine
        entropies = entropies and temperature > 0  # vLLM calls no logits processor for greedy requests
        self._recorder.steps.clear()
        for index, (prompt, seed) in enumerate(zip(prompts, seeds)):
            for i in range(n):
                request = index * n + i
                params = SamplingParams(
                    temperature=temperature,
                    top_p=top_p,
                    top_k=top_k,
                    max_tokens=max_tokens,
                    seed=seed + i,
                    logprobs=0,
                    stop_token_ids=self._stop,
                    detokenize=False,
                    output_kind=RequestOutputKind.FINAL_ONLY,
                    extra_args={"request": request} if entropies else None,
                )
                engine.add_request(str(request), {"prompt_token_ids": prompt}, params)

        rollouts: list[Rollout | None] = [None] * (len(prompts) * n)
        while engine.has_unfinished_requests():
            for output in engine.step():
                request = int(output.request_id)
                rollout = self._rollout(request // n, prompts[request // n], output.outputs[0])
                rollout.sample = request % n
                rollouts[request] = rollout
                if on_finished:
                    on_finished(rollout)
        if entropies:
            self._recorder.write_to(rollouts)
        return rollouts

    @staticmethod
    def _rollout(index: int, prompt: list[int], completion) -> Rollout:
        ids = list(completion.token_ids)
        logprobs = [step[token].logprob for token, step in zip(ids, completion.logprobs)]
        return Rollout(index, prompt, ids, logprobs, [], completion.finish_reason == "stop")

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Replaces the engine's weights; names as in the model's state dict, tied ones under both of their names."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": as_saved(self._path, weights)})
        self._llm.reset_prefix_cache()  # else cached prefixes of the old weights are silently used

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
                index = list(self.rows)
                rows = logits if index == list(range(len(logits))) else logits[index]
                keys = [(request, len(output_ids)) for request, output_ids in self.rows.values()]
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
