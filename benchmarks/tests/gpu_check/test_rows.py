"""Limits of the GPU check at, below and above their values."""

import math

from benchmarks.gpu_check.rows import Row, at_least, at_most, equals, within


def test_limits_hold_up_to_their_values():
    values = (0.4, 0.5, 1.0, 1.01, math.nan)
    assert [at_most("error", value, 1.0).held for value in values] == [True, True, True, False, False]
    assert [at_least("ratio", value, 0.5).held for value in values] == [False, True, True, True, False]
    assert [within("ratio", value, 0.5, 1.0).held for value in values] == [False, True, True, False, False]


def test_rows_show_value_and_limit():
    assert at_most("error", 0.12345, 0.5, "of weight") == Row("error", "0.123 (of weight)", "<= 0.5", True)
    assert at_least("cosine", 0.99999, 0.9999) == Row("cosine", "1", ">= 0.9999", True)
    assert equals("tokens", [1, 2], [1, 3]) == Row("tokens", "[1, 2]", "[1, 3]", False)
