"""Test the display of samples: trained tokens, priorities and reasons from the records, hostile text as text."""

import io
import json
import math
import re

import pytest
from rich.console import Console

from d3s.common import exit_code
from d3s.report.samples import facts, load_samples, main, samples_html, samples_table, token_priorities
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE, write_samples


def test_tokens_without_priority_have_none():
    record = {"tokens": ["a", "b", "c", "d"], "priorities": [0.5, None, math.nan]}
    assert token_priorities(record) == [0.5, None, None, None]
    assert token_priorities({"response": "no tokens"}) == [None]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reward 1 · A +1.50, rank 2 to 5 of 64 in the group · 1 of 2 tokens trained, priority ≥ 0.25"),
        (
            {"rank": [2, 2, 64], "threshold": None},
            "reward 1 · A +1.50, rank 2 of 64 in the group · 1 of 2 tokens trained",
        ),
        (
            {"reason": "why"},
            "reward 1 · A +1.50, rank 2 to 5 of 64 in the group · 1 of 2 tokens trained, priority ≥ 0.25 · why",
        ),
        ({"rank": None, "selected": False, "reason": "cut"}, "reward 1 · A +1.50 · dropped · cut"),
    ],
)
def test_facts_say_what_was_decided(changes, expected):
    record = {"reward": 1, "advantage": 1.5, "rank": [2, 5, 64], "compared": "group", "selected": True, "reason": ""}
    record |= {"tokens": ["a", "b"], "trained": [True, False], "threshold": 0.25} | changes
    assert facts({key: value for key, value in record.items() if value is not None}) == expected


def test_colors_span_the_priorities_of_any_rule():
    """Of negative priorities the lowest has no color and the highest the full one; marks alone have no color."""
    record = {"tokens": ["a", "b", "c"], "priority": "my_rules:unlikely", "priorities": [-4.0, -2.0, -1.0]}
    html = samples_html([record])
    assert re.findall(r"--h:([\d.]+)", html) == ["0.67", "1.00"] and "my_rules:unlikely from -4 to -1" in html
    marked = samples_html([{"tokens": ["a"], "trained": [True], "priority": "", "priorities": []}])
    assert "--h" not in marked and 'class="scale"' not in marked and marked.count('class="tok kept"') == 2


def test_terminal_marks_trained_tokens_safely(tmp_path):
    write_samples(tmp_path, 3, (HOSTILE, "12+3"))
    step, records = load_samples(tmp_path)
    records[0]["trained"] = [False] * len(HOSTILE)
    records[1] |= {"selected": True, "trained": [True, False, False, True]}
    console = Console(width=200, file=io.StringIO())
    console.print(samples_table(records, brackets=True))
    out = console.file.getvalue()
    assert step == 3 and "⟦1⟧2+⟦3⟧" in out and "2 of 4 tokens trained" in out
    console = Console(width=200, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(samples_table(records, brackets=False))
    reversed_text = re.findall(r"\x1b\[(?:\d+;)*7(?:;\d+)*m([^\x1b]*)", console.file.getvalue())
    assert reversed_text == ["1", "3"]
    assert "<script>alert(1)</script> $x^2$ | **b** ␛[2J � [red]" in out


def test_kept_responses_are_first(tmp_path):
    """The second of four responses was dropped; the third was kept without a trained token."""
    write_samples(tmp_path, 3)
    path = tmp_path / "samples/step_000003.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[2]["trained"] = [False] * len(records[2]["tokens"])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    loaded = [record["response"] for record in load_samples(tmp_path)[1]]
    assert loaded == [records[i]["response"] for i in (0, 3, 2, 1)]


def test_page_boxes_trained_tokens_colored_by_priority(tmp_path):
    write_samples(tmp_path, 3)
    _, records = load_samples(tmp_path, 3)
    html = samples_html(records)
    assert html.count('class="tok kept"') == 1 + sum(sum(record["trained"]) for record in records)  # 1 in the key
    records.sort(key=lambda record: record["problem"])  # the page groups them
    top = max(p for r in records for p in r["priorities"])
    levels = [p / top for r in records for p in r["priorities"]]
    assert re.findall(r"--h:([\d.]+)", html) == [f"{level:.2f}" for level in levels if level >= 0.01]
    assert re.findall(r'class="response ([\w ]+)"', html) == ["right", "wrong dropped", "wrong", "right"]
    assert html.count("<h3>") == 2  # the problems


def show(*arguments: object) -> int:
    return exit_code(lambda: main([str(argument) for argument in arguments]))


def test_samples_command(tmp_path, capsys):
    write_samples(tmp_path, 3)
    write_samples(tmp_path, 12, (HOSTILE, HOSTILE))
    assert show(tmp_path, "--html", tmp_path / "page.html") == 0
    page = check_page(tmp_path / "page.html")
    assert f"{tmp_path.name}: samples of step 12" in page.texts
    assert show(tmp_path, "--step", 3, "--limit", 1) == 0
    odd = {
        "problem": 1, "reward": "x", "advantage": None, "tokens": "abc", "entropies": [[]], "trained": 1, "rank": [1],
        "n": 1.5, "priorities": ["x"], "response": "r",
    }  # fmt: skip
    nan = {
        "problem": "p", "advantage": 1.0, "tokens": ["r"], "priorities": [math.nan], "trained": [True],
        "reward": 1e999,
    }  # fmt: skip
    file = tmp_path / "samples" / "step_000020.jsonl"
    file.write_text(json.dumps(odd) + "\n" + json.dumps(nan) + "\n")
    (tmp_path / "samples" / "step_last.jsonl").write_text("{}")
    for more in ([], ["--html", tmp_path / "odd.html"]):
        assert show(tmp_path, *more) == 0
    file.write_text("")
    assert show(tmp_path) == 2 and "step_000020.jsonl: no samples in it" in capsys.readouterr().err
    file.unlink()
    assert show(tmp_path, "--limit", 0) == 2 and "--limit: got 0, expected at least 1" in capsys.readouterr().err
    assert show(tmp_path, "--step", 4) == 2
    assert f"--step: got 4, expected a step with samples in {tmp_path}: 3, 12" in capsys.readouterr().err
    assert show(tmp_path, "--html", tmp_path / "gone" / "page.html") == 2
    assert "page.html: cannot be written (No such file or directory); choose another" in capsys.readouterr().err
    assert show(tmp_path / "nowhere") == 2
