"""Partial rollouts: a step ends when enough groups are whole, and the other responses go on in the next step.

    rollout: {engine: vllm, strategy: "d3s.methods.carry_over:CarryOver"}               # configs/method/carry_over.yaml
    rollout: {strategy: {rule: "d3s.methods.carry_over:CarryOver", extra: 0.5, max_age: 2}}

Kimi k1.5, arXiv 2501.12599, calls them partial rollouts, APRIL, arXiv 2509.18521, active ones. The first step starts
(1 + extra) B groups, each later one B. A step ends with the B-th whole group; all other responses are cut, kept with
their log-probabilities and entropies, and continued after the update from the prompt and the tokens that they have.
Every response is trained once, when its group is whole. What is unfinished when the training ends is dropped.

Bias: the ratio of a token is to the weights that sampled it, hence loss.old_logprobs: engine, but the tokens before it
come from older weights, which no ratio corrects. The first steps see the groups that end soonest; later ones see
lengths as they are, long ones late, at most max_age steps. Log-probabilities of old tokens differ from the actor's, so
mismatch/* measures the age too.

Worth using? Four seeds see no difference of Pass@1, within 3 to 6 points (docs/beyond.md). Half of the seconds of
generation at 7B are estimated to be a tail with a nearly empty batch; `python -m research.carry_over` runs this rule on
a simulated engine and prints the seconds saved.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.groups import Rollout
from d3s.rollout.engine import SamplingParams, empty_rollouts, rollout_seed
from d3s.rollout.strategy import require
from d3s.rollout.vllm_engine import VllmEngine

SAMPLED = {"response_ids": torch.int64, "logprobs": torch.float64, "entropies": torch.float64}  # of each token


@dataclass(eq=False)
class Group:
    """The responses to a problem, some of which may be unfinished."""

    problem: int
    started: int  # step of the training
    seeds: list[int]
    rollouts: list[Rollout]
    open: set[int]  # the samples that have not ended


class CarryOver:
    """More groups than a step needs, the unfinished ones of which go on in the next step."""

    def __init__(self, config: Config, extra: float = 0.25, max_age: int = 2) -> None:
        """Extra groups in flight, as a share of a step's, and steps after which a step waits for a group."""
        settings = config.rollout
        by_engine = config.loss.old_logprobs == "engine"
        requirements = {
            "rollout.engine: vllm without rollout.servers": settings.engine == "vllm" and not settings.servers,
            "rollout.stop: [], as a continued response does not read the text before it": not settings.stop,
            "loss.old_logprobs: engine, as weights of several steps sample a response": by_engine,
        }
        require("d3s.methods.carry_over:CarryOver", requirements)
        if type(extra) not in (int, float) or not 0 <= extra <= 1:
            raise ValueError(f"extra must be a number from 0 to 1, not {extra!r}")
        if type(max_age) is not int or max_age < 1:
            raise ValueError(f"max_age must be an integer of at least 1, not {max_age!r}")
        self.extra, self.max_age = extra, max_age
        self.started = False  # whether the extra groups are in flight
        self.groups: list[Group] = []  # in flight, oldest first

    def problems_for(self, count: int) -> int:
        """How many problems are to be asked for `count` groups."""
        return count + (0 if self.started else math.ceil(self.extra * count))

    def generate(
        self,
        engine: VllmEngine,
        prompts: list[list[int]],
        problems: list[int],
        count: int,
        n: int,
        params: SamplingParams,
        seeds: list[int],
        step: int,
        on_finished: Callable[[Rollout], None],
    ) -> list[list[Rollout]]:
        """Continue the unfinished responses, start those to the prompts, and return the first `count` whole groups.

        A continued response has a seed derived from its own one and from its length.
        """
        empty = empty_rollouts(prompts, n, seeds, problems)
        for i, problem in enumerate(problems):
            own = slice(i * n, (i + 1) * n)
            self.groups.append(Group(problem, step, seeds[own], empty[own], set(range(n))))
        self.started = True
        if len(self.groups) > 2 * count:  # else a group could wait for more than max_age steps
            raise UserError(
                f"rollout.strategy: got {len(self.groups)} groups in flight on an engine that returns {count}, "
                "expected at most twice as many; raise train.prompts_per_step, or lower the rule's extra in a new run"
            )
        for group in self.groups:
            for r in group.rollouts:
                r.counts = {"stale": len(r.response_ids)}
        requests = [(group, group.rollouts[sample]) for group in self.groups for sample in sorted(group.open)]
        known = [r.entropies for _, r in requests]
        returned: list[Group] = []
        with engine.sampling(seeds):
            for number, (group, r) in enumerate(requests):
                start, seed = len(r.response_ids), group.seeds[r.sample]
                rest = replace(params, max_tokens=params.max_tokens - start)
                seed = rollout_seed(seed, "continued", start) if start else seed
                engine.submit(number, r.prompt_ids + r.response_ids, rest, seed, start=start, streamed=True)
            self._return_whole(returned, count, step, on_finished)
            while len(returned) < count:
                for news in engine.step():
                    group, r = requests[news.request]
                    r.response_ids += news.token_ids
                    r.logprobs += news.logprobs
                    if news.reason:
                        r.finished = news.reason == "stop"
                        group.open.remove(r.sample)
                self._return_whole(returned, count, step, on_finished)
            for number, (group, r) in enumerate(requests):
                if r.sample in group.open:
                    engine.abort(number)
            engine.step()  # an engine that schedules ahead has a batch of them left
        engine.recorder.write_to({number: r for number, (_, r) in enumerate(requests)})
        for (_, r), entropies in zip(requests, known):
            r.entropies[: len(entropies)] = entropies
        for group in returned:
            group.rollouts[0].counts["age"] = step - group.started
        if returned:
            returned[0].rollouts[0].counts["carried"] = sum(len(group.open) for group in self.groups)
        return [group.rollouts for group in returned]

    def _return_whole(
        self, returned: list[Group], count: int, step: int, on_finished: Callable[[Rollout], None]
    ) -> None:
        """Move whole groups from those in flight to `returned`, where the oldest have a place in any case."""
        due = [group for group in self.groups if step - group.started >= self.max_age]
        places = count - len(returned) - len(due)
        others = [group for group in self.groups if not group.open and group not in due][:places]
        for group in [group for group in due if not group.open] + others:
            self.groups.remove(group)
            for r in group.rollouts:
                on_finished(r)
            returned.append(group)

    def state_dict(self) -> dict[str, Any]:
        """The groups in flight. Tokens of all responses are in one tensor, as checkpoints are slow with many."""
        rollouts = [r for group in self.groups for r in group.rollouts]
        return {
            "started": self.started,
            "groups": [(g.problem, g.started, g.seeds, g.rollouts[0].prompt_ids, sorted(g.open)) for g in self.groups],
            "finished": [r.finished for r in rollouts],
            "lengths": [len(r.response_ids) for r in rollouts],
            **{
                name: torch.tensor([value for r in rollouts for value in getattr(r, name)], dtype=dtype)
                for name, dtype in SAMPLED.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the groups in flight."""
        tokens = zip(*(state[name].split(state["lengths"]) for name in SAMPLED))
        finished, self.started, self.groups = iter(state["finished"]), state["started"], []
        for problem, started, seeds, prompt, unfinished in state["groups"]:
            rollouts = [
                Rollout(problem, prompt, *(values.tolist() for values in next(tokens)), next(finished), sample)
                for sample in range(len(seeds))
            ]
            self.groups.append(Group(problem, started, list(seeds), rollouts, set(unfinished)))
