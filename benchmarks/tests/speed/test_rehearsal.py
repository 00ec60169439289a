"""The rehearsal of the paper's scale in small: the trainer's loop runs around its stubs, and phases are counted."""

import sys

from benchmarks.speed import rehearsal


def test_two_ranks_rehearse_two_steps(monkeypatch):
    words = "--ranks 2 --steps 2 --prompts 4 --group 8 --response-tokens 64 --cases 2:0.5:32"
    published = []
    monkeypatch.setattr(sys, "argv", ["rehearsal", *words.split()])
    monkeypatch.setattr(rehearsal, "publish", lambda *arguments: published.append(arguments))
    rehearsal.main()
    [(_, _, columns, rows, record)] = published
    assert columns == ["CPU seconds of the slowest rank", "2:0.5:32"] and {len(row) for row in rows} == {2}
    for rank in record["measured"]["2:0.5:32"]:
        assert len(rank["steps"]) == 2
        for step in rank["steps"]:
            assert {"generate", "exchange", "select", "update", "sync"} <= step.keys()
            assert step["exchange"]["bytes"] > 0 and step["update"]["thread"] > 0
