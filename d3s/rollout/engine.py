"""What all engines share: the rollout, checksums of weights, entropies of tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


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


Key = tuple[str, tuple[int, ...]]  # a parameter's name and the shape of the part of it that is summed


def weight_checksums(named: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> dict[Key, int]:
    """Checksums of the vectors and of the first 64 rows of the embeddings among the parameters, rounded to `dtype`.

    The engine and the actor agree about them exactly if the engine has the actor's weights: sums of bit patterns depend
    neither on the order nor on the machine. Other matrices are left out, as engines fuse, split and transpose them.
    """
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[dtype]
    sums = {}
    for name, tensor in named:
        if tensor.ndim == 1 or (tensor.ndim == 2 and ("embed" in name or name.endswith("wte.weight"))):
            part = tensor if tensor.ndim == 1 else tensor[:64]
            sums[name, tuple(part.shape)] = part.detach().to(dtype).contiguous().view(bits).sum(dtype=torch.int64)
    return {key: int(total) for key, total in sums.items()}


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
