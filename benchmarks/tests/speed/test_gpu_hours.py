"""GPU-hours and seconds of a step: the page has the command's tables, and a run's rates replace the published ones."""

import json
import sys

import pytest

from benchmarks.speed.gpu_hours import (
    COLUMNS,
    PAGE,
    Column,
    hours_table,
    main,
    measured,
    page_rows,
    row_config,
    run_hours,
    steps_table,
)


def test_page_has_the_tables():
    text = PAGE.read_text()
    assert hours_table(COLUMNS) in text and steps_table(COLUMNS) in text


def test_rates_at_8b_are_those_that_were_measured():
    """GRPO's first row without evaluations has 1,581 tokens per second and card."""
    name, g, arguments = page_rows()[0]
    column = COLUMNS["Llama 8B"]
    config = row_config(column.config, column.responses, g, [*arguments, "eval.every=0", "eval.data=[]"])
    seconds = 3600 * sum(run_hours(config, column))
    assert name == "grpo" and config.train.steps * column.responses * column.length / seconds == pytest.approx(
        1581, 0.01
    )


def test_seconds_of_a_step_by_hand():
    """2,048 responses of 500 tokens at 2,000 tokens per second and card; twice the MFU halves what the update takes."""

    def first_step(mfu):
        table = steps_table({"small": Column("qwen2.5-math-1.5b", 2, 2048, 2000, mfu, length=500)})
        label, generate, logprobs, update, sync = table.splitlines()[2].strip("| ").split(" | ")
        seconds = [float(cell.split()[0]) for cell in (generate, logprobs, update, sync)]
        assert label == f"small, 2 x H100, first: {sum(seconds):.0f} s"
        return seconds

    slow, fast = first_step(0.01), first_step(0.02)
    assert slow[0] == 2048 * 500 / 2000 / 2
    assert fast[1:3] == pytest.approx([cell / 2 for cell in slow[1:3]], abs=0.1)


def test_rates_are_the_medians_of_the_run(tmp_path, monkeypatch, capsys):
    """Of one, 20 and 30 tokens per second on 8 cards, and lengths of 100 to 300."""
    file = tmp_path / "metrics.jsonl"
    steps = [
        {
            "selection/tokens_total": 8 * tokens * 2,
            "time/generate": 2.0,
            "throughput/mfu": mfu,
            "completion/length": length,
        }
        for tokens, mfu, length in ((1, 0.1, 100), (20, 0.3, 200), (30, 0.4, 300))
    ]
    file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    column = measured(COLUMNS["7B"], file)
    assert (column.tokens_per_s, column.mfu, column.length) == (20, 0.3, 200)
    before = PAGE.read_text()
    monkeypatch.setattr(sys, "argv", ["gpu_hours.py", "--measured", "7B", str(file)])
    main()
    assert steps_table({"7B": column}) in capsys.readouterr().out and PAGE.read_text() == before
