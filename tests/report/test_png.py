"""Test the pictures: PNG headers, titles against the metrics, labels that do not overlap."""

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from d3s.report.png import draw_demo_picture, separate_labels
from tests.helpers.run_directories import write_run


def test_demo_picture_is_a_png_of_fixed_size(tmp_path):
    run = write_run(tmp_path / "run", steps=40)
    assert draw_demo_picture(run) == run / "report.png"
    header = (run / "report.png").read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:24])
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and (width, height) == (2048, 1024)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_separate_labels_keeps_order_and_gap(values):
    heights = separate_labels(values, 0.1)
    ordered = sorted(zip(values, heights), reverse=True)
    assert all(height <= value for value, height in ordered)
    tops = sorted(heights, reverse=True)
    assert all(a - b >= 0.1 - 1e-9 for a, b in pairwise(tops))
    assert separate_labels([0.9, 0.2], 0.1) == [0.9, 0.2]
