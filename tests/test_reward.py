"""The terms of a reward and the sum of several functions, against given values and published formulas."""

from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.config.schema import LENGTH, RewardConfig
from d3s.reward import RewardFunction, Scored, boxed, overlong, shorter

HERE = f"{__name__}:"


def length_of(response, answer):
    return len(response)


def number_of(response, answer):
    return float(response)


def reads_row(response, answer, row):
    return Scored(row["level"], {"doubled": 2 * row["level"]}, [(0, 1, row["level"])])


@pytest.mark.slow
def test_functions_are_weighted_and_named():
    """The verdict is the value of the first; spans are weighted too. Lenient extraction reads an answer without a box.

    A call alone, for evaluations, is without the weight.
    """
    names = [[HERE + "length_of", 0.5], [HERE + "reads_row", -2], "verify"]
    reward_function = RewardFunction(RewardConfig(functions=names, extraction="lenient", workers=1), 100)
    outcome = reward_function.submit("It is 5.", "5", {"level": 3})()
    assert outcome.reward == 0.5 * 8 - 2 * 3 + 1 and outcome.verdict == 8
    assert outcome.parts == {"length_of": 8, "reads_row": 3, "verify": 1, "reads_row/doubled": 6}
    assert outcome.spans == {"reads_row": [(0, 1, -6)]}
    scores = reward_function.score_functions()
    assert [scores[HERE + name]("four", "5", {"level": 3}).result() for name in ("length_of", "reads_row")] == [4, 3]
    assert reward_function.take_stats()["decided"] == 1 and not any(reward_function.take_stats().values())
    reward_function.close()


class Places:
    """Scores 1 at once, with a span; in a group, by the place of the response, or not at all for the answer "alone"."""

    def submit(self, response, answer):
        future = Future()
        future.set_result(Scored(1, {"kept": 3, "replaced": 4}, [(0, 1, 0.5)]))
        return future

    def score_group(self, responses, answer, row):
        if answer == "alone":
            return None
        parts = {"replaced": row["level"]}
        return [Scored(row["level"] + place, parts, [(0, 1, 0.25)] * place) for place in range(len(responses))]

    def take_stats(self):
        return {}

    def close(self):
        pass


@pytest.mark.parametrize("first", [True, False])
def test_group_scores_replace_values(first):
    names = [[HERE + "Places", 2], HERE + "length_of"]
    config = RewardConfig(functions=names if first else names[::-1], length={"rule": "overlong", "buffer": 0.5})
    reward_function, responses = RewardFunction(config, 10), ["a", "bbb"]
    before = [reward_function.submit(response, "5")() for response in responses]
    assert [o.reward for o in before] == [2 + 1, 2 + 3]
    alone = reward_function.score_group(list(before), responses, [10, 10], "alone", {})
    assert [o.reward for o in alone] == [2 + 1 - 1, 2 + 3 - 1]
    after = reward_function.score_group(list(before), responses, [10, 10], "5", {"level": 7})
    assert [o.reward for o in after] == [14 + 1 - 1, 16 + 3 - 1]
    parts = {"Places/kept": 3, "Places/replaced": 7, LENGTH: -1}
    assert [o.parts for o in after] == [parts | {"Places": 7 + i, "length_of": 1 + 2 * i} for i in range(2)]
    assert [o.verdict for o in after] == ([7, 8] if first else [1, 3])
    assert [o.spans for o in alone] == [{"Places": [(0, 1, 1)]}] * 2
    assert [o.spans for o in after] == [{}, {"Places": [(0, 1, 0.5)]}]
    assert [o.parts["Places"] for o in before] == [1, 1]
    reward_function.close()


def test_equal_names_are_told_apart():
    paths = ["one:score", "two.three:score", "two:other"]
    names = RewardConfig(functions=paths).function_names()
    assert names == dict(zip(("one.score", "two.three.score", "other"), paths))


def test_boxed_needs_one_box_after_thinking():
    assert boxed(r"so \boxed{5}", "5") == 1.0
    assert [boxed(t, "5") for t in ("5", r"\boxed{}", r"\boxed{5} or \boxed{6}", r"\boxed{5}</think>")] == [0.0] * 4


@pytest.mark.parametrize(("fraction", "limit", "tokens"), [(0.2, 64, 13), (1, 12, 12), (0.001, 100, 1)])
def test_overlong_follows_dapos_formula(fraction, limit, tokens):
    lengths = list(range(limit + 9))
    expected = [-0.5 * min(1, max(0, length - (limit - tokens)) / tokens) for length in lengths]
    assert overlong(lengths, limit, fraction, 0.5) == pytest.approx(expected)


def test_shorter_follows_arora_and_zanette():
    """Against NumPy on the right responses; the longest response is wrong and counts for nothing.

    Of equal lengths each loses half of alpha.
    """
    alpha = 0.8
    config = RewardConfig(functions=[HERE + "number_of"], length={"rule": "shorter", "alpha": alpha})
    reward_function = RewardFunction(config, 100)
    texts, lengths = ["1", "0", "1", "1", "0.5", "1"], [10, 10**6, 30, 20, 15, 90]
    outcomes = [reward_function.submit(text, "")() for text in texts]
    got = reward_function.score_group(outcomes, texts, lengths, "", {})
    right = np.array([10, 30, 20, 90])
    expected = 1 - alpha / (1 + np.exp(-(right - right.mean()) / right.std()))
    assert [o.reward for o in got] == pytest.approx([expected[0], 0, expected[1], expected[2], 0.5, expected[3]])
    assert [o.verdict for o in got] == [float(text) for text in texts]
    reward_function.close()
    for right in ([True, True], [True, False], [False, False]):
        assert shorter([7, 7], right, alpha=0.5) == [-0.25 * is_right for is_right in right]


@given(st.lists(st.tuples(st.integers(0, 10**9) | st.integers(0, 3), st.booleans()), min_size=1, max_size=40))
def test_shorter_is_bounded_and_ordered_for_all_lengths(responses):
    """Also for wrong responses that are thousands of deviations away from the right ones."""
    lengths, right = (list(column) for column in zip(*responses))
    terms = shorter(lengths, right, alpha=0.8)
    losses = [-term for _, term in sorted(zip(lengths, terms)) if term]
    assert all(0 <= loss <= 0.8 for loss in losses) and len(losses) == sum(right)
    assert losses == pytest.approx(sorted(losses)) and all(term == 0 for term, r in zip(terms, right) if not r)
    assert shorter([1000, 200], [True, False], 0.1) == [-0.05, 0.0]
