"""The table of seconds saved by carrying responses over, on lengths with a known answer."""

import json
import sys

from research import carry_over


def test_equal_lengths_save_nothing(tmp_path, capsys, monkeypatch):
    """Five positions of 8 responses at half a second and 1/16 s a response."""
    file = tmp_path / "step_000001.jsonl"
    file.write_text(json.dumps({"tokens": ["a"] * 5}) + "\n")
    options = ["--groups", "4", "--n", "2", "--call", "0.5", "--token", "0.0625", "--steps", "3"]
    monkeypatch.setattr(sys, "argv", ["carry_over.py", "--lengths", str(file), *options])
    carry_over.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows[0] == ["| 0", "5.0", "0%", "0%", "0.00 |"]
