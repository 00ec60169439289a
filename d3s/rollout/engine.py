"""The contract of all rollout engines, and the data that goes in and comes out.

A rule of rollout.engine is a class, which may but need not derive from Engine. Its constructor takes, by name, what it
needs of

    model_path      a directory or hub name
    config          the section rollout, see d3s/config/schema.py
    dtype           float32 or bfloat16
    head_dtype      model.head_dtype
    max_model_len   tokens of the longest prompt plus those of the longest response
    stop_token_ids  tokens that end a response and are its last one; config.stop has texts that do
    seed            of the run; each response has its own

and its objects have the methods of Engine below, each with those arguments that it needs:

    sample(rollouts, params, seeds, entropies, on_finished)
    load_weights(weights)
    checksums(), take_preemptions(), sleep(), wake(tag), close()

of which `sample` and `load_weights` are required. An engine that returns no entropies requires selector.entropy_source:
actor. Before a run an engine is tried with a tiny Qwen2 model. One that serves no model but that of the run, such as a
client of a server, raises NotImplementedError there; its first trial is the weight sync before the first step.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from d3s.common import shown
from d3s.groups import Rollout
from d3s.pretrained import stop_token_ids

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import RolloutConfig

OTHER_ENGINE = "use rollout.engine: transformers (eval.py: --engine transformers)"  # where vLLM cannot be used
Key = tuple[str, tuple[int, ...]]  # a parameter's name and the shape of the part that its checksum covers
Report = Callable[[Rollout], None]  # called with each finished rollout
SEED_BITS = 2**32 - 1  # torch's CPU generator (a Mersenne Twister) reads only the low 32 bits of a seed


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How responses are sampled; the same for all requests of a call. Seeds are passed separately."""

    max_tokens: int  # response length limit
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # of evaluations; training samples from the full vocabulary


@dataclass(frozen=True)
class Progress:
    """What an engine step reports of a request of a rollout strategy: the tokens since its last report."""

    request: int
    token_ids: list[int]
    logprobs: list[float]
    candidates: list[list[tuple[int, float]]]  # of each token's position: (token, log-probability), most probable first
    reason: str | None  # why the response has ended: stop or length; None while it goes on


class Engine(ABC):
    """What the trainer and the evaluator call. Token ids in, token ids with log-probabilities and entropies out.

    Each response has its own seed, so on the CPU a response does not depend on the batch, the order, or the rank that
    samples it. On GPUs log-probabilities depend on them by rounding, and so do tokens that are about equally likely.

    An engine defines `sample` and `load_weights`; the other methods do nothing where an engine has nothing to do.
    """

    kv_cache_tokens: int | None = None  # capacity of the KV cache; None if the engine has no fixed one

    def __init__(self, model_path: str, config: RolloutConfig, *, dtype: str, max_model_len: int) -> None:
        self.stop_token_ids, self.stop = stop_token_ids(model_path), config.stop  # tokens and texts that end a response
        self.max_model_len, self.max_num_seqs = max_model_len, config.max_num_seqs
        self.path, self.dtype = model_path, getattr(torch, dtype)

    def generate(
        self,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        *,
        entropies: bool = True,
        on_finished: Report = lambda rollout: None,
        problems: Iterable[int] | None = None,
    ) -> list[Rollout]:
        """Sample n responses to each prompt; return them ordered by prompt, then by sample.

        Args:
            prompts: token ids of each prompt.
            problems: a number for each prompt, which its rollouts carry; by default its index.
            seeds: one per response, in the order of the result, below 2**32 (see rollout_seed).
            entropies: whether the rollouts carry entropies. An engine without them (ServerEngine) returns [].
            on_finished: called in this thread with each rollout as soon as it is finished, during generation. Its
                entropies may be filled in later, before `generate` returns.

        Raises: ValueError for a wrong number of seeds.
        """
        rollouts = empty_rollouts(prompts, n, seeds, problems)
        self.sample(rollouts, params, seeds, entropies and params.temperature > 0, on_finished)
        return rollouts

    @abstractmethod
    def sample(
        self, rollouts: list[Rollout], params: SamplingParams, seeds: list[int], entropies: bool, on_finished: Report
    ) -> None:
        """Fill in these rollouts, which have a prompt only, as `generate` says. `entropies` is False if greedy."""

    @abstractmethod
    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights. Names are those of the model's state dict; tied weights appear under both names.

        The engine copies them, as the next update changes the tensors.

        Raises: UserError for weights that the engine cannot load.
        """

    def checksums(self) -> dict[Key, int]:
        """Return `weight_checksums` of the weights in use; {} if the engine cannot read its weights."""
        return {}

    def take_preemptions(self) -> int:
        """Return how many responses were evicted from the KV cache and recomputed since the last call."""
        return 0

    def sleep(self) -> None:  # noqa: B027 (most engines have nothing to do)
        """Free GPU memory for the actor, if the engine can. The weights are lost: `load_weights` must follow `wake`."""

    def close(self) -> None:  # noqa: B027
        """Release what others hold for this engine. A failed run does not call it."""

    def wake(self, tag: str) -> None:  # noqa: B027
        """Reallocate memory: "weights" before `load_weights`, "kv_cache" after it, so that their peaks do not add."""


# A bijection of the low 32 bits of `index` for a given seed and stream, so no two responses of a stream share a seed:
# MurmurHash3's finalizer (Appleby, 2011) between two keyed xors.
def rollout_seed(seed: int, stream: str, index: int) -> int:
    """Return the 32-bit seed of response `index` of a stream: "train", "eval/NAME" or "probe"."""
    keys = sha256(f"{stream}/{seed}".encode()).digest()
    x = (index & SEED_BITS) ^ int.from_bytes(keys[:4], "big")
    x = (x ^ x >> 16) * 0x85EBCA6B & SEED_BITS
    x = (x ^ x >> 13) * 0xC2B2AE35 & SEED_BITS
    return x ^ x >> 16 ^ int.from_bytes(keys[4:8], "big")


def rollout_seeds(seed: int, stream: str, groups: list[int], n: int) -> list[int]:
    """Return the seeds of n responses to each group, in order. Response j of group i has the index i * n + j."""
    return [rollout_seed(seed, stream, group * n + j) for group in groups for j in range(n)]


def rollout_problem(r: Rollout, params: SamplingParams, entropies: bool, where: str, vocabulary: int) -> str | None:
    """What is wrong with a sampled response, which `where` names; without `entropies` it may have none."""
    length = len(r.response_ids)
    if not 1 <= length <= params.max_tokens:
        return f"{length} tokens {where}, expected 1 to {params.max_tokens} token ids"
    if wrong := [token for token in r.response_ids if type(token) is not int or not 0 <= token < vocabulary]:
        below = f" below {vocabulary}" if vocabulary < sys.maxsize else ""
        return f"the token {shown(wrong[0])} {where}, expected an id{below}"
    for name, values, needed in (("logprobs", r.logprobs, True), ("entropies", r.entropies, entropies)):
        if (needed or values) and len(values) != length:
            return f"{len(values)} {name} {where}, expected {length}"
        if wrong := [value for value in values if not (isinstance(value, float) and isfinite(value))]:
            return f"{shown(wrong[0])} in the {name} {where}, expected finite numbers (float)"
    return None


def empty_rollouts(
    prompts: list[list[int]], n: int, seeds: list[int], problems: Iterable[int] | None = None
) -> list[Rollout]:
    """Return n rollouts for each prompt, without a response, in the order of Engine.generate's result.

    Raises: ValueError for a wrong number of seeds.
    """
    pairs = zip(range(len(prompts)) if problems is None else problems, prompts, strict=True)
    rollouts = [Rollout(problem, ids, [], [], [], False, sample) for problem, ids in pairs for sample in range(n)]
    if len(seeds) != len(rollouts):
        raise ValueError(f"{len(seeds)} seeds for {len(rollouts)} responses")
    return rollouts


def weight_checksums(named: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> dict[Key, int]:
    """Compute checksums of all vectors and of the first 64 rows of the embeddings, rounded to `dtype`.

    Engine and actor agree on them exactly if the engine holds the actor's weights: sums of bit patterns depend neither
    on the order nor on the machine. Other matrices are omitted because engines fuse, split and transpose them.
    """
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[dtype]
    sums = {}
    for name, tensor in named:
        if tensor.ndim == 1 or (tensor.ndim == 2 and ("embed" in name or name.endswith("wte.weight"))):
            part = tensor if tensor.ndim == 1 else tensor[:64]
            sums[name, tuple(part.shape)] = part.detach().to(dtype).contiguous().view(bits).sum(dtype=torch.int64)
    return {key: int(total) for key, total in sums.items()}


def token_entropies(logits: Tensor) -> Tensor:
    """Compute the entropy in nats of each row of `logits` [B, V] in float32; returns [B].

    Rows are processed in chunks that fit a core's cache, or on a GPU a small part of its memory.
    """
    rows = max(1, (2**24 if logits.is_cuda else 2**17) // logits.shape[1])
    entropies = []
    for part in logits.split(rows):
        logprobs = part.float().log_softmax(-1)
        entropies.append(-(logprobs.exp() * logprobs.nan_to_num_(neginf=0.0)).sum(-1))
    return torch.cat(entropies)
