r"""Step-aware advantages: a wrong answer is punished from its first wrong step on (VPPO's idea, arXiv 2601.18984).

    reward: {shaper: "d3s.methods.step_shaper:spare_reachable"}     # configs/method/spare_reachable.yaml

A_t = 0 for t < e and A_i from e on, where A_i < 0 and e is the first character of the first step after which no further
steps to the built-in tasks reach the answer. The rule knows the answer and judges single steps, which is process
supervision: compare with the same rule under GRPO.

Worth using? Not measured (both tasks, 2 seeds on each, intervals of 1.2 to 5.2 points on either side).
"""

import re
from functools import lru_cache
from itertools import permutations

from d3s.data.synthetic import OPERATIONS, all_outcomes, values_by_precedence
from d3s.groups import Span

NUMBER = r"-?[0-9]{1,9}"
EXPRESSION = re.compile(rf"{NUMBER}(?:[-+*]{NUMBER})*")
STEP = re.compile(rf"({NUMBER})([-+*])({NUMBER})=({NUMBER})")
Expression = tuple[tuple[int, ...], tuple[str, ...]]  # numbers, and the signs between them
Term = tuple[int, int]  # the number as the response writes it, and its true value
ENDS_OF_STEPS = "; "


def spare_reachable(problem: str, response: str, answer: str, advantage: float) -> list[Span]:
    """Spare the steps of a wrong answer to `precedence` or `countdown` after which the answer could still be reached.

    Nothing is spared if no step rules the answer out.
    """
    if advantage >= 0:
        return []
    start = 0  # of the step that ends at i
    for i, character in enumerate(response):
        if character in ENDS_OF_STEPS:
            if unreachable(problem, response[: i + 1]):
                return [(0, start, 0.0)] if start else []
            start = i + 1
    return []


def unreachable(problem: str, text: str) -> bool:
    """Whether the steps in `text` rule out a right answer to a problem of `precedence` or `countdown`.

    A problem's state is what its steps so far have left. A step counts once a semicolon or a space follows it; what is
    neither a step nor an expression is ignored.
    """
    steps = re.split("[; ]", text)[:-1]
    if "->" in problem:
        return _countdown_unreachable(problem, tuple(steps))
    return _precedence_unreachable(problem, tuple(steps))


@lru_cache(maxsize=2**14)
def _precedence_unreachable(problem: str, steps: tuple[str, ...]) -> bool:
    """A step replaces a pair of neighbors by the written value; an expression replaces the state."""
    start = _parse(problem.removesuffix("="))
    answer = values_by_precedence(*map(list, start))[-1]
    states = {start}
    for step in steps:
        if match := STEP.fullmatch(step):
            pair, value = _parse(step.partition("=")[0]), int(match[4])
            states = {after for state in states for after in _after(state, pair, value)}
        elif EXPRESSION.fullmatch(step):
            written = _parse(step)
            states = {written} if len(written[0]) <= len(start[0]) else set()
    return not any(answer in all_outcomes(*map(list, state)) for state in states)


def _parse(text: str) -> Expression:
    first = re.match(NUMBER, text)
    pairs = re.findall(rf"([-+*])({NUMBER})", text[first.end() :])
    return (int(first[0]), *(int(number) for _, number in pairs)), tuple(sign for sign, _ in pairs)


def _after(state: Expression, pair: Expression, value: int) -> set[Expression]:
    """The states after one of the places at which `pair` stands in `state` became `value`."""
    numbers, signs = state
    return {
        ((*numbers[:i], value, *numbers[i + 2 :]), signs[:i] + signs[i + 1 :])
        for i in range(len(signs))
        if (numbers[i : i + 2], signs[i : i + 1]) == pair
    }


@lru_cache(maxsize=2**14)
def _countdown_unreachable(problem: str, steps: tuple[str, ...]) -> bool:
    """A step takes two written numbers; the boxed expression combines what they stand for, so true values decide."""
    given, target = problem.removesuffix(":").split("->")
    states: set[tuple[Term, ...]] = {tuple(sorted((int(n), int(n)) for n in given.split(",")))}
    for step in steps:
        if match := STEP.fullmatch(step):
            left, sign, right, value = int(match[1]), match[2], int(match[3]), int(match[4])
            states = {after for state in states for after in _combined(state, left, sign, right, value)}
    return not any(int(target) in _values(tuple(sorted(true for _, true in state))) for state in states)


def _combined(state: tuple[Term, ...], left: int, sign: str, right: int, value: int) -> set[tuple[Term, ...]]:
    """The states after two terms that are written `left` and `right` were combined."""
    after = set()
    for i, j in permutations(range(len(state)), 2):
        if (state[i][0], state[j][0]) == (left, right):
            rest = [term for k, term in enumerate(state) if k not in (i, j)]
            after.add(tuple(sorted([*rest, (value, OPERATIONS[sign](state[i][1], state[j][1]))])))
    return after


@lru_cache(maxsize=2**14)
def _values(numbers: tuple[int, ...]) -> frozenset[int]:
    """The values of all expressions that use each of these numbers once."""
    if len(numbers) == 1:
        return frozenset(numbers)
    values = set()
    for i, j in permutations(range(len(numbers)), 2):
        rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
        for operation in OPERATIONS.values():
            values |= _values(tuple(sorted([*rest, operation(numbers[i], numbers[j])])))
    return frozenset(values)
