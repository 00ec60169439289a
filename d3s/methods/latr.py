"""LATR, arXiv 2510.24302: a share of every group branches off other responses where the next token is uncertain.

    rollout: {engine: vllm, strategy: "d3s.methods.latr:LATR"}                      # configs/method/latr.yaml
    rollout: {strategy: {rule: "d3s.methods.latr:LATR", share: 1.0, steps: null}}

A response branches where p_2 > absolute and p_1 - p_2 < relative, for its two most probable next tokens. After
`lookahead` tokens a branch that resembles the response it left is dropped. Branches join vLLM's running batch.

Departures from the paper's code: every response samples its own tokens, where the paper's trunk is greedy, so only a
branch's first token is forced; probabilities are those at the sampling temperature; what a tree lacks when all of its
responses have ended is sampled plainly. Branches have no importance weight, so the gradient is biased: on 40 random
policies of two tokens its cosine to the exact one is 0.97 on average and 0.90 at worst, if all of a group is a tree.

Worth using? Not measured (countdown, 3 seeds, intervals of 1.2 to 3.5 points on either side). A step costs up to 30 %
more. Groups without signal fall from 31 to 26 %; a temperature of 1.2 gives 28 % for 9 % more time.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from itertools import pairwise
from math import exp

import torch
from torch import Tensor

from d3s.config.schema import Config
from d3s.groups import Rollout, in_groups
from d3s.rollout.engine import Progress, SamplingParams, empty_rollouts, rollout_seed
from d3s.rollout.strategy import require
from d3s.rollout.vllm_engine import VllmEngine


@dataclass
class LATR:
    """Responses of a tree beside plain ones."""

    config: InitVar[Config]
    share: float = 0.5  # of a group that its tree provides
    steps: int | None = 200  # of the training that have trees, from the first on; None: all
    absolute: float = 0.15  # probability above which the second most probable token starts a branch
    relative: float = 0.25  # difference of the two probabilities below which it does
    lookahead: int = 20  # tokens after which a branch is compared with the response that it left; 0: never
    similarity: float = 0.4  # edit distance below which it is dropped, as a fraction of these tokens

    def __post_init__(self, config: Config) -> None:
        settings = config.rollout
        requirements = {
            "rollout.engine: vllm without rollout.servers": settings.engine == "vllm" and not settings.servers,
            "rollout.seeds: request, as a branch has a seed of its own": settings.seeds == "request",
            "rollout.stop: [], as a branch does not read the text before it": not settings.stop,
            "reward.shaper: null, as tokens of a tree have their own advantages": config.reward.shaper is None,
        }
        require("d3s.methods.latr:LATR", requirements)
        for name, value in vars(self).items():
            if name in ("steps", "lookahead"):
                if (type(value) is not int or value < 0) and (name, value) != ("steps", None):
                    raise ValueError(f"{name} must be an integer of at least 0, not {value!r}")
            elif type(value) not in (int, float) or not 0 <= value <= 1:
                raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}")

    def generate(
        self,
        engine: VllmEngine,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        step: int,
        on_finished: Callable[[Rollout], None],
        problems: list[int],
    ) -> list[list[Rollout]]:
        """Sample the first responses to each prompt from a tree, each of the others from a tree of its own.

        A pruned branch leaves its place to another one, whose seed is derived from that of the place.
        """
        result = [TreeRollout(*vars(r).values()) for r in empty_rollouts(prompts, n, seeds, problems)]
        capacity = round(self.share * n) if self.steps is None or step < self.steps else 0
        trees: list[Tree] = []
        attempts: Counter[int] = Counter()

        def plant(slots: Sequence[int]) -> Branch:
            limit = min(params.max_tokens, engine.max_model_len - len(result[slots[0]].prompt_ids))
            trees.append(Tree(self, {slot: result[slot] for slot in slots}, limit, engine.stop_token_ids, attempts))
            return trees[-1].branches[0]

        started = [plant(range(first, first + capacity)) for first in range(0, len(result), n) if capacity]
        started += [plant([slot]) for slot in range(len(result)) if slot % n >= capacity]
        requests: list[Branch] = []
        with engine.sampling(seeds):
            while started or engine.busy():
                for branch in started:
                    branch.submit(engine, len(requests), params, seeds[branch.slot])
                    requests.append(branch)
                started = []
                for news in engine.step():
                    requests[news.request].extend(news)
                for tree in [tree for tree in trees if tree.growing]:
                    new, pruned, ended = tree.advance()
                    started += new if tree.growing else [plant([slot]) for slot in tree.free]
                    for branch in pruned:
                        engine.abort(branch.request)
                    for branch in ended:
                        result[branch.slot] = branch.rollout
                        on_finished(branch.rollout)
        engine.recorder.write_to({branch.request: branch.rollout for branch in requests})
        for rollout in result:
            rollout.counts = {"decoded": 0, "branches": 0, "pruned": 0, "forced": len(rollout.lineage[1:])}
        for branch in [branch for tree in trees for branch in tree.branches]:
            rollout, counts, shared = branch.rollout, result[branch.slot].counts, 0
            if branch.parent:  # up to and including its forced token a branch has the entropies of its parent
                shared = branch.start + 1
                rollout.entropies = branch.parent.rollout.entropies[:shared] + rollout.entropies[shared:]
                counts["branches"] += 1
                counts["pruned"] += rollout is not result[branch.slot]
            counts["decoded"] += len(rollout.response_ids) - shared
        return in_groups(result, n)

    def token_advantages(self, rollouts: list["TreeRollout"], advantages: Tensor) -> list[tuple[Tensor, Tensor]]:
        """See prefix_advantages."""
        return prefix_advantages(rollouts, advantages)


@dataclass
class TreeRollout(Rollout):
    """A response of a tree; a plain one has no lineage."""

    # (branch, position of its first token) of the branches that sampled this response's tokens, in order
    lineage: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Branch:
    """A response that is being sampled, with the tokens that it shares with its parent."""

    slot: int  # its index in the result
    attempt: int  # how many responses had this slot before and were pruned
    rollout: TreeRollout  # without a lineage if it is plain
    parent: "Branch | None" = None
    start: int = 0  # position of its first token, which is forced unless it is a root
    ended: bool = False
    request: int | None = None  # its number at the engine
    candidates: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # by position, of those it sampled

    def submit(self, engine: VllmEngine, request: int, params: SamplingParams, seed: int) -> None:
        """Ask the engine for the tokens after those that it has."""
        ids, streamed, self.request = self.rollout.response_ids, bool(self.rollout.lineage), request
        params = replace(params, max_tokens=params.max_tokens - len(ids))
        seed = rollout_seed(seed, "branch", self.attempt) if self.attempt else seed
        options = {"start": len(ids), "streamed": streamed, "candidates": 2 * streamed}
        engine.submit(request, self.rollout.prompt_ids + ids, params, seed, **options)

    def extend(self, news: Progress) -> None:
        """Append the tokens of a step."""
        self.candidates |= enumerate(news.candidates, len(self.rollout.response_ids))
        self.rollout.response_ids += news.token_ids
        self.rollout.logprobs += news.logprobs
        self.ended, self.rollout.finished = news.reason is not None, news.reason == "stop"

    def ends_at(self, position: int) -> bool:
        """Whether the last token of the response is at this position."""
        return self.ended and len(self.rollout.response_ids) == position + 1


@dataclass(eq=False)
class Tree:
    """The tree of one prompt: decides, without an engine, which branches start and which are pruned.

    A position is decided when every growing response has a token there, in the order of the branches, so the tree does
    not depend on the batch around it. Until the first decision it has a root. A tree of one response is a plain one.
    """

    rule: LATR
    empty: dict[int, TreeRollout]  # by slot, the responses that it provides, without tokens
    limit: int  # maximum length of a response
    stop: list[int]  # tokens that end one
    attempts: Counter[int]  # how many responses each slot has had, in all trees
    position: int = 0  # the first one that is not decided
    branches: list[Branch] = field(default_factory=list)  # all that ever grew, parents first
    growing: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = sorted(self.empty)
        self._start([], [], [(0, 0)] if len(self.empty) > 1 else [])

    def advance(self) -> tuple[list[Branch], list[Branch], list[Branch]]:
        """Decide on all positions that every growing response has reached: responses to start, to abort, and ended."""
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
        return [b for b in started if not b.ended], pruned, finished

    # The second candidate is a branch iff p_2 > absolute and p_1 - p_2 < relative. Here the response
    # may have sampled the second candidate itself, or a less likely token: then the branch takes the first candidate.
    def _other_candidate(self, branch: Branch) -> tuple[int, float] | None:
        """Return the token to branch to at this position and its log-probability, or None."""
        (_, first), (_, second) = candidates = branch.candidates[self.position]
        if exp(second) <= self.rule.absolute or exp(first) - exp(second) >= self.rule.relative:
            return None
        sampled = branch.rollout.response_ids[self.position]
        return next(candidate for candidate in candidates if candidate[0] != sampled)

    def _fork(self, parent: Branch, token: int, logprob: float) -> Branch:
        position, of_parent = self.position, parent.rollout
        ids, logprobs = [*of_parent.response_ids[:position], token], [*of_parent.logprobs[:position], logprob]
        branch = self._start(ids, logprobs, [*of_parent.lineage, (len(self.branches), position)])
        branch.parent, branch.start, branch.rollout.finished = parent, position, token in self.stop
        branch.ended = branch.rollout.finished or position + 1 >= self.limit
        return branch

    def _start(self, ids: list[int], logprobs: list[float], lineage: list[tuple[int, int]]) -> Branch:
        slot = self.free.pop(0)
        rollout = replace(self.empty[slot], response_ids=ids, logprobs=logprobs, lineage=lineage)
        branch = Branch(slot, self.attempts[slot], rollout)
        self.attempts[slot] += 1
        self.branches.append(branch)
        self.growing.append(branch)
        return branch

    # The look-ahead: the normalized edit distance between the tokens since the branching.
    def _resembles_parent(self, branch: Branch) -> bool:
        """Whether `lookahead` tokens of a branch are now too similar to its parent's. False if either has ended."""
        if branch.start + self.rule.lookahead - 1 != self.position or branch.parent not in self.growing:
            return False
        both = (branch, branch.parent)
        first, second = (b.rollout.response_ids[branch.start : self.position + 1] for b in both)
        ended = any(b.ends_at(self.position) for b in both)
        return not ended and edit_distance(first, second) < self.rule.similarity * len(first)


def edit_distance(first: list[int], second: list[int]) -> int:
    """Levenshtein's: the fewest insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (a != b)))
    return row[-1]


# A token that k kept responses share was drawn once, and its value is what follows it: A_t = mean of their advantages
# (the Monte Carlo estimate at that node, as in VinePPO, arXiv 2410.01679). Trained k times, it would count k-fold.
def prefix_advantages(rollouts: list[TreeRollout], advantages: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Train every token that a tree sampled once, although several of its responses contain it.

    A shared token is trained in the response that sampled it, or if that was not kept, in the kept response that left
    it last. Forced tokens are trained nowhere.

    Args:
        rollouts: the kept ones, with all kept responses of their groups; a group is the responses of one row.
        advantages: [rollouts].

    Returns: for each rollout its tokens' advantages, float32 [length], and which of them are trained, bool [length].
    """
    own = advantages.tolist()
    values = [torch.full((len(r.response_ids),), value) for r, value in zip(rollouts, own)]
    trainable = [torch.ones(len(r.response_ids), dtype=torch.bool) for r in rollouts]
    sharing: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # (group, branch) -> (end, rollout)
    starts = {}
    for i, r in enumerate(rollouts):
        trainable[i][[start for branch, start in r.lineage if branch]] = False  # forced
        for (branch, start), (_, end) in pairwise([*r.lineage, (-1, len(r.response_ids))]):
            sharing[r.row, branch].append((end, i))
            starts[r.row, branch] = start
    for key, members in sharing.items():
        (longest, trained), *others = sorted(members, key=lambda member: (-member[0], rollouts[member[1]].sample))
        for position in range(starts[key], longest):
            sharers = [own[i] for end, i in members if end > position]
            values[trained][position] = sum(sharers) / len(sharers)
        for end, i in others:
            trainable[i][starts[key] : end] = False
    return list(zip(values, trainable))
