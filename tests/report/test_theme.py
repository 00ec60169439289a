"""Test the colors by the WCAG contrast formula, and the phases against those of the trainer."""

import re
from pathlib import Path

import matplotlib
import pytest

from d3s.report.theme import DARK_PHASES, DARK_SERIES, FONTS, INK, MUTED, PHASES, SERIES, css_variables, style

ROOT = Path(__file__).resolve().parents[2]


def luminance(color: str) -> float:
    """Return the relative luminance of "#rrggbb", as WCAG 2 defines it."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(color: str, background: str) -> float:
    high, low = sorted((luminance(color), luminance(background)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_text_and_curves_is_sufficient():
    css = (ROOT / "d3s/report/page.css").read_text()
    light, dark = re.findall(r"--page: (#[0-9a-f]{6})", css)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert min(contrast(color, light) for color in (INK, MUTED)) >= 4.5  # text
    assert min(contrast(color, light) for color in SERIES) >= 3  # graphics
    assert min(contrast(color, dark) for color in DARK_SERIES) >= 3


def test_phases_are_those_that_the_trainer_measures():
    source = "\n".join(path.read_text() for path in (ROOT / "d3s").glob("*.py"))
    measured = set(re.findall(r'timed\("(\w+)"\)', source)) | set(re.findall(r'seconds\["(\w+)"\]', source))
    assert measured - {"step"} == set(PHASES) - {"other"}


def test_palettes_of_both_modes_have_the_same_names():
    assert list(PHASES) == list(DARK_PHASES) and len(SERIES) == len(DARK_SERIES)
    light, dark = css_variables(), css_variables(dark=True)
    assert (
        list(light) == list(dark) and light["phase-update"] == PHASES["update"] and dark["series-1"] == DARK_SERIES[1]
    )
    assert len(set(light.values())) == len(light)  # an SVG maps each color back to one variable


def test_style_is_accepted_by_matplotlib():
    with matplotlib.rc_context(style()):
        assert matplotlib.rcParams["font.family"][-1] == FONTS[-1] and matplotlib.rcParams["text.color"] == INK
