"""The plateau rule on drawn accuracies, against a loop written from its rule."""

import math

from hypothesis import given
from hypothesis import strategies as st

from d3s.methods.plateau import Plateau


def decisions(evaluations, patience):
    """The progress after each evaluation: a quarter more after `patience` without a new best, by paired differences."""
    best, wait, moved = [], 0, 0
    for accuracies in evaluations:
        differences = [a - b for a, b in zip(accuracies, best)]
        mean = sum(differences) / max(1, len(differences))
        spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1))
        if len(best) != len(accuracies) or mean > spread / math.sqrt(len(differences)):  # other problems, or better
            best, wait = accuracies, 0
        else:
            wait += 1
            if wait == patience:
                wait, moved = 0, min(4, moved + 1)
        yield moved / 4


def accuracies(size):
    return st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size)


EVALUATIONS = st.lists(st.one_of(accuracies(3), st.just([0.5] * 3)), max_size=14)


@given(EVALUATIONS, st.lists(accuracies(1), max_size=4), st.integers(1, 3))
def test_plateau_follows_the_rule(evaluations, others, patience):
    """With a rule that is restored from its state after each evaluation; at the end there are other problems."""

    def new_rule():
        return Plateau(lambda progress: ("curve at", progress), patience)

    rule, before, evaluations = new_rule(), 0.0, evaluations + others
    for evaluation, expected in zip(evaluations, decisions(evaluations, patience)):
        reason = rule.observe_eval(evaluation)
        assert rule.at() == ("curve at", expected) and rule.metrics() == {"schedule/progress": expected}
        assert (reason is not None) == (expected > before)
        assert reason is None or f"{before:g} to {expected:g}" in reason
        state, rule, before = rule.state_dict(), new_rule(), expected
        rule.load_state_dict(state)
