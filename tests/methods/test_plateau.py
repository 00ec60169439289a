"""The plateau rule on drawn accuracies, against a loop written from its rule."""

import math

from hypothesis import given
from hypothesis import strategies as st

from d3s.methods.plateau import Plateau, standard_error


def plateau(patience=2):
    return Plateau(lambda progress: ("curve at", progress), patience)


def progress(evaluations, patience=2):
    """The progress of a plateau after each evaluation."""
    rule, values = plateau(patience), []
    for accuracies in evaluations:
        rule.observe_eval(accuracies)
        values.append(rule.progress)
    return values


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


ACCURACIES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=3, max_size=4)


@given(st.lists(st.one_of(ACCURACIES, st.just([0.5] * 3)), max_size=14), st.integers(1, 3))
def test_plateau_follows_the_rule(evaluations, patience):
    rule, before = plateau(patience), 0.0
    for accuracies, expected in zip(evaluations, decisions(evaluations, patience)):
        reason = rule.observe_eval(accuracies)
        assert rule.progress == expected and (reason is not None) == (expected > before)
        assert reason is None or f"{before:g} to {expected:g}" in reason
        before = expected


def test_plateau_compares_by_the_paired_standard_error():
    """The paired difference is 0.1 in half of 8 problems: mean 0.05, standard error 0.0189."""
    base = [0.0, 1.0, 0.2, 0.8, 0.4, 0.6, 0.5, 0.5]
    up = [x + 0.1 * (i % 2) for i, x in enumerate(base)]
    assert standard_error([0, 0.1] * 4) < 0.05 < standard_error(base)
    assert progress([base, base, up, up]) == [0, 0, 0, 0]  # `up` is the new best, and waits once
    assert progress([[x] for x in (0.1, 0.2, 0.3, 0.3, 0.2)]) == [0, 0, 0, 0, 0.25]


def test_progress_moves_n_and_k_on_their_curve():
    rule = plateau()
    values = [rule.at()]
    for _ in range(5):
        rule.observe_eval([0.5, 0.5])
        values.append(rule.at())
    assert values == [("curve at", p) for p in (0, 0, 0, 0.25, 0.25, 0.5)]


def test_restored_state_decides_as_the_whole_run():
    evaluations = [[0.3 + 0.1 * math.sin(i), 0.2, 0.4, 0.5 - 0.01 * i] for i in range(12)]

    def play(rule, start, stop):
        return [rule.observe_eval(accuracies) for accuracies in evaluations[start:stop]]

    whole = plateau()
    reasons = play(whole, 0, 12)
    assert sum(reason is not None for reason in reasons) > 1
    for cut in (1, 4, 7):
        first, second = plateau(), plateau()
        assert play(first, 0, cut) == reasons[:cut]
        second.load_state_dict(first.state_dict())
        assert play(second, cut, 12) == reasons[cut:]
        assert second.state_dict() == whole.state_dict()
