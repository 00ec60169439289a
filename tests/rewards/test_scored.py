"""Values of reward functions: which are accepted, and what is said of others."""

import re

import numpy as np
import pytest
import torch

from d3s.rewards.scored import InvalidValue, Scored, as_scored, as_spans


class Unprintable:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, 1), (2, 2), (np.float32(0.25), 0.25), (np.array(3), 3), (torch.tensor(0.5), 0.5), (-1e12, -1e12)],
)
def test_numbers_of_all_types_become_floats(value, expected):
    total = as_scored(value, "text").total
    assert type(total) is float and total == expected
    scored = as_scored(Scored(value, {"part": value}, [(0, 4, value)]), "text")
    assert scored == Scored(expected, {"part": expected}, ((0, 4, expected),))


@pytest.mark.parametrize(
    "value",
    [None, "1.0", float("nan"), float("inf"), -1e300, 10**5000, 1j, [1.0], np.ones(1), torch.ones(2), Unprintable()],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_refused(value):
    for returned in (value, Scored(value), Scored(1.0, {"part": value}), Scored(1.0, {}, [(0, 1, value)])):
        with pytest.raises(InvalidValue) as refused:
            as_scored(returned, "text")
        assert "finite number from -1e+12 to 1e+12" in refused.value.expected and len(refused.value.value) < 120


def test_impossible_spans_are_refused():
    for span in ((0, 5, 1.0), (-1, 2, 1.0), (2, 2, 1.0), (0, 1), (0.0, 1, 1.0), 3):
        with pytest.raises(InvalidValue) as refused:
            as_spans([span], "text")
        assert refused.value.value == f"the span {span}" and "0 <= start < end <= 4" in refused.value.expected
    for spans in ("ab", {(0, 1, 1.0)}, None):
        with pytest.raises(InvalidValue, match=re.escape(f"the spans {spans!r}")):
            as_scored(Scored(1.0, spans=spans), "text")


def test_impossible_parts_are_refused():
    for parts, shown in (({"a b": 1.0}, "the name 'a b'"), ({3: 1.0}, "the name 3"), ([1.0], "parts [1.0]")):
        with pytest.raises(InvalidValue, match=re.escape(shown)):
            as_scored(Scored(1.0, parts=parts), "text")
