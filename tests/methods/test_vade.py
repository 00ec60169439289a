"""VADE and MoPPS against loops, exact fractions, numerical integration and the shuffled order."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.data.problems import Problem, problem_order
from d3s.methods.mopps import Mopps
from d3s.methods.vade import Vade, all_equal_probability, update_counts

G = 4
RIGHT, WRONG, MIXED = [1.0] * G, [0.0] * G, [1.0, 0.0] * (G // 2)


ORDERS = {"vade": Vade, "mopps": Mopps}


def make_sampler(order: str, size: int = 12, text: str = "problem", seed: int = 0, **options) -> Vade:
    """A sampler of `size` problems for groups of G responses, without a uniform share."""
    problems = [Problem(str(i), f"{text} {i}", "1", "test") for i in range(size)]
    return ORDERS[order](problems, seed, G, **{"uniform_share": 0} | options)


def play(sampler, steps: int, position: int = 0, count: int = 3) -> list[list[int]]:
    """Ask problems for `steps` steps; problem i is right in its first i responses of G. Return the problems asked."""
    asked = []
    for step in range(steps):
        problems = sampler.take(count, position + step * count)
        verdicts = torch.arange(G) < torch.tensor(problems)[:, None]
        sampler.learn(problems, verdicts.float())
        asked.append(problems)
    return asked


# --- posteriors ---


def test_vade_update_matches_the_published_example():
    """Figure of arXiv 2511.18902: one of eight right for a chosen problem; another one is not chosen."""
    asked, decay = torch.tensor([0]), (0.2, 0.999)
    alpha = update_counts(torch.tensor([0.1, 9.0]), asked, torch.tensor([1.0]), decay)
    beta = update_counts(torch.tensor([8.4, 9.0]), asked, torch.tensor([7.0]), decay)
    assert alpha.tolist() == pytest.approx([1.02, 8.991]) and beta.tolist() == pytest.approx([8.68, 8.991])


@pytest.mark.parametrize(
    ("order", "options", "asked", "others"),
    [("vade", {}, 0.2, 0.999), ("mopps", {}, 0.5, 1.0), ("mopps", {"decay": 1}, 1, 1), ("mopps", {"decay": 0}, 0, 1)],
)
def test_posterior_matches_a_loop(order, options, asked, others):
    """VADE counts from 0 and adds the prior 1. MoPPS (arXiv 2507.04632) starts at the prior and decays towards it."""
    sampler, a, b = make_sampler(order, **options), [1.0] * 12, [1.0] * 12
    for problems in play(sampler, 20):
        for i in range(12):
            decay, right = (asked, min(i, G)) if i in problems else (others, 0)
            a[i] = decay * a[i] + (1 - decay) * 1.0 + right
            b[i] = decay * b[i] + (1 - decay) * 1.0 + (G - right if i in problems else 0)
    assert [x.tolist() for x in sampler.posterior()] == [pytest.approx(a), pytest.approx(b)]


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 40))
def test_all_equal_probability_is_beta_binomial(a, b, g):
    """Against the exact product of the Polya urn."""
    right = wrong = Fraction(1)
    for i in range(g):
        right, wrong = right * Fraction(a + i, a + b + i), wrong * Fraction(b + i, a + b + i)
    got = all_equal_probability(torch.tensor([float(a)]), torch.tensor([float(b)]), g)
    assert got.item() == pytest.approx(float(right + wrong), rel=1e-9)


def test_scores_are_largest_at_their_targets():
    rates = np.linspace(0, 1, 301)
    assert rates[Vade.score(rates).argmax()] == pytest.approx(1 / 3)
    assert Vade.score(np.array([0.0, 0.5, 1.0])).tolist() == [0, 0.125, 0]
    assert rates[Mopps.score(rates).argmax()] == 0.5
    assert Mopps.score(np.array([0.1, 0.9])) == pytest.approx(-0.16)


def test_verdicts_are_clipped_and_decay_once():
    """A problem that a batch asks twice decays once."""
    sampler = make_sampler("vade", 3)
    sampler.learn([0], torch.tensor([[0.25, -1.0, 3.0, 0.5]]))
    assert sampler.alpha.tolist() == [1.75, 0, 0] and sampler.beta.tolist() == [2.25, 0, 0]
    sampler.learn([1], torch.tensor([MIXED]))
    sampler.learn([1, 1], torch.tensor([RIGHT, WRONG]))
    assert sampler.alpha[1].item() == pytest.approx(0.4 + G) == sampler.beta[1].item()
    assert sampler.visits.tolist() == [1, 3, 0]


# --- choice ---


@pytest.mark.parametrize("order", ["vade", "mopps"])
def test_choice_follows_the_posteriors(order):
    """How often the first of two problems is taken, against an integral over both posteriors."""
    sampler, score = make_sampler(order, 2), ORDERS[order].score
    sampler.alpha, sampler.beta = torch.tensor([1.0, 8.0]), torch.tensor([3.0, 1.0])
    p = (np.arange(400) + 0.5) / 400
    first, second = p * (1 - p) ** 3, p**8 * (1 - p)  # Beta(2, 4) and Beta(9, 2)
    better = score(p)[:, None] > score(p)[None, :]
    expected = (np.outer(first / first.sum(), second / second.sum()) * better).sum()
    taken = Counter(sampler.take(1, position)[0] for position in range(300))
    assert taken[0] / 300 == pytest.approx(expected, abs=0.08)
    assert abs(expected - 0.5) > 0.1


@pytest.mark.parametrize("order", ["vade", "mopps"])
def test_choice_depends_on_seed_and_position_alone(order):
    sampler, other = make_sampler(order, 100), make_sampler(order, 100, seed=1)
    assert sampler.take(8, 40) == make_sampler(order, 100).take(8, 40)
    assert sampler.take(8, 40) != sampler.take(8, 48) and sampler.take(8, 40) != other.take(8, 40)


@given(st.sampled_from(["vade", "mopps"]), st.integers(1, 12), st.sampled_from([0, 0.125, 0.3]), st.booleans())
def test_batch_has_no_problem_twice(order, count, share, learned):
    """Within an epoch of the shuffled order."""
    sampler = make_sampler(order, 12, uniform_share=share)
    if learned:
        sampler.learn(range(12), torch.tensor([RIGHT, MIXED, WRONG] * 4))
    problems = sampler.take(count, 0)
    assert len(problems) == count == len(set(problems)) and set(problems) <= set(range(12))


@pytest.mark.parametrize("order", ["vade", "mopps"])
def test_fewer_problems_than_a_batch_repeat(order):
    sampler = make_sampler(order, 3, uniform_share=0.125)
    problems = sampler.take(8, 0)
    assert len(problems) == 8 and set(Counter(problems).values()) <= {2, 3, 4} and set(problems) == {0, 1, 2}
    sampler.learn(problems, torch.tensor([MIXED] * 8))
    assert sampler.visits.sum() == 8


def test_uniform_share_continues_the_shuffled_order():
    """A share of 1/8 of batches of 3: every 8th problem, so that each of 12 problems is asked within 96."""
    sampler = make_sampler("vade", 12, uniform_share=0.125)
    taken = [sampler.take(3, position) for position in range(0, 96, 3)]
    uniform = [step[0] for step, end in zip(taken, range(3, 99, 3)) if end // 8 > (end - 3) // 8]
    assert uniform == problem_order(12, 0, 0, 12) and sampler.cursor == 12


# --- state and metrics ---


@pytest.mark.parametrize("order", ["vade", "mopps"])
def test_restored_state_continues_the_run(order, tmp_path):
    whole, stopped, resumed = (make_sampler(order, 12, uniform_share=0.125) for _ in range(3))
    play(whole, 7), play(stopped, 7)
    torch.save(stopped.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    play(stopped, 1)  # does not change what was restored
    assert play(resumed, 9, position=21) == play(whole, 9, position=21)
    for name in ("alpha", "beta", "visits"):
        assert torch.equal(getattr(resumed, name), getattr(whole, name))
    assert resumed.cursor == whole.cursor and resumed.alpha.dtype == torch.float32


@pytest.mark.parametrize("size", [11, 12])
def test_state_of_other_problems_is_refused(size):
    state = make_sampler("vade").state_dict()
    other = make_sampler("vade", size, "other")
    with pytest.raises(UserError, match=r"^data\.path: got other problems than those of the checkpoint"):
        other.load_state_dict(state)


def test_metrics_predict_the_mixed_groups():
    """Under the uniform prior, G + 1 counts of right responses are equally probable: two of five are not mixed."""
    sampler = make_sampler("vade", 6)
    sampler.learn(sampler.take(5, 0), torch.tensor([RIGHT, WRONG, MIXED, RIGHT, WRONG]))
    expected = {"prompts/seen": 5, "prompts/visits_max": 1, "prompts/expected_mixed": 1 - 2 / (G + 1)}
    assert sampler.metrics() == pytest.approx(expected)
    taken = sampler.take(1, 5) + sampler.take(3, 6)
    mixed = 1 - all_equal_probability(*sampler.posterior(), G)[taken]
    assert sampler.metrics()["prompts/expected_mixed"] == pytest.approx(mixed.mean().item())
