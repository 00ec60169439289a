"""Test the display of samples: kept tokens and priorities from the records, hostile text as text."""

import io
import json
import math
import re

from rich.console import Console

from d3s.common import exit_code
from d3s.report.samples import load_samples, main, samples_html, samples_table, token_priorities
from tests.helpers.html_page import check_page
from tests.helpers.run_directories import HOSTILE, write_samples


def test_priority_is_advantage_times_entropy():
    record = {"advantage": -2.0, "tokens": ["a", "b", "c"], "entropies": [0.5, None], "kept": [True]}
    assert token_priorities(record) == [1.0, 0.0, 0.0]
    assert token_priorities({"response": "no tokens"}) == [0.0]


def test_terminal_marks_kept_tokens_safely(tmp_path):
    write_samples(tmp_path, 3, (HOSTILE, "12+3"))
    step, records = load_samples(tmp_path)
    records[0]["kept"] = [False] * len(HOSTILE)
    records[1] |= {"selected": True, "kept": [True, False, False, True]}
    console = Console(width=200, file=io.StringIO())
    console.print(samples_table(records, brackets=True))
    out = console.file.getvalue()
    assert step == 3 and "⟦1⟧2+⟦3⟧" in out and "2/4" in out
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
    records[2]["kept"] = [False] * len(records[2]["tokens"])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    loaded = [record["response"] for record in load_samples(tmp_path)[1]]
    assert loaded == [records[i]["response"] for i in (0, 3, 2, 1)]


def test_page_boxes_kept_tokens_colored_by_priority(tmp_path):
    write_samples(tmp_path, 3)
    _, records = load_samples(tmp_path, 3)
    html = samples_html(records)
    assert html.count('class="tok kept"') == 1 + sum(sum(record["kept"]) for record in records)  # 1 in the key
    records.sort(key=lambda record: record["problem"])  # the page groups them
    top = max(abs(r["advantage"]) * h for r in records for h in r["entropies"])
    levels = [abs(r["advantage"]) * h / top for r in records for h in r["entropies"]]
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
        "problem": 1,
        "reward": "x",
        "advantage": None,
        "tokens": "abc",
        "entropies": [[]],
        "kept": 1,
        "response": "r",
    }
    nan = {"problem": "p", "advantage": 1.0, "tokens": ["r"], "entropies": [math.nan], "kept": [True], "reward": 1e999}
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
