"""Types of options, against the values that each must accept and refuse."""

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from d3s.config.fields import MOST, Arguments, Count, Integer, Number, Positive, Section, Switch, WeightedName


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Number, "1e-6", 1e-6),
        (Positive, MOST, MOST),
        (WeightedName, ["a:b", "1e-3"], ("a:b", 1e-3)),
        (WeightedName, ("a:b", -2), ("a:b", -2.0)),
        (Arguments, {"a": "x", "b": 1, "c": 0.5, "d": False}, {"a": "x", "b": 1, "c": 0.5, "d": False}),
    ],
)
def test_value_is_accepted(kind, value, expected):
    assert TypeAdapter(kind).validate_python(value) == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Number, [True]),
        (Integer, [True, 3.0, "3"]),
        (Count, [-1, MOST + 1]),
        (Switch, [1, "true"]),
        (WeightedName, [None, ["a:b"], ["a:b", True], ["a:b", "x"], ["a:b", math.inf], [1, "a:b"]]),
        (Arguments, ["x", {1: "x"}, {"a": [1]}, {"a": math.nan}]),
    ],
)
def test_values_are_refused(kind, values):
    for value in values:
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(value)


def test_section_validates_its_defaults():
    class BadDefault(Section):
        count: Positive = 0

    with pytest.raises(ValidationError):
        BadDefault()
