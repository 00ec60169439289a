"""Generated answers (benchmarks/verifier/), whose construction gives the verdict, and hand-written ones."""

import pytest

from benchmarks.verifier.competition_answers import competition_answers
from benchmarks.verifier.generated_answers import KINDS, generated_answers
from benchmarks.verifier.hostile_answers import close_numbers, math_verify_false_positives
from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import extract
from d3s.verifier.latex import UnreadableError
from d3s.verifier.symbolic import equal_formulas


def verdict(gold: str, answer: str) -> bool:
    """Decide as a worker does, in this process."""
    extracted = extract(rf"\boxed{{{answer}}}")
    try:
        return extracted is not None and all(equivalent(gold, text, equal_formulas) for text in extracted)
    except UnreadableError:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_generated_answers_get_their_verdict(kind: str) -> None:
    cases = [case for case in generated_answers(seed=11, draws=2) if case.kind == kind]
    assert [case for case in cases if verdict(case.gold, case.answer) != case.equal] == []


@pytest.mark.parametrize("make", [close_numbers, math_verify_false_positives])
def test_answers_that_only_look_equal_are_wrong(make) -> None:
    assert [case for case in make() if verdict(*case)] == []


def test_hand_written_answers_get_their_verdict() -> None:
    """No unequal pair of 419 is accepted; five equal ones, such as `July 4` and `4 July`, are missed."""
    cases = competition_answers()
    wrong = [(gold, answer, equal) for gold, answer, equal in cases if verdict(gold, answer) != equal]
    assert len(cases) > 400 and [case for case in wrong if not case[2]] == [] and len(wrong) <= 5, wrong


def test_equal_constants_of_any_size_are_equal() -> None:
    assert verdict("10^{400}+1", "(10^{200})^2+1") and verdict(r"e^{-1000}", r"\frac{1}{e^{1000}}")
    assert verdict(r"\sqrt[10^{400}]{2}", r"\sqrt[10^{400}]{\frac{4}{2}}")
