"""Test the display of samples: trained tokens, priorities and reasons from the records, hostile text as text."""

import io
import math
import re

from rich.console import Console

from d3s.common import exit_code
from d3s.report.samples import facts, load_samples, main, samples_html, samples_table, token_priorities
from tests.helpers.command_line import lines
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE, write_lines, write_samples


def test_facts_say_what_was_decided():
    record = {"reward": 1, "advantage": 1.5, "tokens": ["a", "b"], "trained": [True, False], "reason": "why"}
    kept = record | {"compared": "group", "rank": [2, 5, 64], "threshold": 0.25, "selected": True}
    expected = "reward 1 · A +1.50, rank 2 to 5 of 64 in the group · 1 of 2 tokens trained, priority ≥ 0.25 · why"
    assert facts(kept) == expected and ", rank 2 of 64 in" in facts(kept | {"rank": [2, 2, 64]})
    assert facts(record | {"selected": False}) == "reward 1 · A +1.50 · dropped · why"


def test_colors_span_the_priorities_of_any_rule():
    """Of negative priorities the lowest has no color and the highest the full one; marks alone have no color."""
    known = {"tokens": ["a", "b", "c", "d"], "priorities": [0.5, None, math.nan]}
    assert token_priorities(known) == [0.5, None, None, None]
    record = {"tokens": ["a", "b", "c"], "priority": "my_rules:unlikely", "priorities": [-4.0, -2.0, -1.0]}
    html = samples_html([record])
    assert re.findall(r"--h:([\d.]+)", html) == ["0.67", "1.00"] and "my_rules:unlikely from -4 to -1" in html
    marked = samples_html([{"tokens": ["a"], "trained": [True], "priority": "", "priorities": []}])
    assert "--h" not in marked and 'class="scale"' not in marked and marked.count('class="tok kept"') == 2


def test_terminal_marks_trained_tokens_safely(tmp_path):
    write_samples(tmp_path, 3, (HOSTILE, "12+3"))
    step, records = load_samples(tmp_path)
    records[0]["trained"] = [False] * len(HOSTILE)
    records[1] |= {"selected": True, "trained": [True, True, False, True]}
    plain, colored = Console(width=200, file=io.StringIO()), Console(width=200, file=io.StringIO(), force_terminal=True)
    plain.print(samples_table(records, brackets=True))
    colored.print(samples_table(records, brackets=False))
    out = plain.file.getvalue()
    assert step == 3 and "⟦12⟧+⟦3⟧" in out and "3 of 4 tokens trained" in out
    assert "<script>alert(1)</script> $x^2$ | **b** ␛[2J � [red]" in out
    assert re.findall(r"\x1b\[(?:\d+;)*7(?:;\d+)*m([^\x1b]*)", colored.file.getvalue()) == ["1", "2", "3"]


def test_page_boxes_trained_tokens_colored_by_priority(tmp_path):
    """Kept responses are first: the second of four was dropped; the third was kept without a trained token."""
    write_samples(tmp_path, 3)
    path = tmp_path / "samples/step_000003.jsonl"
    written = lines(path)
    written[2]["trained"] = [False] * len(written[2]["tokens"])
    written[1]["reward"] = 0.1  # for its form
    write_lines(path, written)
    _, records = load_samples(tmp_path, 3)
    assert [record["response"] for record in records] == [written[i]["response"] for i in (0, 3, 2, 1)]
    html = samples_html(records)
    assert html.count('class="tok kept"') == 1 + sum(sum(record["trained"]) for record in records)  # 1 in the key
    records.sort(key=lambda record: record["problem"])  # the page groups them
    top = max(p for r in records for p in r["priorities"])
    levels = [p / top for r in records for p in r["priorities"]]
    assert re.findall(r"--h:([\d.]+)", html) == [f"{level:.2f}" for level in levels if level >= 0.01]
    assert re.findall(r'class="response ([\w ]+)"', html) == ["right", "wrong dropped", "right", "wrong"]
    assert html.count("<h3>") == 2  # the problems


def show(*arguments: object) -> int:
    return exit_code(lambda: main([str(argument) for argument in arguments]))


def test_samples_command(tmp_path, capsys):
    write_samples(tmp_path, 3)
    write_samples(tmp_path, 12, (HOSTILE, HOSTILE))
    assert show(tmp_path, "--html", tmp_path / "page.html") == 0
    assert f"{tmp_path.name}: samples of step 12" in check_page(tmp_path / "page.html").texts
    assert show(tmp_path, "--step", 3, "--limit", 1) == 0
    assert show(tmp_path, "--png", tmp_path / "step") == 0 and (tmp_path / "step.png").exists()
    assert f"{tmp_path / 'step'}.png\n" in capsys.readouterr().out
    for arguments, problem in (
        (["--limit", 0], "--limit: got 0, expected at least 1"),
        (["--step", 4], f"--step: got 4, expected a step with samples in {tmp_path}: 3, 12"),
        (["--step", 3, "--png", tmp_path / "gone" / "a.png"], "a.png: cannot be written (No such file or directory)"),
        (["--step", 3, "--png", tmp_path / "a.txt"], f"--png: {tmp_path / 'a.txt'}: Format 'txt' is not supported"),
        (["--html", tmp_path / "gone" / "page.html"], "page.html: cannot be written (No such file or directory)"),
    ):
        assert show(tmp_path, *arguments) == 2 and problem in capsys.readouterr().err
    assert show(tmp_path / "nowhere") == 2


def test_odd_records_are_shown(tmp_path, capsys):
    (tmp_path / "samples").mkdir()
    odd = {"problem": 1, "reward": "x", "advantage": None, "tokens": "abc", "entropies": [[]], "trained": 1}
    odd |= {"rank": [1], "n": 1.5, "priorities": ["x"], "response": "r"}
    nan = {"problem": "p", "advantage": 1.0, "tokens": ["r"], "priorities": [math.nan], "trained": [True]}
    file = tmp_path / "samples" / "step_000020.jsonl"
    write_lines(file, [odd, nan | {"reward": 1e999}])
    (tmp_path / "samples" / "step_last.jsonl").write_text("{}")
    assert show(tmp_path) == show(tmp_path, "--html", tmp_path / "odd.html") == 0
    file.write_text("")
    assert show(tmp_path) == 2 and "step_000020.jsonl: no samples in it" in capsys.readouterr().err
