"""A step's rollouts: one response with its outcome, and the groups with the tables of all ranks."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

TABLES = ("rewards", "verdicts", "lengths", "finished", "entropies")
MAX_ROUNDS = 3  # of dynamic sampling beyond the first: a data set that has become easy must not stop the run


Span = tuple[int, int, float]  # start and end as characters of the response, and the value of this part


@dataclass(frozen=True)
class Outcome:
    """The reward of a response, and what it consists of."""

    reward: float  # the weighted sum of the functions' values, plus the length term
    verdict: float  # the value of the first function
    parts: dict[str, float]  # with several functions the value of each by name; NAME/PART of each Scored.parts
    spans: dict[str, list[Span]]  # rewards of parts of the text by function, if it has any, times its weight
    values: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # the Scored of each function


@dataclass
class Rollout:
    """One sampled response."""

    problem: int  # number of its problem, of the caller of the engine; in training an index into the prompts
    prompt_ids: list[int]
    response_ids: list[int]  # as sampled, never re-tokenized; includes the end-of-sequence token
    logprobs: list[float]  # the engine's log-probability of each response token at the sampling temperature
    # nats, of the full vocabulary before top-p, at each response token; [] if not requested, or if the response is
    # greedy (temperature 0), whose log-probabilities are those of temperature 1
    entropies: list[float]
    finished: bool  # False: cut at the length limit
    sample: int = 0  # index among its problem's n responses
    counts: dict[str, int] = field(default_factory=dict)  # of a strategy, see d3s/rollout/strategy.py
    # of the collector: the row in the step's tables, the text as rewards see it, the tokens that have it, the call that
    # waits for the outcome, and the outcome
    row: int = -1
    text: str = ""
    scored_ids: list[int] | None = field(default=None, repr=False, compare=False)
    scoring: Callable[..., Outcome] | None = field(default=None, repr=False, compare=False)
    outcome: Outcome | None = None


@dataclass
class RolloutGroups:
    """A step's rollouts, B groups of G: those of this rank in full, and the tables [B, G] of all ranks.

    Example: with 2 problems, G = 4 and two ranks, each rank holds 4 rollouts, and both hold rewards [2, 4]. The columns
    are the samples.
    """

    problems: list[int]  # [B] the problem of each group, an index into the prompts
    rollouts: list[Rollout]  # of this rank
    rewards: Tensor  # [B, G] float32
    verdicts: Tensor  # [B, G] float32, the values of the first reward function
    lengths: Tensor  # [B, G] response tokens
    finished: Tensor  # [B, G] bool, False where the response was cut at the length limit
    entropies: Tensor  # [B, G] nats, mean over the response; NaN where the engine returns no entropies
    parts: dict[str, Tensor] = field(default_factory=dict)  # [B, G] float32 by name: see Outcome; NaN: absent
    dense: bool = False  # whether the reward of a rollout of any rank has spans
    counts: Counter[str] = field(default_factory=Counter)  # of all groups sampled, also those that were replaced
    waited: float = 0.0  # seconds spent waiting for rewards after generation finished

    @property
    def generated(self) -> int:
        """Tokens sampled, including groups that dynamic sampling replaced."""
        return self.counts["decoded"]

    def has_signal(self) -> Tensor:
        """Whether the verdicts of a group differ, bool [B]; for right/wrong verdicts: 0 < right answers < G."""
        return (self.verdicts != self.verdicts[:, :1]).any(1)

    def of_rank(self, kept: Tensor) -> list[Rollout]:
        """This rank's rollouts among the kept ones (bool [B, G]), in the order in which gather_batch reads them."""
        return [r for r in self.rollouts if kept[r.row, r.sample]]

    def take(self, rows: list[int]) -> "RolloutGroups":
        """The groups in these rows, in this order."""
        new_row = {row: i for i, row in enumerate(rows)}
        kept = [r for r in self.rollouts if r.row in new_row]
        for r in kept:
            r.row = new_row[r.row]
        tables = {name: getattr(self, name)[rows] for name in TABLES}
        parts = {name: table[rows] for name, table in self.parts.items()}
        return replace(self, problems=[self.problems[row] for row in rows], rollouts=kept, parts=parts, **tables)

    def __add__(self, other: "RolloutGroups") -> "RolloutGroups":
        for r in other.rollouts:
            r.row += len(self.problems)
        tables = {name: torch.cat([getattr(self, name), getattr(other, name)]) for name in TABLES}
        parts = {
            name: torch.cat([g.parts.get(name, torch.full_like(g.rewards, math.nan)) for g in (self, other)])
            for name in self.parts | other.parts
        }
        return RolloutGroups(
            self.problems + other.problems,
            self.rollouts + other.rollouts,
            **tables,
            parts=parts,
            dense=self.dense or other.dense,
            counts=add_counts((self.counts, other.counts)),
            waited=self.waited + other.waited,
        )


def in_groups(rollouts: list[Rollout], n: int) -> list[list[Rollout]]:
    """Rollouts in the order of Engine.generate's result as a list of n for each problem."""
    return [rollouts[i : i + n] for i in range(0, len(rollouts), n)]


def add_counts(counters: Iterable[Counter[str]]) -> Counter[str]:
    """The sum by name, zeros included."""
    total: Counter[str] = Counter()
    for counts in counters:
        total.update(counts)
    return total


def resample(groups: RolloutGroups, collect: Callable[[int], RolloutGroups]) -> RolloutGroups:
    """Dynamic sampling: collect as many groups again until enough have a signal, and return those first."""
    count = len(groups.problems)
    for _ in range(MAX_ROUNDS):
        if int(groups.has_signal().sum()) >= count:
            break
        groups = groups + collect(count)
    signal_first = (~groups.has_signal()).int().argsort(stable=True)
    return groups.take(signal_first[:count].tolist())
