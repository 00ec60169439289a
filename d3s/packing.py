"""Pack ragged sequences into micro-batches without padding, and balance them over ranks. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

MICROBATCH = 16_384  # tokens, unless train.max_tokens_per_microbatch has another number


@dataclass
class Batch:
    """The kept rollouts of a step. Per-token tensors are flat [T]: the response tokens of all rollouts, concatenated.

    Example: responses of 2 and 3 tokens give T = 5, sequence_ids [0, 0, 1, 1, 1] and starts [0, 2, 5].
    """

    prompts: list[Sequence[int] | np.ndarray]  # token ids of each rollout
    responses: list[Sequence[int] | np.ndarray]
    advantages: Tensor  # [T] float32
    rollout_logprobs: Tensor  # [T] the engine's
    entropies: Tensor  # [T] nats, the engine's or the actor's
    old_logprobs: Tensor | None = None  # [T] at the start of the step; None: the update's forward pass defines it
    ref_logprobs: Tensor | None = None  # [T]; like old_logprobs, defined only where the loss reads it
    selected: Tensor | None = None  # [T] bool
    priorities: Tensor | None = None  # [T] by which they were selected, NaN where not trainable; None: by none
    trained: Tensor | None = None  # [T] bool, the selected tokens with a gradient; of Actor.update
    weights: Tensor | None = (
        None  # [T] factors of the tokens' losses: of a token rule, times those of engine_correction
    )
    counts_all: bool = False  # the denominators count unselected tokens too, for which the weighted ones stand
    actor_logprobs: Tensor | None = None  # [T] the actor's at the start of the step, where a pass computed them
    trainable: Tensor | None = None  # [T] bool, False: not sampled by the policy, or trained by another rollout
    sequence_ids: Tensor = field(init=False)  # [T] the rollout of each token
    groups: list[int] = field(init=False)  # [rollouts] equal for rollouts of equal prompts
    starts: list[int] = field(init=False)  # [rollouts + 1] where each rollout's tokens begin

    def __post_init__(self) -> None:
        lengths = np.array([len(r) for r in self.responses], dtype=np.int64)
        # NumPy repeats ten times as fast as torch, and there are ten million tokens in a step of the paper's size
        self.sequence_ids = torch.from_numpy(np.arange(len(lengths)).repeat(lengths))
        self.starts = [0, *lengths.cumsum().tolist()]
        numbers: dict[bytes, int] = {}
        self.groups = [numbers.setdefault(np.asarray(p, np.int64).tobytes(), len(numbers)) for p in self.prompts]
        if self.trainable is None:
            self.trainable = torch.ones(self.starts[-1], dtype=torch.bool)

    def select(self, selected: Tensor, weights: Tensor | None = None, priorities: Tensor | None = None) -> None:
        """Mark the tokens to train, bool [T]. `weights` [T] are inverse inclusion probabilities; the denominators then
        count all tokens."""
        self.selected, self.weights, self.priorities = selected, weights, priorities
        self.counts_all = weights is not None

    def weigh(self, index: Tensor, factors: Tensor) -> None:
        """Multiply the weights of the tokens at these indices [P] by factors [P]."""
        weights = torch.ones_like(self.advantages) if self.weights is None else self.weights
        self.weights = weights.index_copy(0, index, weights[index] * factors)

    def tokens_of(self, sequence: int) -> slice:
        """The slice of the flat tensors that holds one rollout's response tokens."""
        return slice(self.starts[sequence], self.starts[sequence + 1])

    def counts_of(self, chosen: Tensor) -> Tensor:
        """How many tokens of each rollout are chosen (bool [T]), [rollouts]."""
        flags = chosen.numpy()
        return torch.tensor([np.count_nonzero(flags[i:j]) for i, j in pairwise(self.starts)], dtype=torch.long)

    def forward_lengths(self, wanted: Tensor | None = None) -> list[int]:
        """Tokens of each rollout's forward pass: prompt and response without the last token, which predicts nothing.

        As attention is causal, a rollout ends right before its last wanted token (bool [T], by default all tokens);
        without any its length is 0.
        """
        flags = np.ones(self.starts[-1], bool) if wanted is None else wanted.numpy()
        lengths = []
        for i, prompt in enumerate(self.prompts):
            kept = np.flatnonzero(flags[self.tokens_of(i)])
            lengths.append(len(prompt) + int(kept[-1]) if len(kept) else 0)
        return lengths

    def rollouts_with(self, chosen: Tensor) -> Tensor:
        """All tokens of the rollouts that have at least one of the chosen tokens (bool [T]), bool [T]."""
        touched = torch.zeros(len(self.responses), dtype=torch.bool)
        touched[self.sequence_ids[chosen]] = True
        return touched[self.sequence_ids]


def supervised_batch(samples: Sequence[tuple[list[int], list[int]]]) -> Batch:
    """A batch of demonstrations, token ids of prompts and responses, that trains every response token.

    Each token has advantage 1: the on-policy gradient of a policy loss is then that of the cross-entropy.
    """
    total = sum(len(response) for _, response in samples)
    zeros = torch.zeros(total)
    batch = Batch([p for p, _ in samples], [r for _, r in samples], torch.ones(total), zeros, zeros)
    batch.selected = torch.ones(total, dtype=torch.bool)
    return batch


@dataclass
class MicroBatch:
    """S sequences packed into a row of L tokens, without padding, which predicts P response tokens.

    A prompt that several of them have stands in the row once, before the response of the first.
    """

    input_ids: Tensor  # [1, L]
    position_ids: Tensor  # [1, L] from 0 in every sequence
    lengths: list[int]  # [S] tokens of prompt and response
    places: Tensor  # [sum of lengths] the position in the row of each token of each sequence
    rows: Tensor  # [P] the position in the row that predicts each response token
    targets: Tensor  # [P] these response tokens
    flat: Tensor  # [P] indices of these tokens in the Batch's flat tensors


def pack(batch: Batch, sequences: list[int], lengths: list[int]) -> MicroBatch:
    """Pack these rollouts: prompt and response of rollout i up to lengths[i] tokens, see Batch.forward_lengths."""
    ids, positions, places, rows, targets, flat = [], [], [], [], [], []
    offset, begins = 0, {}  # group: where its prompt begins
    for i in sequences:
        prompt, response, length = batch.prompts[i], np.asarray(batch.responses[i]), lengths[i]
        size = len(prompt)
        if batch.groups[i] not in begins:
            begins[batch.groups[i]] = offset
            ids.append(prompt)
            positions.append(np.arange(size))
            offset += size
        of_prompt = np.arange(size) + begins[batch.groups[i]]
        ids.append(response[: length - size])
        positions.append(np.arange(size, length))
        places.append(np.concatenate([of_prompt, np.arange(offset, offset + length - size)]))
        rows.append(places[-1][size - 1 :])  # the last token of the prompt predicts the first one of the response
        targets.append(response[: length - size + 1])
        flat.append(np.arange(batch.starts[i], batch.starts[i] + length - size + 1))
        offset += length - size
    ids, positions, places, rows, targets, flat = (
        torch.from_numpy(np.concatenate(x, dtype=np.int64)) for x in (ids, positions, places, rows, targets, flat)
    )
    return MicroBatch(ids[None], positions[None], [lengths[i] for i in sequences], places, rows, targets, flat)


def packed_tokens(batch: Batch, sequences: list[int], lengths: list[int]) -> int:
    """Tokens of the row in which `pack` puts these rollouts."""
    prompts = {batch.groups[i]: len(batch.prompts[i]) for i in sequences}
    return sum(prompts.values()) + sum(lengths[i] - len(batch.prompts[i]) for i in sequences)


def dummy_micro_batch() -> MicroBatch:
    """One token without a target: a rank without work joins the collectives of the other ranks with it."""
    empty = torch.zeros(0, dtype=torch.long)
    token = torch.zeros(1, 1, dtype=torch.long)
    return MicroBatch(token, token, [1], token[0], empty, empty, empty)


def padded_tokens(sequences: list[int], lengths: list[int]) -> int:
    """Tokens of these rollouts as rows of equal length."""
    return len(sequences) * max(lengths[i] for i in sequences)


def split_by_tokens(
    sequences: list[int], lengths: list[int], max_tokens: int, groups: Sequence[int] | None
) -> list[list[int]]:
    """Divide sequences into micro-batches of at most max_tokens tokens, with those of a group next to each other.

    A shared prompt counts for each of its sequences. A sequence longer than max_tokens gets a micro-batch to itself;
    sequences of length 0 get none.

    Args:
        lengths, groups: of all sequences; groups of similar length are next to each other too. Without groups the
            sequences are rows of equal length, and padding counts.
    """
    order = sorted((i for i in sequences if lengths[i]), key=lambda i: (-lengths[i], i))
    if groups is not None:
        longest: dict[int, int] = {}
        for i in order:
            longest.setdefault(groups[i], lengths[i])
        order.sort(key=lambda i: (-longest[groups[i]], groups[i]))
    parts: list[list[int]] = []
    used = max_tokens
    for i in order:
        size = lengths[parts[-1][0]] if parts and groups is None else lengths[i]
        if used + size > max_tokens:
            parts.append([])
            used, size = 0, lengths[i]
        parts[-1].append(i)
        used += size
    return parts


def balance(sequences: list[int], lengths: list[int], ranks: int) -> list[list[int]]:
    """Distribute sequences over ranks with about equal token counts: longest first, each to the lightest rank."""
    shards: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for i in sorted(sequences, key=lambda i: (-lengths[i], i)):
        lightest = loads.index(min(loads))
        shards[lightest].append(i)
        loads[lightest] += lengths[i]
    return shards


def causal_pairs(lengths: Iterable[int]) -> int:
    """Pairs of a token and one that it attends to, itself or one before it, in sequences of these lengths."""
    return sum(n * (n + 1) // 2 for n in lengths)


def max_over_mean(shards: list[list[int]], lengths: list[int]) -> float:
    """Imbalance of the ranks: tokens of the heaviest rank over the mean; 1 is perfect balance."""
    loads = [sum(lengths[i] for i in shard) for shard in shards]
    return max(loads) * len(loads) / sum(loads) if any(loads) else 1.0
