"""Look-ahead tree rollouts on the vLLM engine, in one streaming pass; d3s/rollout/branching.py has their rules."""

from collections.abc import Callable
from dataclasses import replace

from d3s.config.rollout import RolloutConfig
from d3s.rollout.branching import Branch, Tree
from d3s.rollout.engine import Rollout, SamplingParams, sample_places
from d3s.rollout.seeds import rollout_seed
from d3s.rollout.vllm_engine import VllmEngine
from d3s.schedule import value_at


class TreeStrategy:
    """Samples a share of each prompt's responses from a tree, the others plainly."""

    def __init__(self, engine: VllmEngine, settings: RolloutConfig) -> None:
        self.engine, self.settings = engine, settings
        self.counts: list[dict[str, int]] = []  # by prompt of the last call: branches, pruned ones, tokens decoded

    def generate(
        self,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        *,
        entropies: bool = True,
        on_finished: Callable[[Rollout], None] | None = None,
        step: int = 0,
    ) -> list[Rollout]:
        """See Engine.generate; exactly n responses to each prompt.

        Args:
            seeds: a pruned branch leaves its place to another one, whose seed is derived from that of the place.
            step: of the training; it fixes the share of the tree.
        """
        places = sample_places(len(prompts), n, seeds)
        result = [Rollout(index, prompts[index], [], [], [], False, sample) for index, sample in places]
        trees = self._plant(result, params.max_tokens, value_at(self.settings.tree_share, step))
        in_tree = {slot for tree in trees for slot in tree.empty}
        started = [tree.branches[0] for tree in trees]
        started += [Branch(slot, 0, rollout) for slot, rollout in enumerate(result) if slot not in in_tree]
        requests: list[Branch] = []
        with self.engine.sampling(seeds):
            while started or self.engine.busy():
                for branch in started:
                    self._submit(branch, len(requests), params, seeds[branch.slot], entropies)
                    requests.append(branch)
                finished, started, touched = [], [], {}
                for news in self.engine.step():
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
                        self.engine.abort(branch.request)
                for branch in finished:
                    result[branch.slot] = branch.rollout
                    if on_finished:
                        on_finished(branch.rollout)
        if entropies and params.temperature > 0:
            self._write_entropies(requests, trees)
        self._count(len(prompts), requests, trees)
        return result

    def _plant(self, result: list[Rollout], max_tokens: int, share: float) -> list[Tree]:
        """Return the trees of the prompts whose share is at least two responses, the first ones of each prompt."""
        slots: dict[int, list[int]] = {}
        for slot, rollout in enumerate(result):
            slots.setdefault(rollout.prompt_index, []).append(slot)
        trees = []
        for own in slots.values():
            capacity = round(share * len(own))
            if capacity >= 2:
                empty = {slot: result[slot] for slot in own[:capacity]}
                limit = min(max_tokens, self.engine.max_model_len - len(result[own[0]].prompt_ids))
                trees.append(Tree(self.settings, empty, limit, self.engine.stop_token_ids))
        return trees

    def _submit(self, branch: Branch, request: int, params: SamplingParams, seed: int, entropies: bool) -> None:
        ids = branch.rollout.response_ids
        branch.request = request
        self.engine.submit(
            request,
            branch.rollout.prompt_ids + ids,
            replace(params, max_tokens=params.max_tokens - len(ids)),
            rollout_seed(seed, "branch", branch.attempt) if branch.attempt else seed,
            entropies=entropies,
            start=len(ids),
            streamed=branch.tree is not None,
            candidates=2 if branch.tree else 0,
        )

    def _write_entropies(self, requests: list[Branch], trees: list[Tree]) -> None:
        """Fill in the entropies; up to and including its forced token a branch has those of its parent."""
        self.engine.recorder.write_to({branch.request: branch.rollout for branch in requests})
        for tree in trees:
            for branch in tree.branches[1:]:
                shared = branch.start + 1
                branch.rollout.entropies = branch.parent.rollout.entropies[:shared] + branch.rollout.entropies[shared:]

    def _count(self, prompts: int, requests: list[Branch], trees: list[Tree]) -> None:
        self.counts = [{"branches": 0, "pruned": 0, "decoded": 0} for _ in range(prompts)]
        for branch in requests:
            counts = self.counts[branch.rollout.prompt_index]
            counts["decoded"] += len(branch.rollout.response_ids) - (branch.start + 1 if branch.parent else 0)
        for tree in trees:
            counts = self.counts[tree.branches[0].rollout.prompt_index]
            counts["branches"] += len(tree.branches) - 1
            counts["pruned"] += tree.pruned
