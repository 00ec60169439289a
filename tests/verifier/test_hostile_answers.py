"""Hostile answers (benchmarks/verifier/hostile_answers.py) score 0 in time and execute nothing."""

import time
from pathlib import Path

import pytest

from benchmarks.verifier.hostile_answers import endless_work, hostile_answers
from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import extract
from d3s.verifier.verdict import all_of
from d3s.verifier.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 1.0
ENDLESS = {answer for _, answer in endless_work()}  # most cost a worker each: a third of them suffices


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


@pytest.mark.parametrize("extraction", ["strict", "lenient"])
def test_hostile_responses_are_extracted_quickly(extraction, tmp_path: Path) -> None:
    for response, gold in hostile_answers(str(tmp_path / "canary")):
        start = time.process_time()
        extracted = extract(response, extraction)
        assert not extracted or all_of(equivalent(gold, text) for text in extracted) is not True
        assert time.process_time() - start < 1.0, response[:80]
