"""Test the pictures: PNG headers, titles against the metrics, labels that do not overlap."""

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from d3s.report.png import draw_demo_picture, draw_sheet, separate_labels, summary_facts, summary_title
from d3s.report.runs import group_runs, load_runs
from tests.helpers.run_directories import write_run, write_small_run


def test_demo_picture_is_a_png_of_fixed_size(tmp_path):
    run = write_run(tmp_path / "run", steps=40)
    assert draw_demo_picture(run) == run / "report.png"
    header = (run / "report.png").read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:24])
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and (width, height) == (2048, 1024)


def test_summary_states_gain_and_share_of_tokens(tmp_path):
    run = write_run(tmp_path / "run")
    (loaded,) = load_runs([run])
    assert summary_title(loaded, "precedence") == "Pass@1 from 35% to 74% in 130 steps"
    assert summary_facts(loaded, "precedence")[:2] == [
        "precedence, 256 held-out problems, 8 samples each",
        "trained on 8.8% of 2.06M generated tokens",
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_separate_labels_keeps_order_and_gap(values):
    heights = separate_labels(values, 0.1)
    ordered = sorted(zip(values, heights), reverse=True)
    assert all(height <= value for value, height in ordered)
    tops = sorted(heights, reverse=True)
    assert all(a - b >= 0.1 - 1e-9 for a, b in pairwise(tops))
    assert separate_labels([0.9, 0.2], 0.1) == [0.9, 0.2]


def test_summary_of_a_run_without_results(tmp_path):
    (run,) = load_runs([write_small_run(tmp_path / "young", None)])
    assert summary_title(run, None) == "young at step 1" and summary_facts(run, None) == []


def test_sheet_is_a_png_as_wide_as_planned(tmp_path):
    groups = group_runs(load_runs([write_run(tmp_path / "a", steps=20), write_run(tmp_path / "b", steps=20, kind="b")]))
    header = draw_sheet(groups, ["step", "tokens"], "title", tmp_path / "sheet.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", header[16:20]) == (2080,)
