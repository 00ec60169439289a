"""The plateau rule on scripted accuracies, against hand-computed decisions."""

import math

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


def test_plateau_moves_a_quarter_after_patience_evaluations():
    level = [0.5, 0.25, 1.0]
    assert progress([level] * 10) == [0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1]
    assert progress([level] * 7, patience=3) == [0, 0, 0, 0.25, 0.25, 0.25, 0.5]
    assert progress([[x] for x in (0.1, 0.2, 0.3, 0.3, 0.2)]) == [0, 0, 0, 0, 0.25]


def test_plateau_compares_by_the_paired_standard_error():
    """The paired difference is 0.1 in half of 8 problems: mean 0.05, standard error 0.0189."""
    base = [0.0, 1.0, 0.2, 0.8, 0.4, 0.6, 0.5, 0.5]
    up = [x + 0.1 * (i % 2) for i, x in enumerate(base)]
    assert standard_error([0, 0.1] * 4) < 0.05 < standard_error(base)
    assert progress([base, base, up, up]) == [0, 0, 0, 0]  # `up` is the new best, and waits once
    noise = [x + (0.2 if i == 0 else -0.02) for i, x in enumerate(base)]  # mean 0.0075, standard error 0.0275
    assert progress([base, noise, noise]) == [0, 0, 0.25]


def test_plateau_keeps_the_best_until_it_is_exceeded():
    """Solving one, then two of 8 problems: 1/8 is within its standard error, 2/8 exceeds that of 0.164."""
    solved = [[float(i < count) for i in range(8)] for count in range(3)]
    assert progress(solved) == [0, 0, 0]
    assert progress([*solved, solved[2], solved[1]]) == [0, 0, 0, 0, 0.25]
    assert progress([solved[0], solved[1], solved[1]]) == [0, 0, 0.25]


def test_plateau_starts_anew_on_other_problems():
    rule = plateau()
    for accuracies in ([0.5] * 3, [0.5] * 3, [0.1] * 4, [0.1] * 4):
        assert rule.observe_eval(accuracies) is None
    assert "0 to 0.25" in rule.observe_eval([0.1] * 4)


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
