"""The time left of an evaluation while it goes on."""

import io

from rich.console import Console

from d3s.evaluation import progress


def test_time_left_counts_the_responses_under_way(monkeypatch):
    """1,000 responses, 100 at a time, of which the first 100 end between 10 and 15 s."""
    clock, output = [0.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress, "EVERY_S", 5)
    shown = progress.EvaluationProgress(Console(file=output, width=120), {"words": 1000}, at_once=100)
    for i in range(100):
        clock[0] = 10 + i * 5 / 99
        shown.add("words", tokens=10)
    first, last = output.getvalue().splitlines()
    assert first == "1 of 1,000 responses, 1 tokens/s, about 3 min left"  # 949 / 51 of 10 s
    assert last == "100 of 1,000 responses, 67 tokens/s, about 85 s left"
