"""Three-valued verdicts, and their combination over the items of two answers in order or in any order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Verdict = bool | None  # None: only a formula comparison can tell
Compare = Callable[[str, str], Verdict]  # (gold, answer) -> verdict

MAX_UNORDERED = 40  # items; longer lists are compared in order


def undecided(gold: str, answer: str) -> Verdict:
    """The formula comparison of a process without sympy: always None."""
    return None


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued "and": False as soon as one verdict is False."""
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Three-valued "or": True as soon as one verdict is True."""
    result: Verdict = False
    for verdict in verdicts:
        if verdict:
            return True
        if verdict is None:
            result = None
    return result


@dataclass(frozen=True)
class Comparison:
    """How the parts of two structured answers are compared with each other.

    `full` compares two parts by all layers, `quick` without the formula layer, `formulas` by the formula layer alone.
    """

    full: Compare
    quick: Compare
    formulas: Compare

    def in_order(self, golds: Sequence[str], answers: Sequence[str], quick: bool = False) -> Verdict:
        """Compare two sequences item by item, if `quick` without the formula layer."""
        compare = self.quick if quick else self.full
        return len(golds) == len(answers) and all_of(map(compare, golds, answers))

    def in_any_order(self, golds: Sequence[str], answers: Sequence[str]) -> Verdict:
        """Match the items one to one. Equality is transitive, so the first match is never the wrong one."""
        if len(golds) != len(answers) or len(golds) > MAX_UNORDERED:
            return self.in_order(golds, answers)
        rest = list(answers)
        unmatched: list[str] = []
        for gold in golds:  # certain matches first: the formula layer is slow
            match = next((i for i, answer in enumerate(rest) if self.quick(gold, answer)), None)
            if match is None:
                unmatched.append(gold)
            else:
                rest.pop(match)
        result: Verdict = True
        for gold in unmatched:
            verdicts: list[Verdict] = []
            for answer in rest:
                verdicts.append(self.full(gold, answer))
                if verdicts[-1]:
                    break
            verdict = any_of(verdicts)
            if verdict is False:
                return False
            if verdict is None:
                result = None
            else:
                rest.pop(len(verdicts) - 1)
        return result
