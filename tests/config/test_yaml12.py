"""Scalars of YAML 1.2, against the table of its core schema and against PyYAML's 1.1 for what is dumped."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from d3s.config import yaml12

SCALARS = {  # from the table of section 10.3.2, and what 1.1 reads as a number, a switch or a date
    "010": 10, "-07": -7, "+12": 12, "0o17": 15, "0x1F": 31, "0": 0,
    "1e-6": 1e-6, "2E3": 2000.0, "-.5": -0.5, "3.": 3.0, "+1.5e+2": 150.0, ".inf": math.inf, "-.INF": -math.inf,
    "true": True, "FALSE": False, "null": None, "~": None, "": None, "Null": None,
    "1:30": "1:30", "1:30.5": "1:30.5", "yes": "yes", "No": "No", "on": "on", "OFF": "OFF", "y": "y",
    "0b11": "0b11", "1_000": "1_000", "2024-01-31": "2024-01-31", "1e": "1e", "0x": "0x", "tRue": "tRue", "=": "=",
}  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_follow_the_core_schema(text):
    expected = SCALARS[text]
    assert yaml12.load(f"'{text}'") == text
    for value in (yaml12.load(text), yaml12.load(f"[a, {text}]")[-1] if text else None, yaml12.load(f"k: {text}")["k"]):
        assert value == expected and type(value) is type(expected)


def test_merge_keys_remain():
    assert yaml12.load("a: &x {b: 1}\nc: {<<: *x, d: 2}")["c"] == {"b": 1, "d": 2}


numbers = st.integers() | st.floats(allow_nan=False)
words = st.text(max_size=8) | st.sampled_from(list(SCALARS)) | st.from_regex(r"[-+0-9.:eExo_]{1,6}", fullmatch=True)


@given(st.dictionaries(st.text("abc", min_size=1), numbers | words | st.booleans() | st.none() | st.lists(words)))
def test_dumps_read_the_same_under_both_versions(value):
    for load in (yaml12.load, yaml.safe_load):
        assert load(yaml12.dump(value)) == value
