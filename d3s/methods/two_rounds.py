"""Two rounds per group: a few responses to more problems than a step trains, then the rest where a signal is likely.

    rollout: {num_generations: 8, strategy: "d3s.methods.two_rounds:TwoRounds"}         # configs/method/two_rounds.yaml
    rollout: {num_generations: 8, strategy: {rule: "d3s.methods.two_rounds:TwoRounds", first: 2, extra: 1.5}}

After AERO, arXiv 2602.14338, and Pilot-Commit, arXiv 2605.26606. A step of B groups asks (1 + extra) B problems for
`first` responses each, scores them, and completes B groups to G responses: those whose verdicts differ, then those that
are most likely to differ in the end. All G responses are in the group's mean. Departures: groups have one size, and
what was sampled for the other problems is neither kept for later steps nor trained, but counted and paid for.

Bias: none in the direction of a problem's gradient where rewards are right or wrong and advantages are centered, but
problems whose success rate is near one half come more often (tests/methods/test_strategy_rules.py). Rules of data.order
see completed groups alone.

Worth using? No gain on the built-in tasks: 2 to 3 points below plain groups at equal seconds (docs/beyond.md, which has
the arithmetic too). It can pay where most problems are always right or always wrong.
"""

import math
from collections.abc import Callable
from itertools import chain
from statistics import fmean

from d3s.config.schema import Config
from d3s.groups import Rollout
from d3s.rollout.engine import Engine, SamplingParams, empty_rollouts
from d3s.rollout.strategy import require


class TwoRounds:
    """More problems than a step trains, and the first responses to them decide which ones get the others."""

    def __init__(self, config: Config, first: int = 2, extra: float = 1.0) -> None:
        """Responses of the first round, and problems beyond a step's, as a share of these."""
        per_engine = config.rollout.tensor_parallel_size == 1
        requirement = "rollout.tensor_parallel_size: 1, as a rank decides by the verdicts of its own responses"
        require("d3s.methods.two_rounds:TwoRounds", {requirement: per_engine})
        if type(first) is not int or not 2 <= first < config.rollout.num_generations:
            raise ValueError(f"first must be an integer from 2 to G - 1, not {first!r}")
        if type(extra) not in (int, float) or not 0 < extra <= 15:
            raise ValueError(f"extra must be a number above 0, at most 15, not {extra!r}")
        self.first, self.extra = first, extra

    def problems_for(self, count: int) -> int:
        """How many problems are asked for `count` groups."""
        return count + math.ceil(self.extra * count)

    def generate(
        self,
        engine: Engine,
        prompts: list[list[int]],
        problems: list[int],
        count: int,
        n: int,
        params: SamplingParams,
        seeds: list[int],
        entropies: bool,
        on_finished: Callable[[Rollout], None],
    ) -> list[list[Rollout]]:
        """Sample `first` responses to each problem, and the rest of the `count` groups that those speak for."""
        rollouts = empty_rollouts(prompts, n, seeds, problems)

        def sample(groups: list[int], samples: range) -> list[Rollout]:
            places = [group * n + i for group in groups for i in samples]
            sampled = [rollouts[place] for place in places]
            if sampled:
                engine.sample(sampled, params, [seeds[place] for place in places], entropies, on_finished)
            return sampled

        opening = sample(list(range(len(prompts))), range(self.first))
        verdicts = [r.scoring().verdict for r in opening]
        of_groups = [verdicts[start : start + self.first] for start in range(0, len(verdicts), self.first)]
        completed = most_promising(of_groups, count)
        sample(completed, range(self.first, n))
        returned = [rollouts[group * n : (group + 1) * n] for group in completed]
        if returned:
            dropped = [r for i, r in enumerate(opening) if i // self.first not in completed]
            returned[0][0].counts = {
                "differing": sum(len(set(own)) > 1 for own in of_groups),
                "decoded": sum(len(r.response_ids) for r in [returned[0][0], *dropped]),
            }
        return returned


# After i right answers of a problem whose success rate has the prior Beta(a, b), the next one is right with probability
# (a + i) / (a + b + i), and likewise for wrong ones with b. So of groups that are alike, those with the rarer verdict
# differ more often once they are complete, whatever a + b is.
def most_promising(verdicts: list[list[float]], count: int) -> list[int]:
    """Choose groups by their first verdicts [groups, first]: those that differ, then those farthest from the mean.

    Returns: `count` indices, ascending; of equally promising groups the first ones.
    """
    mean = fmean(chain(*verdicts)) if verdicts else 0.0

    def distance(group: int) -> float:
        own = verdicts[group]
        return math.inf if len(set(own)) > 1 else abs(own[0] - mean)

    return sorted(sorted(range(len(verdicts)), key=distance, reverse=True)[:count])
