"""Test the pictures: labels that do not overlap; bars, frames and the response of a step, against its records."""

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from d3s.common import UserError
from d3s.report.method_png import DROPPED, draw_method_picture
from d3s.report.png import separate_labels
from d3s.report.samples import load_samples
from d3s.report.theme import INK, SERIES
from tests.helpers.run_directories import HOSTILE, write_samples


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_separate_labels_keeps_order_and_gap(values):
    heights = separate_labels(values, 0.1)
    ordered = sorted(zip(values, heights), reverse=True)
    assert all(height <= value for value, height in ordered)
    assert all(a - b >= 0.1 - 1e-9 for (_, a), (_, b) in pairwise(ordered))
    assert separate_labels([0.9, 0.2], 0.1) == [0.9, 0.2]


def test_step_picture_shows_what_was_selected(tmp_path, monkeypatch):
    """Bars fall, of equal advantages the kept one is outside; trained tokens of the right response are framed."""
    write_samples(tmp_path, 3)
    records, figures = load_samples(tmp_path)[1], []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    draw_method_picture([*records, records[-1] | {"advantage": 0.51, "selected": False}], "|A|×H", io.BytesIO())
    patches = [patch for ax in figures[0].axes for patch in ax.patches]
    bars, boxes = ([patch for patch in patches if type(patch) is kind] for kind in (Rectangle, FancyBboxPatch))
    assert [bar.get_height() for bar in bars] == [1.32, 0.51, 0.51, -0.74, -1.9]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [SERIES[0], SERIES[0], DROPPED, DROPPED, SERIES[1]]
    shown = next(record for record in records if record["advantage"] == 1.32)
    assert [to_hex(box.get_edgecolor()) == INK for box in boxes] == shown["trained"]
    strongest = max(range(len(boxes)), key=shown["priorities"].__getitem__)
    assert min(range(len(boxes)), key=lambda i: boxes[i].get_facecolor()[2]) == strongest


def test_step_picture_is_reproducible_or_refused(tmp_path):
    write_samples(tmp_path, 3, (HOSTILE, "12+3"))
    records = load_samples(tmp_path)[1]
    files = [draw_method_picture(records, "|A|×H", tmp_path / f"{i}.png") for i in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(UserError, match="--png: got no response"):
        draw_method_picture([record | {"priorities": []} for record in records], "", tmp_path / "x.png")
