"""Types of options, against the values that each must accept and refuse."""

import math

import pytest
from pydantic import TypeAdapter, ValidationError

from d3s.config.fields import (
    MOST,
    Arguments,
    AtLeastTwo,
    Count,
    Fraction,
    Integer,
    Number,
    Positive,
    Section,
    Switch,
    WeightedName,
)

ACCEPTED = [
    (Number, "1e-6", 1e-6),
    (Positive, MOST, MOST),
    (WeightedName, ["a:b", "1e-3"], ("a:b", 1e-3)),
    (WeightedName, ("a:b", -2), ("a:b", -2.0)),
    (Arguments, {"a": "x", "b": 1, "c": 0.5, "d": False}, {"a": "x", "b": 1, "c": 0.5, "d": False}),
]
REFUSED = [
    *((kind, True) for kind in (Number, Fraction, Integer, Count, Positive)),
    *((Integer, value) for value in (3.0, "3")),
    *((Switch, value) for value in (1, "true")),
    *((kind, value) for kind, value in ((Fraction, 0), (Count, -1), (Count, MOST + 1), (AtLeastTwo, 1))),
    *((WeightedName, value) for value in (None, ["a:b"], ["a:b", True], ["a:b", "x"], ["a:b", math.inf], [1, "a:b"])),
    *((Arguments, value) for value in ("x", {1: "x"}, {"a": [1]}, {"a": math.nan})),
]


@pytest.mark.parametrize(("kind", "value", "expected"), ACCEPTED)
def test_value_is_accepted(kind, value, expected):
    assert TypeAdapter(kind).validate_python(value) == expected


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_value_is_refused(kind, value):
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(value)


def test_section_refuses_unknown_keys_bad_defaults_and_infinity():
    class Options(Section):
        rate: Number = 1.0
        """A rate."""

    class BadDefault(Section):
        count: Positive = 0

    assert Options.model_fields["rate"].description == "A rate."
    for options in ({"rat": 1}, {"rate": float("inf")}, {"rate": float("nan")}):
        with pytest.raises(ValidationError):
            Options(**options)
    with pytest.raises(ValidationError):
        BadDefault()
