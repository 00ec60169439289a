"""Rollouts from a vLLM engine in this process, with the exact entropy of every sampled token."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import RolloutConfig
from d3s.pretrained import as_saved, stop_token_ids
from d3s.rollout.engine import Key, Rollout, SamplingParams, token_entropies, weight_checksums
from d3s.rollout.vllm_setup import (
    load_vllm,
    prepare_vllm_environment,
    remove_stale_shared_memory,
    unchunked_prefill,
    vllm_problem,
)

if TYPE_CHECKING:
    from vllm import SamplingParams as VllmSamplingParams


class VllmEngine:
    """The Engine contract on vLLM; with tensor parallelism, this rank's part of an engine that several ranks share.

    The attributes without an underscore may be read and set between calls.
    """

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
        """Load the model. Raises UserError if vLLM refuses it or finds too little memory."""
        prepare_vllm_environment()
        on_gpu = torch.cuda.is_available()
        self.recorder = _entropy_recorder()
        settings = {
            "dtype": dtype,
            "seed": seed,
            "max_model_len": max_model_len,
            "max_num_seqs": config.max_num_seqs,
            "tensor_parallel_size": config.tensor_parallel_size,
            "enforce_eager": config.enforce_eager or not on_gpu,
            "logits_processors": [self.recorder],
            "hf_overrides": {} if head_dtype == "auto" else {"head_dtype": head_dtype},
        }
        if config.kv_cache_gb:
            settings["kv_cache_memory_bytes"] = int(config.kv_cache_gb * 2**30)
        if on_gpu:
            settings |= {"gpu_memory_utilization": config.gpu_memory_utilization, "enable_sleep_mode": config.sleep}
        else:
            settings = {"kv_cache_memory_bytes": 2**29, "block_size": 32} | settings
            settings |= unchunked_prefill(config.max_num_seqs, max_model_len)
            if config.tensor_parallel_size > 1:
                remove_stale_shared_memory(config.tensor_parallel_size)
        self.llm = load_vllm(model_path, settings)
        self.stop_token_ids = stop_token_ids(model_path)
        self.can_sleep = on_gpu and config.sleep
        self.one_seed_per_batch = config.seeds == "engine"
        self._path, self._dtype = model_path, getattr(torch, dtype)
        self._ranks = config.tensor_parallel_size
        cache = self.llm.llm_engine.vllm_config.cache_config
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
        """See Engine.generate. Raises RuntimeError if the engine is asleep, as vLLM would step forever."""
        engine = self.llm.llm_engine
        if engine.is_sleeping():
            raise RuntimeError("the engine is asleep; call wake('weights'), load_weights and wake('kv_cache') first")
        entropies = entropies and params.temperature > 0  # vLLM calls no logits processor for greedy requests
        self.recorder.steps.clear()
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
            self.recorder.write_to(rollouts)
        return rollouts

    def _request_settings(self, recorded_as: int | None, seed: int, params: SamplingParams) -> "VllmSamplingParams":
        """Return vLLM's settings of a request. Its entropies are recorded under `recorded_as`, unless that is None."""
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        return VllmSamplingParams(
            **asdict(params),
            seed=None if self.one_seed_per_batch else seed,
            logprobs=0,
            flat_logprobs=True,
            stop_token_ids=self.stop_token_ids,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args=None if recorded_as is None else {"request": recorded_as},
        )

    @contextmanager
    def _seeded(self, seeds: list[int]) -> Iterator[None]:
        """With rollout.seeds: engine, seed torch's global generator with the first seed, and restore it afterwards.

        The prefix cache is emptied first because its contents would change which responses are sampled together.
        """
        if not (self.one_seed_per_batch and seeds):
            yield
            return
        self.llm.reset_prefix_cache()
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
            torch.manual_seed(seeds[0])
            yield

    def take_preemptions(self) -> int:
        """See Engine.take_preemptions."""
        count, self.recorder.preemptions = self.recorder.preemptions, 0
        return count

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """See Engine.load_weights."""
        weights = as_saved(self._path, weights)
        try:
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        except UserError:
            raise
        except Exception as error:  # vLLM can build some architectures but not reload them
            raise UserError(vllm_problem(self._path, error)) from error
        self.llm.reset_prefix_cache()  # else cached prefixes of the old weights are silently used

    def checksums(self) -> dict[Key, int]:
        """See Engine.checksums. With tensor parallelism, only the first rank includes its rows of the embeddings."""
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() % self._ranks == 0
        named = self.llm.collective_rpc(lambda worker: list(worker.model_runner.get_model().named_parameters()))[0]
        return weight_checksums(((name, p) for name, p in named if first or p.ndim == 1), self._dtype)

    def sleep(self) -> None:
        """See Engine.sleep."""
        if self.can_sleep:
            self.llm.sleep(level=2)

    def wake(self, tag: str) -> None:
        """See Engine.wake."""
        if self.can_sleep:
            self.llm.wake_up(tags=[tag])


def _entropy_recorder() -> type:
    """Return a vLLM logits processor that records entropies and changes nothing; a class, as vLLM instantiates it.

    vLLM calls it once per engine step with the float32 logits [requests, V] after temperature, from which the next
    tokens are sampled, so the entropies are exact and cost one softmax. Its class attributes hold the records.
    """
    from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

    class EntropyRecorder(LogitsProcessor):
        steps: ClassVar[list[tuple[list[tuple[int, int]], Tensor]]] = []  # (request, position) of each row, entropies
        preemptions: ClassVar[int] = 0

        def __init__(self, vllm_config, device, is_pin_memory) -> None:
            self.rows: dict[int, tuple[int, list[int]]] = {}  # batch row -> request, its live list of output tokens

        def is_argmax_invariant(self) -> bool:
            return True  # such processors run after temperature

        def update_state(self, batch_update) -> None:
            if batch_update is None:
                return
            for row in batch_update.removed:
                self.rows.pop(row, None)
            for row, params, _, output_ids in batch_update.added:
                self.rows.pop(row, None)
                type(self).preemptions += bool(output_ids)  # a request that is added with output has been evicted
                if params.extra_args:
                    self.rows[row] = (params.extra_args["request"], output_ids)
            for source, target, direction in batch_update.moved:
                moving, displaced = self.rows.pop(source, None), self.rows.pop(target, None)
                if moving is not None:
                    self.rows[target] = moving
                if direction == MoveDirectionality.SWAP and displaced is not None:
                    self.rows[source] = displaced

        def apply(self, logits: Tensor) -> Tensor:
            if self.rows:
                index = sorted(self.rows)  # a new request may take any free row
                rows = logits if len(index) == len(logits) else logits[index]  # copies, and on a GPU waits
                keys = [(request, len(output_ids)) for request, output_ids in map(self.rows.get, index)]
                type(self).steps.append((keys, token_entropies(rows)))
            return logits

        @classmethod
        def write_to(cls, rollouts: list[Rollout]) -> None:
            """Fill in the entropies of all rollouts and clear the records."""
            for rollout in rollouts:
                rollout.entropies = [float("nan")] * len(rollout.response_ids)
            for keys, values in cls.steps:
                for (request, position), value in zip(keys, values.tolist()):
                    if position < len(rollouts[request].entropies):
                        rollouts[request].entropies[position] = value
            cls.steps.clear()

    return EntropyRecorder
