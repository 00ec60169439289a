"""The order of problems: rules of data.order, which choose the problems of each step.

A rule is a class. Its constructor takes, by name, what it needs of

    problems         all training problems, see d3s/data/problems.py
    seed             train.seed
    num_generations  G, responses to each problem

and its objects have the methods

    take(count, position)                 the indices of the next `count` problems, after `position` that the run has
                                          asked before; the same index may come twice
    learn(problems, verdicts, rewards)    follow the outcomes [B, G] of the problems taken, or of earlier ones if
                                          rollout.strategy carries groups over; with dynamic sampling each batch of a
                                          step is taken and learned. A verdict is what the verifier or the
                                          reward function says of the response, without terms for format or length
    metrics()                             finite numbers by name, logged with the step
    state_dict(), load_state_dict(state)  see d3s/rules.py

of which only `take` is required, each with those arguments that it needs.
"""

from collections.abc import Sequence
from typing import Any

import torch

from d3s.config.schema import Config
from d3s.data.problems import Problem, problem_order
from d3s.rules import ClassContract, OfRuns, RuleObject, metrics_problem


class Shuffled:
    """All problems in random order, reshuffled every epoch."""

    def __init__(self, problems: Sequence[Problem], seed: int) -> None:
        self._size, self._seed = len(problems), seed

    def take(self, count: int, position: int) -> list[int]:
        """Indices of the next `count` problems, after `position` problems that the run has asked before."""
        return problem_order(self._size, self._seed, position, count)


def build_order(config: Config, problems: Sequence[Problem]) -> RuleObject:
    """The order of these problems that data.order names. Raises: UserError if an own rule fails."""
    return ORDER_RULES.build(config.data.order, **order_arguments(config, problems))


def order_arguments(config: Config, problems: Sequence[Problem]) -> dict[str, Any]:
    """What the constructor of a rule of data.order may take."""
    return {"problems": problems, "seed": config.train.seed, "num_generations": config.rollout.num_generations}


def _indices_problem(result: Any, count: int, problems: Sequence[Problem], **_: Any) -> str | None:
    if not (isinstance(result, list) and len(result) == count and all(type(index) is int for index in result)):
        return f"{result!r:.60}, expected a list of {count} integers"
    outside = [index for index in result if not 0 <= index < len(problems)]
    return f"the index {outside[0]}, expected 0 to {len(problems) - 1}" if outside else None


class _Columns(dict):
    """The columns of a problem, which are unknown before the data is read."""

    def __missing__(self, name: str) -> Any:
        raise OfRuns

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __ror__(self, other: dict[str, Any]) -> "_Columns":  # dict | _Columns, in Problem.row
        return _Columns(other)


TRIED = [Problem(str(i), f"problem {i}", "1", "example", _Columns()) for i in range(12)]


def _try_order(order: RuleObject, config: Config) -> list[Any]:
    """Two steps of four problems, of whose two responses i are right."""
    results = []
    for position in (0, 4):
        problems = order.take(count=4, position=position)
        verdicts = (torch.arange(2) < torch.tensor(problems)[:, None] % 3).float()
        results += [problems, order.learn(problems=problems, verdicts=verdicts, rewards=verdicts), order.metrics()]
    return results


ORDER_RULES = ClassContract(
    option="data.order",
    builtin={"shuffle": Shuffled},
    arguments=("problems", "seed", "num_generations"),
    methods={
        "take": (("count", "position"), _indices_problem),
        "learn": (("problems", "verdicts", "rewards"), lambda *_, **__: None),
        "metrics": ((), metrics_problem),
    },
    required=("take",),
    constructs=lambda config: order_arguments(config, TRIED),
    trial=_try_order,
)
