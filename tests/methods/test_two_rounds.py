"""Two rounds per group: the right problems are completed, with the responses they have anyway, and without a bias."""

import itertools
import random
from fractions import Fraction
from math import prod
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import center_only
from d3s.config.load import load_config
from d3s.methods.two_rounds import most_promising
from d3s.rollout.engine import SamplingParams
from d3s.rollout.seeds import rollout_seeds
from d3s.rollout.strategy import STRATEGY_RULES


def right(problem, seed):
    return float(random.Random(f"{problem} {seed}").random() < problem % 4 / 3)


@given(st.integers(1, 6), st.integers(2, 4), st.integers(1, 3), st.sampled_from([0.5, 1, 2.2]), st.integers(0, 99))
def test_groups_are_those_of_plain_rollouts(count, first, more, extra, start):
    """Every response has the seed of its problem and place, in whichever round it was sampled; all are counted."""
    n, problems = first + more, list(range(start, start + count - int(-extra * count // 1)))
    config = load_config([], [f"rollout.num_generations={n}", "schedule.n_init=2", f"schedule.n_final={n}"])
    rule = {"rule": "d3s.methods.two_rounds:TwoRounds", "first": first, "extra": extra}
    strategy, sampled, finished = STRATEGY_RULES.build(rule, config=config), [], []

    def sample(rollouts, params, seeds, entropies, on_finished):
        for r, seed in zip(rollouts, seeds, strict=True):
            length = random.Random(seed).randint(1, params.max_tokens)
            r.response_ids, r.logprobs, r.entropies = [seed] * length, [-1.0] * length, [0.5] * length
            sampled.append(r)
            on_finished(r)

    def score(r):
        verdict = right(r.problem, r.response_ids[0])
        r.scoring = lambda: SimpleNamespace(verdict=verdict)
        finished.append(r)

    assert strategy.problems_for(count=count) == len(problems)
    rollouts = strategy.generate(
        engine=SimpleNamespace(sample=sample), prompts=[[problem] for problem in problems], problems=problems,
        count=count, n=n, params=SamplingParams(max_tokens=9), seeds=rollout_seeds(0, "train", problems, n),
        entropies=True, step=0, on_finished=score,
    )  # fmt: skip
    asked = {p: [right(p, seed) for seed in rollout_seeds(0, "train", [p], n)] for p in problems}
    completed = [r.problem for r in rollouts[::n]]
    assert completed == sorted(completed) and len(set(completed)) == count
    assert [(r.prompt_index, r.sample) for r in rollouts] == list(itertools.product(range(count), range(n)))
    for r in rollouts:
        assert r.problem == completed[r.prompt_index] and r.prompt_ids == [r.problem]
        assert r.response_ids[0] == rollout_seeds(0, "train", [r.problem], n)[r.sample]
    assert finished == sampled and len(sampled) == len(problems) * first + count * more
    decoded = sum(r.counts.get("decoded", len(r.response_ids)) for r in rollouts)
    assert decoded == sum(len(r.response_ids) for r in sampled)
    differing = {p for p, verdicts in asked.items() if len(set(verdicts[:first])) > 1}
    assert differing <= set(completed) or set(completed) <= differing
    assert rollouts[0].counts["differing"] == len(differing)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=8), st.integers(1, 4), st.data())
def test_alike_groups_are_completed_by_their_posterior(verdicts, later, data):
    """Brute force: with a Beta prior of the mean of the verdicts, no other choice has a higher chance of a signal."""
    count = data.draw(st.integers(0, len(verdicts)))
    ones, size = sum(map(sum, verdicts)), 2 * len(verdicts)

    def chance(own):  # that the `later` responses make a group of two alike ones differ
        if own[0] != own[1]:
            return Fraction(1)
        of_kind = ones if own[0] else size - ones
        return 1 - prod(Fraction(of_kind + i, size + i) for i in range(2, 2 + later))

    chosen = most_promising([list(map(float, own)) for own in verdicts], count)
    assert chosen == sorted(set(chosen)) and len(chosen) == count
    assert sum(chance(verdicts[i]) for i in chosen) == sum(sorted(map(chance, verdicts), reverse=True)[:count])


@pytest.mark.parametrize("first, n", [(2, 3), (2, 4), (3, 4)])
def test_gradient_of_a_problem_keeps_its_direction(first, n):
    """All outcomes of a policy over three answers: where the others' verdicts differ or not, the expected gradient of a
    completed group is a multiple of the exact one, E[R (G - R) / G] / (p (1 - p)) times it, R of G right."""
    logits = torch.tensor([0.3, -0.7, 0.1], dtype=torch.float64)
    probabilities, rewards = logits.softmax(0), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    scores = torch.eye(3) - probabilities  # d log pi(answer) / d logits
    p = (probabilities @ rewards).item()
    for other in ([0.0] * first, [1.0] * first, [0.0] + [1.0] * (first - 1)):
        total, expected = torch.zeros(3, dtype=torch.float64), 0.0
        for group in itertools.product(range(3), repeat=n):
            verdicts = rewards[list(group)]
            if most_promising([verdicts[:first].tolist(), other], 1) != [0]:
                continue
            probability, right_ones = probabilities[list(group)].prod(), verdicts.sum().item()
            total += probability * center_only(verdicts[None])[0][0] @ scores[list(group)]
            expected += probability * right_ones * (n - right_ones) / n
        torch.testing.assert_close(total, (probabilities * rewards) @ scores * expected / (p * (1 - p)))
        assert expected > 0
