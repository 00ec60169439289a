"""Test the colors by the WCAG contrast formula, and the phases against those of the trainer."""

import re
from pathlib import Path

from d3s.report.theme import DARK_PHASES, DARK_SERIES, PHASES, SERIES, css_variables

ROOT = Path(__file__).resolve().parents[2]


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
