"""Results of a data set and their table, against counts by hand."""

import pytest

from d3s.evaluate.files import Sample
from d3s.evaluate.results import metric_values, summarize

CORRECT, WRONG = Sample("", "2", 1.0, 5, True), Sample("", "3", 0.0, 9, True)
CUT = Sample("", None, 0.0, 20, False)


def test_summary_matches_manual_counts():
    result = summarize([[CORRECT, CORRECT, WRONG], [WRONG, CUT, WRONG]], "unit", (1, 3))
    assert {name: e.value for name, e in result.estimates.items()} == pytest.approx(
        {"pass@1": 1 / 3, "pass@3": 1 / 2, "avg@n": 1 / 3, "maj@n": 1 / 2}
    )
    assert (result.data, result.n, result.problems, result.right) == ("unit", 3, 2, [2, 0])
    assert result.mean_length == pytest.approx(57 / 6) and result.truncated == result.no_answer == 1 / 6
    record = result.record()
    assert list(record)[:5] == ["data", "n", "problems", "pass@1", "pass@1_ci"]
    assert record["pass@1_ci"] == [result.estimates["pass@1"].low, result.estimates["pass@1"].high]
    with pytest.raises(ValueError, match="pass@4 of 3 samples"):
        summarize([[CORRECT] * 3], "unit", (4,))


def test_partial_scores_are_not_right():
    """Partial scores count in the average alone, scores above 1 as right. An empty answer is an answer."""
    group = [Sample("", answer, score, 5, True) for answer, score in (("2", 0.5), ("", 1.0), ("3", 0.0), ("4", 1.5))]
    result = summarize([group], "unit", (1,))
    assert result.right == [2] and result.no_answer == 0
    assert {name: e.value for name, e in result.estimates.items()} == {"pass@1": 0.5, "avg@n": 0.75, "maj@n": 0}


def test_only_the_first_voters_vote():
    groups = [[WRONG, CORRECT, CORRECT], [CORRECT, WRONG, WRONG]]
    assert metric_values(groups, (1,))["maj@n"].tolist() == [1, 0]
    assert metric_values(groups, (1,), voters=1)["maj@n"].tolist() == [0, 1]
    assert metric_values(groups, (1,), voters=1)["pass@1"].tolist() == pytest.approx([2 / 3, 1 / 3])
