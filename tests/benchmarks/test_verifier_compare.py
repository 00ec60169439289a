"""The comparison with math-verify: counts of its tables for scorers whose mistakes are known."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.verifier.compare import accuracy_table, competition_cases, generated_cases, load_cases, respelled

GOLD = "1"


def always(score: float):
    def scorer(responses: Sequence[str], golds: Sequence[str]) -> list[float]:
        return [score] * len(responses)

    return {"strict": scorer, "lenient": scorer}


def case(kind: str, equal: bool, note: str = "") -> dict:
    return {"kind": kind, "gold": GOLD, "prediction": "1", "equal": equal, "note": note, "response": r"\boxed{1}"}


def rows(cases: list[dict], scorers: dict) -> tuple[dict[tuple[str, str], list[str]], list[str]]:
    table, mistakes = accuracy_table(cases, scorers)
    cells = zip(*(column.cells for column in table.columns))
    return {(kind, name): values[:-1] for kind, name, *values in cells}, mistakes


def test_mistakes_are_counted_by_kind_and_side() -> None:
    cases = [case("pair", True)] * 3 + [case("pair", False)] + [case("free", False, "real model answer")]
    counts, mistakes = rows(cases, {"d3s": always(1.0), "other": always(0.0)})
    assert counts["pair", "d3s"] == ["4", "3", "75.0", "1", "0"]
    assert counts["pair", "other"] == ["4", "1", "25.0", "0", "3"]
    assert counts["free", "d3s"] == ["1", "0", "0.0", "1", "0"]
    assert counts["(of these: real model answers)", "other"] == ["1", "1", "100.0", "0", "0"]
    assert len(mistakes) == 3 and all(f"gold {GOLD!r}" in mistake for mistake in mistakes)


def test_extraction_follows_the_kind() -> None:
    modes = {"strict": always(1.0)["strict"], "lenient": always(0.0)["lenient"]}
    counts, _ = rows(
        [case("pair", True), case("boxed", True), case("phrase", True), case("free", True)], {"d3s": modes}
    )
    assert [counts[kind, "d3s"][1] for kind in ("pair", "boxed", "phrase", "free")] == ["1", "1", "0", "0"]


def test_bare_answers_get_a_box(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    lines = [{"note": "kind=pair; x", "prediction": "5"}, {"note": "kind=boxed", "prediction": r"so \boxed{5}"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(c["kind"], c["response"]) for c in load_cases(file)] == [
        ("pair", r"\boxed{5}"),
        ("boxed", r"so \boxed{5}"),
    ]


@pytest.mark.parametrize("cases", [generated_cases(seed=3, draws=1), competition_cases()], ids=["generated", "written"])
def test_cases_have_both_verdicts_and_a_box(cases: list[dict]) -> None:
    assert {c["equal"] for c in cases} == {True, False}
    assert all(c["response"] == rf"\boxed{{{c['prediction']}}}" for c in cases)


def test_generated_cases_depend_on_the_seed_alone() -> None:
    assert generated_cases(3, 1) == generated_cases(3, 1) != generated_cases(4, 1)


def test_respelling_wraps_formulas_only() -> None:
    assert respelled(r"\frac{x}{2}") == r"1\cdot(\frac{x}{2})+0"
    for text in ("x=1", "(1,2)", r"\text{no}", "50%"):
        assert respelled(text) == text
