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
from d3s.methods.vade import Vade, all_equal_probability

G = 4
RIGHT, WRONG, MIXED = [1.0] * G, [0.0] * G, [1.0, 0.0] * (G // 2)
both_orders = pytest.mark.parametrize("order", [Vade, Mopps])


def make_sampler(order: type[Vade], size: int = 12, text: str = "problem", seed: int = 0, **options) -> Vade:
    """A sampler of `size` problems for groups of G responses, without a uniform share."""
    problems = [Problem(str(i), f"{text} {i}", "1", "test") for i in range(size)]
    return order(problems, seed, G, **{"uniform_share": 0} | options)


def play(sampler: Vade, steps: int, position: int = 0) -> list[list[int]]:
    """Ask 3 problems in each step; problem i is right in its first i responses of G. Return the problems asked."""
    asked = []
    for start in range(position, position + 3 * steps, 3):
        asked.append(sampler.take(3, start))
        sampler.learn(asked[-1], (torch.arange(G) < torch.tensor(asked[-1])[:, None]).float())
    return asked


@pytest.mark.parametrize(
    ("order", "options", "asked", "others"),
    [(Vade, {}, 0.2, 0.999), (Mopps, {}, 0.5, 1.0), (Mopps, {"decay": 1}, 1, 1), (Mopps, {"decay": 0}, 0, 1)],
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


def test_verdicts_are_clipped_and_decay_once():
    """A problem that a batch asks twice decays once."""
    sampler = make_sampler(Vade, 3)
    sampler.learn([0], torch.tensor([[0.25, -1.0, 3.0, 0.5]]))
    assert sampler.alpha.tolist() == [1.75, 0, 0] and sampler.beta.tolist() == [2.25, 0, 0]
    sampler.learn([1], torch.tensor([MIXED]))
    sampler.learn([1, 1], torch.tensor([RIGHT, WRONG]))
    assert sampler.alpha[1].item() == pytest.approx(0.4 + G) == sampler.beta[1].item()
    assert sampler.visits.tolist() == [1, 3, 0]


@both_orders
def test_choice_follows_the_posteriors(order):
    """How often the first of two problems is taken, against an integral over both posteriors."""
    sampler = make_sampler(order, 2)
    sampler.alpha, sampler.beta = torch.tensor([1.0, 8.0]), torch.tensor([3.0, 1.0])
    p = (np.arange(400) + 0.5) / 400
    first, second = p * (1 - p) ** 3, p**8 * (1 - p)  # Beta(2, 4) and Beta(9, 2)
    score = {Vade: p * (1 - p) ** 2, Mopps: -((p - 0.5) ** 2)}[order]
    better = score[:, None] > score[None, :]
    expected = (np.outer(first / first.sum(), second / second.sum()) * better).sum()
    taken = Counter(sampler.take(1, position)[0] for position in range(300))
    assert taken[0] / 300 == pytest.approx(expected, abs=0.08)
    assert abs(expected - 0.5) > 0.1


@both_orders
def test_choice_depends_on_seed_and_position_alone(order):
    first, again, other = make_sampler(order, 100), make_sampler(order, 100), make_sampler(order, 100, seed=1)
    assert first.take(8, 40) == again.take(8, 40) not in (first.take(8, 48), other.take(8, 40))


@given(st.sampled_from([Vade, Mopps]), st.integers(1, 12), st.sampled_from([0, 0.125, 0.3]), st.booleans())
def test_problems_repeat_only_where_there_are_too_few(order, count, share, learned):
    """Within an epoch of the shuffled order."""
    sampler = make_sampler(order, uniform_share=share)
    if learned:
        sampler.learn(range(12), torch.tensor([RIGHT, MIXED, WRONG] * 4))
    problems = sampler.take(count, 0)
    assert len(problems) == count == len(set(problems)) and set(problems) <= set(range(12))
    few = Counter(make_sampler(order, 3, uniform_share=0.125).take(8, 0))
    assert few.total() == 8 and few.keys() == {0, 1, 2} and min(few.values()) > 1


def test_uniform_share_continues_the_shuffled_order():
    """A share of 1/8 of batches of 3: every 8th problem, so that each of 12 problems is asked within 96."""
    sampler = make_sampler(Vade, uniform_share=0.125)
    taken = [sampler.take(3, position) for position in range(0, 96, 3)]
    uniform = [step[0] for step, end in zip(taken, range(3, 99, 3)) if end // 8 > (end - 3) // 8]
    assert uniform == problem_order(12, 0, 0, 12) and sampler.cursor == 12


@both_orders
def test_restored_state_continues_the_run(order, tmp_path):
    whole, stopped, resumed = (make_sampler(order, uniform_share=0.125) for _ in range(3))
    play(whole, 7), play(stopped, 7)
    torch.save(stopped.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    play(stopped, 1)  # does not change what was restored
    assert play(resumed, 9, position=21) == play(whole, 9, position=21)
    assert torch.equal(resumed.visits, whole.visits) and torch.equal(resumed.alpha, whole.alpha)
    with pytest.raises(UserError, match=r"^data\.path: got other problems than those of the checkpoint"):
        make_sampler(order, text="other").load_state_dict(stopped.state_dict())


def test_metrics_predict_the_mixed_groups():
    """Under the uniform prior, G + 1 counts of right responses are equally probable: two of five are not mixed."""
    sampler = make_sampler(Vade, 6)
    sampler.learn(sampler.take(5, 0), torch.tensor([RIGHT, WRONG, MIXED, RIGHT, WRONG]))
    expected = {"prompts/seen": 5, "prompts/visits_max": 1, "prompts/expected_mixed": 1 - 2 / (G + 1)}
    assert sampler.metrics() == pytest.approx(expected)
    taken = sampler.take(1, 5) + sampler.take(3, 6)
    mixed = 1 - all_equal_probability(*sampler.posterior(), G)[taken]
    assert sampler.metrics()["prompts/expected_mixed"] == pytest.approx(mixed.mean().item())
