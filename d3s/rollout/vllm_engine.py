"""Rollouts from a vLLM engine in this process, with the exact entropy of every sampled token."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from d3s.cgroups import CPU_CACHE
from d3s.common import UserError
from d3s.config.schema import RolloutConfig
from d3s.groups import Rollout
from d3s.pretrained import as_saved, attention_only, meta_model
from d3s.rollout.engine import Engine, Key, Progress, Report, SamplingParams, weight_checksums
from d3s.rollout.entropy_recorder import entropy_recorder, runner_problem
from d3s.rollout.vllm_setup import (
    check_batch_invariance,
    load_vllm,
    prepare_vllm_environment,
    remove_stale_shared_memory,
    vllm_problem,
)

PREFILL_TOKENS = 4096  # tokens per step on the CPU, if no prompt and no batch is longer


class VllmEngine(Engine):
    """vLLM in this process; with tensor parallelism, this rank's part of an engine that several ranks share.

    The attributes without an underscore may be read and set between calls.
    """

    def __init__(
        self, model_path: str, config: RolloutConfig, *, seed: int, head_dtype: str = "auto", **sizes: Any
    ) -> None:
        """Load the model. Raises UserError if vLLM refuses it or finds too little memory.

        Args:
            sizes: dtype and max_model_len, see Engine.
        """
        check_batch_invariance(config, trains=False)
        prepare_vllm_environment()
        on_gpu = torch.cuda.is_available()
        self.recorder = entropy_recorder()
        settings = sizes | {
            "seed": seed,
            "max_num_seqs": config.max_num_seqs,
            "tensor_parallel_size": config.tensor_parallel_size,
            "enforce_eager": config.enforce_eager or not on_gpu,
            "logits_processors": [self.recorder],
            "skip_tokenizer_init": not config.stop,
            "hf_overrides": {} if head_dtype == "auto" else {"head_dtype": head_dtype},
        }
        if config.kv_cache_gb:
            settings["kv_cache_memory_bytes"] = int(config.kv_cache_gb * 2**30)
        if on_gpu:
            settings |= {"gpu_memory_utilization": config.gpu_memory_utilization, "enable_sleep_mode": config.sleep}
        else:
            # A prompt that exceeds the rest of a step's token budget waits for the next step. Split in chunks, it would
            # have vLLM rewind the generator of a seeded request, which only CUDA generators support.
            budget = max(PREFILL_TOKENS, sizes["max_model_len"], config.max_num_seqs)
            settings |= {"block_size": 32, "enable_chunked_prefill": False, "max_num_batched_tokens": budget}
            settings.setdefault("kv_cache_memory_bytes", CPU_CACHE)
            if not attention_only(meta_model(model_path)):  # vLLM caches prefixes of recurrent layers in chunks alone
                settings["enable_prefix_caching"] = False
            if config.tensor_parallel_size > 1:
                remove_stale_shared_memory(config.tensor_parallel_size)
        self.llm = load_vllm(model_path, settings)
        if not self.recorder.loaded:
            raise UserError(runner_problem("the loaded runner does not use its logits processors"))
        super().__init__(model_path, config, **sizes)
        self.can_sleep = on_gpu and config.sleep
        self.one_seed_per_batch = config.seeds == "engine"
        self._ranks = config.tensor_parallel_size
        cache = self.llm.llm_engine.vllm_config.cache_config
        self.kv_cache_tokens = cache.num_gpu_blocks * cache.block_size

    def sample(
        self, rollouts: list[Rollout], params: SamplingParams, seeds: list[int], entropies: bool, on_finished: Report
    ) -> None:
        """See Engine.sample. Raises RuntimeError if the engine is asleep."""
        with self.sampling(seeds):
            for request, (rollout, seed) in enumerate(zip(rollouts, seeds)):
                self.submit(request, rollout.prompt_ids, params, seed, entropies=entropies)
            while self.busy():
                for news in self.step():
                    rollout = rollouts[news.request]
                    rollout.response_ids += news.token_ids
                    rollout.logprobs += news.logprobs
                    rollout.finished = news.reason == "stop"
                    if news.reason:
                        on_finished(rollout)
        if entropies:
            self.recorder.write_to(dict(enumerate(rollouts)))

    # --- the parts of a strategy: requests are numbered by the caller ------------------------------------------------

    @contextmanager
    def sampling(self, seeds: list[int]) -> Iterator[None]:
        """Enclose the requests of one strategy call. Raises RuntimeError if asleep: vLLM would step forever.

        With rollout.seeds: engine, seed torch's global generator with the first seed, and restore it afterwards. The
        prefix cache is emptied first because its contents would change which responses are sampled together.
        """
        if self.llm.llm_engine.is_sleeping():
            raise RuntimeError("the engine is asleep; call wake('weights'), load_weights and wake('kv_cache') first")
        self.recorder.steps.clear()
        if not (self.one_seed_per_batch and seeds):
            yield
            return
        self._clear_prefix_cache()
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
            torch.manual_seed(seeds[0])
            yield

    def submit(
        self,
        request: int,
        prompt: list[int],
        params: SamplingParams,
        seed: int,
        *,
        entropies: bool = True,
        start: int = 0,
        streamed: bool = False,
        candidates: int = 0,
    ) -> None:
        """Add a request to the batch; it starts with the next step.

        Args:
            request: its number in `Progress` and in the entropy records, unique within `sampling`.
            start: position in the response of its first token, where the prompt contains the tokens before it.
            streamed: report every token at once; default: report the response when it has ended.
            candidates: report the most probable tokens of each position, this many.
        """
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        recorded = entropies and params.temperature > 0  # vLLM calls no logits processor for greedy requests
        settings = VllmSamplingParams(
            **asdict(params),
            seed=None if self.one_seed_per_batch else seed,
            logprobs=candidates,
            flat_logprobs=True,
            stop_token_ids=self.stop_token_ids,
            stop=self.stop,
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            ignore_eos=True,  # that of vLLM's tokenizer; stop_token_ids end a response
            detokenize=bool(self.stop),
            output_kind=RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY,
            extra_args={"request": request, "start": start} if recorded else None,
        )
        self.llm.llm_engine.add_request(str(request), {"prompt_token_ids": prompt}, settings)

    def step(self) -> list[Progress]:
        """Advance all requests by a token; return the news of those that report any."""
        news = []
        for output in self.llm.llm_engine.step():
            completion = output.outputs[0]
            tokens, values = completion.logprobs.token_ids, completion.logprobs.logprobs
            # vLLM lists the sampled token of each position, then its candidates
            size = max(1, len(values) // max(1, len(completion.token_ids)))
            pairs = list(zip(tokens, values))
            candidates = [pairs[i + 1 : i + size] for i in range(0, len(pairs), size)] if size > 1 else []
            request, reason = int(output.request_id), completion.finish_reason
            news.append(Progress(request, list(completion.token_ids), values[::size], candidates, reason))
        return news

    def abort(self, request: int) -> None:
        """Remove a request from the batch; it reports nothing more."""
        self.llm.llm_engine.abort_request([str(request)])

    def busy(self) -> bool:
        """Whether any request has neither ended nor been aborted."""
        return self.llm.llm_engine.has_unfinished_requests()

    def take_preemptions(self) -> int:
        """See Engine.take_preemptions."""
        count, self.recorder.preemptions = self.recorder.preemptions, 0
        return count

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """See Engine.load_weights."""
        # a model with a tied head may have none of its own, as Gemma 2
        has_head = self.llm.collective_rpc(lambda worker: hasattr(worker.model_runner.get_model(), "lm_head"))[0]
        weights = ((n, w) for n, w in as_saved(self.path, weights) if has_head or not n.startswith("lm_head."))
        try:
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        except UserError:
            raise
        except Exception as error:  # vLLM can build some architectures but not reload them
            raise UserError(vllm_problem(self.path, error)) from error
        self._clear_prefix_cache()  # else cached prefixes of the old weights are silently used

    def _clear_prefix_cache(self) -> None:
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not clear its prefix cache: a request still holds blocks of it")

    def checksums(self) -> dict[Key, int]:
        """See Engine.checksums. With tensor parallelism, only the first rank includes its rows of the embeddings."""
        first = not torch.distributed.is_initialized() or torch.distributed.get_rank() % self._ranks == 0
        named = self.llm.collective_rpc(lambda worker: list(worker.model_runner.get_model().named_parameters()))[0]
        return weight_checksums(((name, p) for name, p in named if first or p.ndim == 1), self.dtype)

    def sleep(self) -> None:
        """See Engine.sleep."""
        if self.can_sleep:
            self.llm.sleep(level=2)

    def wake(self, tag: str) -> None:
        """See Engine.wake."""
        if self.can_sleep:
            self.llm.wake_up(tags=[tag])
