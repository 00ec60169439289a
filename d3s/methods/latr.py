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
more. Groups without signal fall from 31 to 26 %; a temperature of 1.2 gives 28 % for nothing.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import exp

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.rollout.engine import Progress, Rollout, SamplingParams, sample_places
from d3s.rollout.seeds import rollout_seed
from d3s.rollout.vllm_engine import VllmEngine


class LATR:
    """Responses of a tree beside plain ones."""

    def __init__(
        self,
        config: Config,
        share: float = 0.5,
        steps: int | None = 200,
        absolute: float = 0.15,
        relative: float = 0.25,
        lookahead: int = 20,
        similarity: float = 0.4,
    ) -> None:
        """Check the options.

        Args:
            share: of a group that its tree provides.
            steps: of the training that have trees, from the first on; None: all.
            absolute: probability above which the second most probable token starts a branch.
            relative: difference of the two probabilities below which it does.
            lookahead: tokens after which a branch is compared with the response that it left; 0: never.
            similarity: edit distance below which it is dropped, as a fraction of these tokens.
        """
        settings = config.rollout
        requirements = {
            "rollout.engine: vllm without rollout.servers": settings.engine == "vllm" and not settings.servers,
            "rollout.seeds: request, as a branch has a seed of its own": settings.seeds == "request",
            "rollout.stop: [], as a branch does not read the text before it": not settings.stop,
            "reward.shaper: null, as tokens of a tree have their own advantages": config.reward.shaper is None,
        }
        for requirement, holds in requirements.items():
            if not holds:
                raise UserError(f"rollout.strategy: d3s.methods.latr:LATR requires {requirement}")
        for name, value in (
            ("share", share),
            ("absolute", absolute),
            ("relative", relative),
            ("similarity", similarity),
        ):
            if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value <= 1:
                raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}")
        for name, value in (("lookahead", lookahead), ("steps", steps if steps is not None else 0)):
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} must be an integer of at least 0, not {value!r}")
        self.share, self.steps, self.lookahead = share, steps, lookahead
        self.absolute, self.relative, self.similarity = absolute, relative, similarity

    def generate(
        self,
        engine: VllmEngine,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        step: int,
        on_finished: Callable[[Rollout], None],
    ) -> list[Rollout]:
        """Sample a share of each prompt's responses from a tree, the others plainly.

        A pruned branch leaves its place to another one, whose seed is derived from that of the place.
        """
        places = sample_places(len(prompts), n, seeds)
        result = [Rollout(index, prompts[index], [], [], [], False, sample) for index, sample in places]
        trees = self._plant(engine, result, n, params.max_tokens, step)
        in_tree = {slot for tree in trees for slot in tree.empty}
        started = [tree.branches[0] for tree in trees]
        started += [Branch(slot, 0, rollout) for slot, rollout in enumerate(result) if slot not in in_tree]
        requests: list[Branch] = []
        with engine.sampling(seeds):
            while started or engine.busy():
                for branch in started:
                    _submit(engine, branch, len(requests), params, seeds[branch.slot])
                    requests.append(branch)
                finished, started, touched = [], [], {}
                for news in engine.step():
                    branch = requests[news.request]
                    branch.extend(news)
                    if branch.tree:
                        touched[id(branch.tree)] = branch.tree
                    else:
                        finished.append(branch)
                for tree in touched.values():
                    new, pruned, ended = tree.advance()
                    started += new
                    finished += ended
                    for branch in pruned:
                        engine.abort(branch.request)
                for branch in finished:
                    result[branch.slot] = branch.rollout
                    on_finished(branch.rollout)
        engine.recorder.write_to({branch.request: branch.rollout for branch in requests})
        branches = [branch for tree in trees for branch in tree.branches[1:]]
        for branch in branches:  # up to and including its forced token a branch has the entropies of its parent
            shared = branch.start + 1
            branch.rollout.entropies = branch.parent.rollout.entropies[:shared] + branch.rollout.entropies[shared:]
        _count(result, requests, branches)
        return result

    def _plant(self, engine: VllmEngine, result: list[Rollout], n: int, max_tokens: int, step: int) -> list["Tree"]:
        """The trees of all prompts, which provide the first responses of each; none if that is a single response."""
        capacity = round(self.share * n) if self.steps is None or step < self.steps else 0
        trees = []
        for first in range(0, len(result) if capacity >= 2 else 0, n):
            empty = {slot: result[slot] for slot in range(first, first + capacity)}
            limit = min(max_tokens, engine.max_model_len - len(result[first].prompt_ids))
            trees.append(Tree(self, empty, limit, engine.stop_token_ids))
        return trees


def _submit(engine: VllmEngine, branch: "Branch", request: int, params: SamplingParams, seed: int) -> None:
    ids = branch.rollout.response_ids
    branch.request = request
    engine.submit(
        request,
        branch.rollout.prompt_ids + ids,
        replace(params, max_tokens=params.max_tokens - len(ids)),
        rollout_seed(seed, "branch", branch.attempt) if branch.attempt else seed,
        start=len(ids),
        streamed=branch.tree is not None,
        candidates=2 if branch.tree else 0,
    )


def _count(result: list[Rollout], requests: list["Branch"], branches: list["Branch"]) -> None:
    """Note what was sampled for each place, pruned branches included."""
    for rollout in result:
        rollout.counts = {"decoded": 0, "branches": 0, "pruned": 0, "forced": len(rollout.lineage[1:])}
    for branch in requests:
        sampled = len(branch.rollout.response_ids) - (branch.start + 1 if branch.parent else 0)
        result[branch.slot].counts["decoded"] += sampled
    for branch in branches:
        result[branch.slot].counts["branches"] += 1
        result[branch.slot].counts["pruned"] += branch.rollout is not result[branch.slot]


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

    A position is decided when every growing response has a token there, in the order of the branches. So the tree does
    not depend on the batch around it.
    """

    def __init__(self, rule: "LATR", empty: dict[int, Rollout], limit: int, stop: list[int]) -> None:
        """Plant the root.

        Args:
            empty: by slot, the responses that the tree provides, without tokens.
            limit: maximum length of a response.
            stop: tokens that end a response.
        """
        self.rule, self.empty, self.limit, self.stop = rule, empty, limit, stop
        self.free, self.attempts = sorted(empty), Counter()
        self.position = 0  # the first one that is not decided
        self.branches: list[Branch] = []  # all that ever grew, parents first
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
        if not self.growing:
            started += [self._take_slot() for _ in list(self.free)]
        return [b for b in started if not b.ended], pruned, finished

    # The second candidate is a branch iff p_2 > absolute and p_1 - p_2 < relative. Here the response
    # may have sampled the second candidate itself, or a less likely token: then the branch takes the first candidate.
    def _other_candidate(self, branch: Branch) -> tuple[int, float] | None:
        """Return the token to branch to at this position and its log-probability, or None."""
        if self.position not in branch.candidates:
            return None
        (_, first), (_, second) = candidates = branch.candidates[self.position]
        if exp(second) <= self.rule.absolute or exp(first) - exp(second) >= self.rule.relative:
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

    # The look-ahead: the normalized edit distance between the tokens since the branching.
    def _resembles_parent(self, branch: Branch) -> bool:
        """Whether `lookahead` tokens of a branch are now too similar to its parent's. False if either has ended."""
        parent = branch.parent
        if branch.start + self.rule.lookahead - 1 != self.position or parent not in self.growing:
            return False
        if branch.ends_at(self.position) or parent.ends_at(self.position):
            return False
        tokens, others = (b.rollout.response_ids[branch.start : self.position + 1] for b in (branch, parent))
        return edit_distance(tokens, others) < self.rule.similarity * len(tokens)


def edit_distance(first: list[int], second: list[int]) -> int:
    """Levenshtein's: the fewest insertions, deletions and substitutions that turn one sequence into the other."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (a != b)))
    return row[-1]
