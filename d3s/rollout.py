"""Rollouts: prompts in, sampled responses out, from vLLM or, as the portable second engine, from transformers.

Both engines take token ids and return token ids with the log-probability and the full-vocabulary entropy of every
sampled token, at the sampling temperature. Each response has its own seed, so what is sampled does not depend on the
batch, the order, or the rank that it is sampled on.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from d3s.config import RolloutConfig
from d3s.errors import UserError

if TYPE_CHECKING:
    from transformers import DynamicCache

    from d3s.rollout_server import ServerEngine


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


def build_engine(
    model_path: str,
    config: RolloutConfig,
    *,
    dtype: str,
    max_model_len: int,
    seed: int,
    weights_folder: Path | None = None,
) -> "VllmEngine | TransformersEngine | ServerEngine":
    """Loads the model at `model_path` into the engine that the configuration names, or finds the servers that have it.

    `weights_folder` is where servers find new weights; other engines need none.
    """
    if config.servers:
        from d3s.rollout_server import ServerEngine

        return ServerEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, weights_folder=weights_folder)
    if config.tensor_parallel_size > 1 and not torch.cuda.is_available():
        _remove_shared_memory(config.tensor_parallel_size)
    engine = VllmEngine if config.engine == "vllm" else TransformersEngine
    return engine(model_path, config, dtype=dtype, max_model_len=max_model_len, seed=seed)


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
        eos = AutoConfig.from_pretrained(model_path).eos_token_id
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

    def __init__(self, model_path: str, config: RolloutConfig, *, dtype: str, max_model_len: int, seed: int) -> None:
        prepare_vllm_environment()
        from vllm import LLM

        on_gpu = torch.cuda.is_available()
        memory = {"kv_cache_memory_bytes": int(config.kv_cache_gb * 2**30)} if config.kv_cache_gb else {}
        if on_gpu:
            memory |= {"gpu_memory_utilization": config.gpu_memory_utilization, "enable_sleep_mode": config.sleep}
        elif not memory:
            memory = {"kv_cache_memory_bytes": 2**29}
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
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
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


class TransformersEngine:
    """The same contract on plain transformers, for machines without vLLM: slower on long responses."""

    def __init__(self, model_path: str, config: RolloutConfig, *, dtype: str, max_model_len: int, seed: int) -> None:
        from transformers import AutoModelForCausalLM

        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        with _unsharded():
            model = AutoModelForCausalLM.from_pretrained(model_path, dtype=getattr(torch, dtype), use_safetensors=True)
        self._model = model.to(device).eval()
        self._stop = stop_token_ids(model_path)
        self._max_num_seqs = config.max_num_seqs
        self._max_model_len = max_model_len

    @torch.no_grad()
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
        """See VllmEngine.generate."""
        rollouts = [Rollout(index, prompt, [], [], [], False) for index, prompt in enumerate(prompts) for _ in range(n)]
        own_seeds = [seed + i for seed in seeds for i in range(n)]
        for start in range(0, len(rollouts), self._max_num_seqs):
            part = slice(start, start + self._max_num_seqs)
            self._generate_batch(rollouts[part], own_seeds[part], temperature, top_p, top_k, max_tokens)
            for rollout in rollouts[part]:
                if not entropies or temperature == 0:
                    rollout.entropies = []
                if on_finished:
                    on_finished(rollout)
        return rollouts

    def _generate_batch(
        self,
        rollouts: list[Rollout],
        seeds: list[int],
        temperature: float,
        top_p: float,
        top_k: int,
        max_tokens: int,
    ) -> None:
        """Fills in the responses, all decoded together; rows that have ended leave once they are a quarter."""
        device = self._model.device
        chances = torch.stack([_uniforms(seed, max_tokens) for seed in seeds]).to(device)
        room = torch.tensor([self._max_model_len - len(r.prompt_ids) for r in rollouts], device=device)
        stop = torch.tensor(self._stop, device=device)
        cache, mask, logits = self._read_prompts(rollouts)
        rows = torch.arange(len(rollouts), device=device)  # which rollout each row of the batch is
        going = torch.ones_like(rows, dtype=torch.bool)
        steps = []
        for step in range(max_tokens):
            logits = logits.float() / (temperature or 1.0)
            logprobs = _truncate(logits, top_p, top_k).log_softmax(-1)
            tokens = logprobs.argmax(-1) if temperature == 0 else _draw(logprobs, chances[rows, step])
            drawn = logprobs.gather(1, tokens[:, None])[:, 0]
            steps.append([x[going].tolist() for x in (rows, tokens, drawn, token_entropies(logits))])
            going &= ~torch.isin(tokens, stop) & (step + 1 < room[rows])
            left = int(going.sum())
            if left == 0 or step + 1 == max_tokens:
                break
            if left <= 0.75 * len(rows):
                cache.batch_select_indices(going.nonzero()[:, 0])
                rows, tokens, mask, going = rows[going], tokens[going], mask[going], going[going]
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            logits = self._model(
                input_ids=tokens[:, None],
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=cache,
            ).logits[:, -1]
        for row, token, logprob, entropy in (values for step in steps for values in zip(*step)):
            rollouts[row].response_ids.append(token)
            rollouts[row].logprobs.append(logprob)
            rollouts[row].entropies.append(entropy)
        for rollout in rollouts:
            rollout.finished = rollout.response_ids[-1] in self._stop

    def _read_prompts(self, rollouts: list[Rollout]) -> tuple["DynamicCache", Tensor, Tensor]:
        """Each different prompt read once: the cache for all rollouts, their mask [B, P] (prompts end on the right) and
        the logits [B, V] of their first tokens."""
        prompts = {r.prompt_index: r.prompt_ids for r in rollouts}
        places = {index: place for place, index in enumerate(prompts)}
        width = max(map(len, prompts.values()))
        device = self._model.device
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts.values()], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts.values()], device=device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = self._model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        copies = torch.tensor([places[r.prompt_index] for r in rollouts], device=device)
        read.past_key_values.batch_select_indices(copies)
        return read.past_key_values, mask[copies], read.logits[copies, -1]

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Replaces the engine's weights; see VllmEngine.load_weights."""
        own = self._model.state_dict()
        with torch.no_grad():
            for name, tensor in weights:
                own[name].copy_(tensor)

    def sleep(self) -> None:
        """Nothing to free: this engine holds no cache between calls."""

    def wake(self, tag: str) -> None:
        """Nothing to take back."""


@contextmanager
def _unsharded() -> Iterator[None]:
    """Under ZeRO-3 transformers cuts every model that it loads into shares; an engine's is whole on every rank."""
    from transformers.integrations import deepspeed

    sharding = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = sharding


def _uniforms(seed: int, count: int) -> Tensor:
    """`count` numbers in [0, 1) that depend on the seed alone; float64."""
    return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _draw(logprobs: Tensor, chances: Tensor) -> Tensor:
    """One token per row of logprobs [B, V]: the first whose cumulated probability exceeds the row's chance; [B]."""
    cumulated = logprobs.double().exp().cumsum(-1)
    return torch.searchsorted(cumulated, chances[:, None] * cumulated[:, -1:], right=True)[:, 0]


def _truncate(logits: Tensor, top_p: float, top_k: int) -> Tensor:
    """Logits [B, V] with everything outside the top k tokens or the top p of the probability mass at -inf."""
    if top_k > 0:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], float("-inf"))
    if top_p < 1:
        ordered, order = logits.softmax(-1).sort(-1, descending=True)
        outside = ordered.cumsum(-1) - ordered >= top_p
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), float("-inf"))
    return logits
