"""Hostile, pumped and drawn texts score 0 in time, raise nothing and execute nothing."""

import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verifier.hostile_answers import endless_work, hostile_answers
from d3s.programs.code_reward import CodeReward
from d3s.verifier import equivalence, normalize, quantities, structure, units, words
from d3s.verifier.extraction import MAX_ANSWER, MAX_RESPONSE, extract
from d3s.verifier.verifier import QUICK_LENGTH, Verifier
from tests.helpers.warm_python import ROOT

LIMIT_S = 1.0
ENDLESS = {answer for _, answer in endless_work()}  # most cost a worker each: a third of them suffices
BUDGET_S = 0.05  # of CPU time; the test allows twice as much, three times in a row, for noise
GOLDS = ("5", "x+1", r"\frac{1}{2}", "12 apples", r"\text{no solution}", "(1,2)", "1,2,3", r"\{1,2\}", "C", "x=5",
         "0<x<1", r"5\text{ cm}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "7:30", "June 5")  # fmt: skip
PIECES = (
    "a", "ha", "A", "1", "12", "9.", " ", "\n", "\\", "{", "}", "(", ")", "[", "1,", "1;", "a,", "(1,2),", "x+1,", ".",
    "-", "+", "=", "<", "x=1,", "1<", "|", "'", "!", "^", "_", "a_", "^2", "%", "°", "$", "*", "`", "é", "²", "α", ":",
    "1 ", "a ", "and ", "1 or ", "per ", "cm ", "m/", "5 cm", r"\frac", r"\frac12", r"\frac{1}{", r"\sqrt", r"\sqrt{",
    r"\text{", r"\text{a}", r"\text{a}^{ 2 ", r"\text{ or }", r"\mathrm{m}", r"\textbf{", r"\left(", r"\,", r"{,}000",
    r"\pm", r"\pm 1,", r"\cup", r"(0,1)\cup", r"\in ", r"\approx ", r"\dots", r"\overline{3}", r"\begin{pmatrix}",
    r"1&2\\", r"\pmod{5", "(mod 5)", "floor(", "abs(", r"\vec{", r"\overline{A}", r"\boxed{", r"\boxed ",
    r"\boxed{5} or ", "answer is ", "<answer>", "</answer>", "#### ", "</think>", "<|a|>", r"\(", r"\)", r"\[", "$$",
    "$1", "1/", "1e", "5 th",
)  # fmt: skip
STARTS = ("", "5 ", "0.", "(", r"\text{", "a")
ENDS = ("", "_b", r"2\dots", ")", "}", r" \text{cm}", "\x00")
PROGRAMS = ("```", "```\n", "``` ", "```a", "```a\n", "def f", "def f(x):\n", "\n", "class ", "    ",
            "```python\nx\n```\n")  # fmt: skip
CACHED = [
    function
    for module in (equivalence, normalize, quantities, structure, units, words)
    for function in vars(module).values()
    if hasattr(function, "cache_clear")
]
UNEQUAL: Future[str] = Future()
UNEQUAL.set_result("unequal")


def test_hostile_answers_score_zero_in_time(tmp_path: Path) -> None:
    rows = list(dict(hostile_answers(str(tmp_path / "canary"))).items())  # each response with one of its gold answers
    rows = [row for i, row in enumerate(rows) if i % 3 == 0 or row[0][len("So it is \\boxed{") : -1] not in ENDLESS]
    assert len(rows) >= 500
    with Verifier(workers=2, timeout_s=LIMIT_S) as verifier:
        assert verifier.score([r"\boxed{\sqrt{4}}"], ["2"]) == [1.0]
        verifier.take_stats()
        start = time.monotonic()
        futures = []
        for response, gold in rows:
            begin = time.monotonic()
            futures.append(verifier.submit(response, gold))
            assert time.monotonic() - begin < 1.0, response[:80]  # submit never blocks the calling process
        assert [row for row, future in zip(rows, futures) if future.result() != 0.0] == []
        stats = verifier.take_stats()
        restarts = 30.0 * stats["timeouts"]  # seconds for new workers to import sympy on a busy machine
        assert stats["decided"] == len(rows) and time.monotonic() - start < len(rows) * LIMIT_S + restarts
        assert verifier.score([r"\boxed{\sqrt{9}}"], ["3"]) == [1.0]
    assert not any(tmp_path.iterdir()) and not any(path.name.startswith("touch") for path in ROOT.iterdir())


def test_hostile_responses_are_extracted_quickly(tmp_path: Path) -> None:
    """With lenient extraction, which has more rules."""
    for response, gold in hostile_answers(str(tmp_path / "canary")):
        start = time.process_time()
        extracted = extract(response, "lenient")
        assert not extracted or not all(equivalence.equivalent(gold, text) for text in extracted)
        assert time.process_time() - start < 1.0, response[:80]


DRAWN = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=30)


@given(DRAWN, DRAWN)
@settings(max_examples=150)
def test_cheap_layers_are_total_and_reflexive(gold: str, answer: str) -> None:
    assert equivalence.equivalent(gold, answer) in (True, False, None) and extract(answer, "lenient") != ()
    normalized = normalize.normalize(answer)
    assert "  " not in normalized and normalized == normalized.strip()
    if normalize.compact(normalized):
        assert equivalence.equivalent(answer, answer) is True


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> Verifier:
    """One without workers for what the cheap layers leave open. Lenient extraction is strict extraction, then more."""
    monkeypatch.setattr("d3s.verifier.verifier.FormulaPool", lambda *_: SimpleNamespace(submit=lambda *_: UNEQUAL))
    return Verifier(extraction="lenient")


def exceeds_budget(call: Callable[[], object]) -> bool:
    """Does each of three calls, none of which profits from an earlier one, take twice the budget?"""
    for _ in range(3):
        for function in CACHED:
            function.cache_clear()
        start = time.process_time()
        call()
        if time.process_time() - start <= 2 * BUDGET_S:
            return False
    return True


def pumped(length: int, draws: int, seed: int) -> Iterator[str]:
    """Texts of one repeated piece, each once, and of drawn starts, pieces and ends."""
    generator = random.Random(seed)
    for piece in PIECES:
        yield piece * (length // len(piece))
    for _ in range(draws):
        start, end = generator.choice(STARTS), generator.choice(ENDS)
        piece = "".join(generator.choices(PIECES, k=generator.choice((1, 1, 2, 3))))
        yield (start + piece * (length // len(piece)))[: length - len(end)] + end


def test_short_answers_are_compared_in_time(verifier: Verifier) -> None:
    slow = []
    for number, text in enumerate(pumped(QUICK_LENGTH - 12, draws=300, seed=0)):
        gold = GOLDS[number % len(GOLDS)]
        if exceeds_budget(lambda: verifier.submit(rf"\boxed{{{text}}}", gold)):  # noqa: B023 (called at once)
            slow.append((gold, text))
    assert slow == []


@pytest.mark.parametrize("length", [MAX_ANSWER, MAX_RESPONSE])
def test_long_responses_are_read_in_time(verifier: Verifier, length: int) -> None:
    slow = []
    for text in pumped(length, draws=10 if length > MAX_ANSWER else 60, seed=1):
        for response in (text, rf"\boxed{{{text}}}", rf"\boxed{{5}}{text}", rf"{text}\boxed{{5}}"):
            if exceeds_budget(lambda: verifier.submit(response, "5")):  # noqa: B023
                slow.append((response[:60], response[-20:]))
    assert slow == []


def test_lists_are_compared_in_time(verifier: Verifier) -> None:
    """Each item of one list is compared with each of the other: as many items as a short pair has."""
    for item in ("{}", "x+{}", r"\sqrt{{{}}}", "({},1)", "x={}", r"{}\pi", "a_{{{}}}"):
        count = min(40, (QUICK_LENGTH // 2 + 1) // (len(item.format(10)) + 1))
        gold, answer = (",".join(map(item.format, range(start, start + count))) for start in (10, 50))
        assert not exceeds_budget(lambda: verifier.submit(rf"\boxed{{{answer}}}", gold)), item  # noqa: B023


def test_programs_are_extracted_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3s.programs.code_reward.Sandbox", lambda *_: None)
    reward = CodeReward()
    row = {"entry_point": "f", "prompt": "def f(x):\n", "tests": json.dumps(["assert f(1)"])}
    for first in ("", *PROGRAMS[::2], "a", "\x00"):
        for second in (*PROGRAMS, "a", " "):
            response = first + second * (30_000 // len(second)) + first
            assert not exceeds_budget(lambda: reward.program(response, row)), (first, second)  # noqa: B023
