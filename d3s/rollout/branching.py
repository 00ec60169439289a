"""The branching of a look-ahead tree (LATR, arXiv 2510.24302): which responses start and which are pruned. No engine.

Departures from the paper's code: every response samples its own tokens, where the paper's trunk is greedy, so only a
branch's first token is forced; probabilities are those at the sampling temperature; what a tree lacks when all of its
responses have ended is sampled plainly. Branches have no importance weight; docs/beyond.md has the size of the bias.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import exp

from d3s.config.rollout import RolloutConfig
from d3s.rollout.engine import Progress, Rollout


@dataclass(eq=False)
class Branch:
    """A response that is being sampled, in a tree with the tokens that it shares with its parent."""

    slot: int  # its index in the result
    attempt: int  # how many responses had this slot before and were pruned
    rollout: Rollout
    tree: "Tree | None" = None  # None: a plain response
    parent: "Branch | None" = None
    start: int = 0  # position of its first token, which is forced unless it is a root
    ended: bool = False
    request: int | None = None  # its number at the engine
    candidates: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # by position, of those it sampled

    def extend(self, news: Progress) -> None:
        """Append the tokens of a step."""
        self.candidates |= enumerate(news.candidates, len(self.rollout.response_ids))
        self.rollout.response_ids += news.token_ids
        self.rollout.logprobs += news.logprobs
        self.ended, self.rollout.finished = news.reason is not None, news.reason == "stop"

    def ends_at(self, position: int) -> bool:
        """Whether the last token of the response is at this position."""
        return self.ended and len(self.rollout.response_ids) == position + 1


class Tree:
    """The tree of one prompt: decides, without an engine, which branches start and which are pruned.

    Its clock is the position in the response: a position is decided when every growing response has a token there, in
    the order of the branches. So the tree does not depend on the batch around it.
    """

    def __init__(self, settings: RolloutConfig, empty: dict[int, Rollout], limit: int, stop: list[int]) -> None:
        """Plant the root.

        Args:
            empty: by slot, the responses that the tree provides, without tokens.
            limit: maximum length of a response.
            stop: tokens that end a response.
        """
        self.settings, self.empty, self.limit, self.stop = settings, empty, limit, stop
        self.free, self.attempts = sorted(empty), Counter()
        self.position = 0  # the first one that is not decided
        self.branches: list[Branch] = []  # all that ever grew, parents first
        self.pruned = 0
        root = self._take_slot()
        root.tree, root.rollout.lineage = self, [(0, 0)]
        self.branches.append(root)
        self.growing = [root]

    def advance(self) -> tuple[list[Branch], list[Branch], list[Branch]]:
        """Decide on all positions that every growing response has reached.

        Returns: responses to start, to abort, and finished ones.
        """
        started, pruned, finished = [], [], []
        while self.growing and all(len(b.rollout.response_ids) > self.position for b in self.growing):
            for branch in [b for b in self.growing if self._resembles_parent(b)]:
                pruned.append(branch)
                self.growing.remove(branch)
                self.free = sorted([*self.free, branch.slot])
            for branch in list(self.growing):
                if self.free and (candidate := self._other_candidate(branch)):
                    started.append(self._fork(branch, *candidate))
            finished += [b for b in self.growing if b.ends_at(self.position)]
            self.growing = [b for b in self.growing if not b.ends_at(self.position)]
            self.position += 1
        self.pruned += len(pruned)
        if not self.growing:
            started += [self._take_slot() for _ in list(self.free)]
        return [b for b in started if not b.ended], pruned, finished

    # LATR: the second candidate is a branch iff p_2 > tree_absolute and p_1 - p_2 < tree_relative. Here the response
    # may have sampled the second candidate itself, or a less likely token: then the branch takes the first candidate.
    def _other_candidate(self, branch: Branch) -> tuple[int, float] | None:
        """Return the token to branch to at this position and its log-probability, or None."""
        if self.position not in branch.candidates:
            return None
        (_, first), (_, second) = candidates = branch.candidates[self.position]
        if exp(second) <= self.settings.tree_absolute or exp(first) - exp(second) >= self.settings.tree_relative:
            return None
        sampled = branch.rollout.response_ids[self.position]
        return next(candidate for candidate in candidates if candidate[0] != sampled)

    def _fork(self, parent: Branch, token: int, logprob: float) -> Branch:
        branch, before = self._take_slot(), parent.rollout
        branch.tree, branch.parent, branch.start = self, parent, self.position
        branch.rollout.response_ids = [*before.response_ids[: self.position], token]
        branch.rollout.logprobs = [*before.logprobs[: self.position], logprob]
        branch.rollout.lineage = [*before.lineage, (len(self.branches), self.position)]
        branch.rollout.untrainable = [*range(self.position + 1)]  # the parent's tokens and the forced one
        branch.rollout.finished = token in self.stop
        branch.ended = branch.rollout.finished or self.position + 1 >= self.limit
        self.branches.append(branch)
        self.growing.append(branch)
        return branch

    def _take_slot(self) -> Branch:
        slot = self.free.pop(0)
        attempt = self.attempts[slot]
        self.attempts[slot] += 1
        return Branch(slot, attempt, replace(self.empty[slot], response_ids=[], logprobs=[]))

    # LATR's look-ahead: the normalized edit distance between the tokens since the branching.
    def _resembles_parent(self, branch: Branch) -> bool:
        """Whether tree_lookahead tokens of a branch are now too similar to its parent's. False if either has ended."""
        settings, parent = self.settings, branch.parent
        if branch.start + settings.tree_lookahead - 1 != self.position or parent not in self.growing:
            return False
        if branch.ends_at(self.position) or parent.ends_at(self.position):
            return False
        tokens, others = (b.rollout.response_ids[branch.start : self.position + 1] for b in (branch, parent))
        return edit_distance(tokens, others) < settings.tree_similarity * len(tokens)


def edit_distance(first: list[int], second: list[int]) -> int:
    """Levenshtein's: the fewest insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (a != b)))
    return row[-1]
