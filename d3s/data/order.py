"""The order of problems: rules of data.order, which choose the problems of each step.

A rule is a class. Its constructor takes, by name, what it needs of

    problems         all training problems, see d3s/data/problems.py
    seed             train.seed
    num_generations  G, responses to each problem
    weights          those of data.path; problem.file is the place of its source there

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

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.data.problems import Problem, problem_order
from d3s.rules import ClassContract, OfRuns, RuleObject, metrics_problem, rule_name


class Shuffled:
    """All problems in random order, reshuffled every epoch; those of several files in proportion to their weights."""

    def __init__(self, problems: Sequence[Problem], seed: int, weights: Sequence[float]) -> None:
        self._files: list[list[int]] = [[] for _ in weights]
        for index, problem in enumerate(problems):
            self._files[problem.file].append(index)
        self._seed, self._weights, self._asked = seed, weights, [0] * len(weights)

    def take(self, count: int, position: int) -> list[int]:
        """Indices of the next `count` problems, after `position` problems that the run has asked before."""
        if len(self._files) == 1:
            return problem_order(len(self._files[0]), self._seed, position, count)
        return self._take_of_files(count, position)

    def _take_of_files(self, count: int, position: int) -> list[int]:
        if sum(self._asked) > position:
            self._asked = [0] * len(self._files)
        while sum(self._asked) < position:
            self._asked[self._next_file()] += 1
        taken = []
        for _ in range(count):
            file = self._next_file()
            (place,) = problem_order(len(self._files[file]), self._seed, self._asked[file], 1)
            taken.append(self._files[file][place])
            self._asked[file] += 1
        return taken

    def _next_file(self) -> int:
        """The file that is behind most, so that every step has nearly the proportions of the weights."""
        return min(range(len(self._files)), key=lambda file: (self._asked[file] + 0.5) / self._weights[file])


def build_order(config: Config, problems: Sequence[Problem]) -> RuleObject:
    """The order of these problems that data.order names. Raises: UserError if an own rule fails."""
    weights, files = config.data.weights, {problem.file for problem in problems}
    if empty := [path for file, path in enumerate(weights) if file not in files]:
        raise UserError(f"data.path: no problem of {empty[0]} is left; remove it, or raise data.max_prompt_length")
    if len(weights) > 1 and "weights" not in ORDER_RULES.rule(config.data.order).takes:
        raise UserError(
            f"data.order: {rule_name(config.data.order)} takes no weights; use shuffle with several sources"
        )
    return ORDER_RULES.build(config.data.order, **order_arguments(config, problems))


def order_arguments(config: Config, problems: Sequence[Problem]) -> dict[str, Any]:
    """What the constructor of a rule of data.order may take."""
    return {
        "problems": problems,
        "seed": config.train.seed,
        "num_generations": config.rollout.num_generations,
        "weights": list(config.data.weights.values()),
    }


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
    arguments=("problems", "seed", "num_generations", "weights"),
    methods={
        "take": (("count", "position"), _indices_problem),
        "learn": (("problems", "verdicts", "rewards"), lambda *_, **__: None),
        "metrics": ((), metrics_problem),
    },
    required=("take",),
    constructs=lambda config: order_arguments(config, TRIED),
    trial=_try_order,
)
