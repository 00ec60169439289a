"""Which responses the hopeless rule stops: shares of hand-made responses, verdicts of written answers."""

import pytest

from d3s.data.synthetic import TASKS
from d3s.rollout.engine import Rollout
from d3s.tiny import byte_tokenizer
from research import hopeless_bias
from research.hopeless_bias import sample, shares


def rollout(tokens: int, stopped: bool = False) -> Rollout:
    return Rollout(0, [1], [2] * tokens, [], [], not stopped, stopped=stopped)


def test_shares_are_of_right_and_of_wrong_responses():
    """Five responses of 10 tokens: one of two right ones is stopped after 4, two of three wrong ones after 2."""
    full = [rollout(10) for _ in range(5)]
    stopped = [rollout(10), rollout(4, True), rollout(2, True), rollout(10), rollout(2, True)]
    values = shares(full, stopped, right=[True, True, False, False, False])
    assert values == pytest.approx((2 / 5, 1 / 2, 2 / 3, 22 / 50))


def test_shares_without_right_responses_are_zero():
    assert shares([rollout(4)], [rollout(1, True)], right=[False]) == pytest.approx((0, 0, 1, 0.75))


class WritingEngine:
    """Writes the gold answer after a false step, then a wrong answer; ends a response where the rule says so."""

    def __init__(self, *_, **__) -> None:
        self.answers = [answer for _, answer, _ in TASKS["precedence"].draw("validation", 2, 0)]

    def generate(self, prompts, n, params, seeds, *, hopeless):
        rollouts = []
        for index, answer in enumerate(self.answers):
            for sample_index, final in enumerate((answer, "999")):
                ids = byte_tokenizer().encode(f"0+0=1; \\boxed{{{final}}}")
                ends = [i for i in range(1, len(ids)) if hopeless and hopeless(index, ids[:i])]
                kept = ids[: ends[0]] if ends else ids
                made = Rollout(index, prompts[index], kept, [], [], not ends, sample_index, stopped=bool(ends))
                rollouts.append(made)
        return rollouts


def test_responses_are_judged_by_their_full_text(monkeypatch):
    """A right answer counts as right although the rule stops it at its false step, six tokens after the start."""
    monkeypatch.setattr(hopeless_bias, "TransformersEngine", WritingEngine)
    monkeypatch.setattr(hopeless_bias, "PROBLEMS", 2)
    full, stopped, right = sample("no model", "precedence")
    assert right == [True, False, True, False]
    assert [len(r.response_ids) for r in stopped] == [len("0+0=1;")] * 4 and all(r.stopped for r in stopped)
    assert not any(r.stopped for r in full)
