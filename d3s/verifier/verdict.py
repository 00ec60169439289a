"""Three-valued verdicts, and their combination over the items of two answers in order or in any order."""

from collections.abc import Callable, Iterable
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

    def in_order(self, golds: Iterable[str], answers: Iterable[str]) -> Verdict:
        """Compare two sequences of the same length item by item."""
        return _item_by_item(list(golds), list(answers), self.full)

    def in_order_quick(self, golds: Iterable[str], answers: Iterable[str]) -> Verdict:
        """Compare two sequences item by item without the formula layer."""
        return _item_by_item(list(golds), list(answers), self.quick)

    def in_any_order(self, golds: Iterable[str], answers: Iterable[str]) -> Verdict:
        """Match the items one to one. Equality is transitive, so the first match is never the wrong one."""
        golds, rest = list(golds), list(answers)
        if len(golds) != len(rest):
            return False
        if len(golds) > MAX_UNORDERED:
            return _item_by_item(golds, rest, self.full)
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


def _item_by_item(golds: list[str], answers: list[str], compare: Compare) -> Verdict:
    if len(golds) != len(answers):
        return False
    return all_of(compare(gold, answer) for gold, answer in zip(golds, answers))
