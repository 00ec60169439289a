"""Test the picture of a step's selection: bars, frames and the response shown, against the records."""

import io

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

from d3s.common import UserError
from d3s.report.method_png import DROPPED, draw_method_picture
from d3s.report.samples import load_samples
from d3s.report.theme import INK, SERIES
from tests.helpers.run_directories import HOSTILE, write_samples


def patches(monkeypatch, records, kind):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    draw_method_picture(records, "|A|×H", io.BytesIO())
    return [patch for ax in figures[0].axes for patch in ax.patches if type(patch) is kind]


def test_bars_fall_and_dropped_rollouts_are_gray(tmp_path, monkeypatch):
    """Of equal advantages the kept rollout is outside: 0.51 twice, the second of them dropped."""
    write_samples(tmp_path, 3)
    records = load_samples(tmp_path)[1]
    records.append(records[-1] | {"advantage": 0.51, "selected": False})
    bars = patches(monkeypatch, records, Rectangle)
    assert [bar.get_height() for bar in bars] == [1.32, 0.51, 0.51, -0.74, -1.9]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [SERIES[0], SERIES[0], DROPPED, DROPPED, SERIES[1]]


def test_trained_tokens_of_the_right_response_are_framed(tmp_path, monkeypatch):
    write_samples(tmp_path, 3)
    records = load_samples(tmp_path)[1]
    shown = next(record for record in records if record["advantage"] == 1.32)
    boxes = patches(monkeypatch, records, FancyBboxPatch)
    assert [to_hex(box.get_edgecolor()) == INK for box in boxes] == shown["trained"]
    strongest = max(range(len(boxes)), key=shown["priorities"].__getitem__)
    assert min(range(len(boxes)), key=lambda i: boxes[i].get_facecolor()[2]) == strongest


def test_picture_is_reproducible_and_wide_enough_for_its_tokens(tmp_path):
    write_samples(tmp_path, 3, (HOSTILE, "12+3"))
    records = load_samples(tmp_path)[1]
    files = [draw_method_picture(records, "|A|×H", tmp_path / f"{i}.png") for i in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert Image.open(files[0]).width == 1376


def test_steps_without_priorities_are_refused(tmp_path):
    write_samples(tmp_path, 3)
    records = [record | {"priorities": []} for record in load_samples(tmp_path)[1]]
    with pytest.raises(UserError, match="--png: got no response"):
        draw_method_picture(records, "", tmp_path / "x.png")
