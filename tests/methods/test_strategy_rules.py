"""Strategies of the shelf without vLLM: no carried response is lost, repeated or late; trees and two rounds by hand.

CarryOver runs on a simulated engine with random lengths. Trees hear of tokens in any order and are compared with a loop
over positions. Of two rounds, the right problems are completed, with the responses they have anyway, without a bias.
"""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from d3s.advantage import center_only
from d3s.config.load import load_config
from d3s.methods.carry_over import CarryOver
from d3s.methods.latr import LATR, Tree, TreeRollout, edit_distance
from d3s.methods.two_rounds import most_promising
from d3s.rollout.engine import Progress, SamplingParams, rollout_seeds
from d3s.rollout.strategy import STRATEGY_RULES
from research.carry_over import SimulatedEngine

# --- carried responses ------------------------------------------------------------------------------------------------

CONFIG = load_config([], ["rollout.engine=vllm", "loss.old_logprobs=engine"])


def draw(problem, seed):
    return random.Random(f"{problem} {seed}").randint(1, 12)


class SeededEngine(SimulatedEngine):
    """Requires that a seed is used for one position of one response."""

    def submit(self, request, prompt, params, seed, **options):
        assert self.seeds.setdefault(seed, prompt) == prompt
        super().submit(request, prompt, params, seed, **options)


def run(engine, count, n, limit, steps, stop=None, **options):
    """The rollouts of each step, the step in which each problem began, and the rule, restored before step `stop`."""
    rule, began, results = CarryOver(CONFIG, **options), {}, []
    for step in range(steps):
        if step == stop:
            state, rule = rule.state_dict(), CarryOver(CONFIG, **options)
            rule.load_state_dict(state)
        problems = [len(began) + i for i in range(rule.problems_for(count))]
        began |= dict.fromkeys(problems, step)
        params, seeds, finished = SamplingParams(max_tokens=limit), rollout_seeds(0, "train", problems, n), []
        prompts = [[problem] for problem in problems]
        groups = rule.generate(engine, prompts, problems, count, n, params, seeds, step, finished.append)
        assert [len(group) for group in groups] == [n] * count
        rollouts = [r for group in groups for r in group]
        assert len(finished) == len(rollouts) and all(a is b for a, b in zip(finished, rollouts))
        results.append(rollouts)
    return results, began, rule


@given(
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 4), "n": st.integers(1, 3), "limit": st.integers(1, 12),
            "steps": st.integers(1, 6), "extra": st.sampled_from([0, 0.3, 0.5, 1]), "max_age": st.integers(1, 3),
        }
    ),
    st.integers(1, 20),
    st.integers(0, 5),
)  # fmt: skip
def test_every_response_is_whole_and_returned_once(case, slots, stop):
    engine, count, n = SeededEngine(draw, slots), case["count"], case["n"]
    engine.seeds = {}
    results, began, rule = run(engine, **case)
    for step, rollouts in enumerate(results):
        assert [r.sample for r in rollouts] == list(range(n)) * count
        assert all(r.problem == rollouts[i - i % n].problem for i, r in enumerate(rollouts))
        for r in rollouts:
            seed, age = rollout_seeds(0, "train", [r.problem], n)[r.sample], step - began[r.problem]
            length = min(draw(r.problem, seed), case["limit"])
            assert (r.prompt_ids, r.response_ids) == ([r.problem], [length] * length)
            assert r.finished == (length < case["limit"]) and age <= case["max_age"]
            assert (r.logprobs, r.entropies) == ([-float(i) for i in range(length)], [float(i) for i in range(length)])
            assert r.counts["stale"] <= length * (age > 0) and r.counts.get("age", age) == age
    assert results[-1][0].counts["carried"] == sum(len(group.open) for group in rule.groups)
    returned = [r.problem for rollouts in results for r in rollouts if r.sample == 0]
    assert sorted(returned + [group.problem for group in rule.groups]) == sorted(began)
    assert run(SimulatedEngine(draw, slots), **case, stop=stop)[0] == results


def test_a_step_waits_for_old_groups_only():
    """One response of 10 tokens among ones of 2 is cut twice; then it is too old."""
    engine = SimulatedEngine(lambda problem, seed: 2 + 8 * (problem == 0), 8)
    results, _, rule = run(engine, 2, 1, 20, 3, extra=0.5, max_age=2)
    assert [[r.problem for r in rollouts] for rollouts in results] == [[1, 2], [3, 4], [5, 0]]
    assert [r.counts["stale"] for r in results[-1]] == [0, 4]
    assert [(group.problem, group.open) for group in rule.groups] == [(6, set())]


# --- trees ------------------------------------------------------------------------------------------------------------

STOP = 0
PAIRS = [(0.4, 0.3), (0.4, 0.3), (0.3, 0.16), (0.2, 0.14), (0.6, 0.3)]  # probabilities; the last two start no branch


def sample(seed, slot, attempt, ids):
    """A sampled token and the candidates at its position, a function of the response and the tokens before it."""
    draw = random.Random(str((seed, slot, attempt, ids)))
    first, second = draw.sample(range(5), 2)
    candidates = [(token, math.log(p)) for token, p in zip((first, second), draw.choice(PAIRS))]
    return draw.choice([first, first, second, 5]), candidates


def reference(seed, size, limit, lookahead, similarity):
    """The responses of a tree, as (slot, attempt, tokens, log-probabilities, lineage), and the places that are left."""
    free, attempts, growing, results, branches = list(range(size)), Counter(), [], [], 0

    def start(ids, logprobs, lineage, parent):
        nonlocal branches
        slot = free.pop(0)
        values = {"ids": ids, "logprobs": logprobs, "lineage": [*lineage, (branches, len(ids[:-1]))]}
        growing.append(SimpleNamespace(slot=slot, attempt=attempts[slot], parent=parent, **values))
        attempts[slot] += 1
        branches += 1

    def resembles(branch):
        first, parent = branch.lineage[-1][1], branch.parent
        if parent not in growing or len(branch.ids) != first + lookahead or branch.ended or parent.ended:
            return False
        return edit_distance(branch.ids[first:], parent.ids[first:]) < similarity * lookahead

    start([], [], [], None)
    for position in range(limit):
        for branch in growing:
            if len(branch.ids) == position:
                token, branch.candidates = sample(seed, branch.slot, branch.attempt, branch.ids)
                branch.ids.append(token)
                branch.logprobs.append(-1.0)
            branch.ended = branch.ids[-1] == STOP or position + 1 == limit
        for branch in list(filter(resembles, growing)):
            growing.remove(branch)
            free = sorted([*free, branch.slot])
        for branch in list(growing):
            (first, p), (second, q) = branch.candidates
            if free and math.exp(q) > 0.15 and math.exp(p) - math.exp(q) < 0.25:
                token, logprob = (second, q) if branch.ids[-1] == first else (first, p)
                start([*branch.ids[:-1], token], [*branch.logprobs[:-1], logprob], branch.lineage, branch)
                growing[-1].ended = token == STOP or position + 1 == limit
        results += [(b.slot, b.attempt, b.ids, b.logprobs, b.lineage) for b in growing if b.ended]
        growing = [branch for branch in growing if not branch.ended]
    return sorted(results), free


@example(6, 20, 3, 0.7, 19)  # several branches are dropped, and their places taken again
@given(
    st.integers(2, 7),
    st.sampled_from([1, 4, 12, 20]),
    st.integers(0, 4),
    st.sampled_from([0.3, 0.7, 1.0]),
    st.integers(0, 10**6),
)
def test_tree_follows_the_rule(size, limit, lookahead, similarity, seed):
    rule = LATR(load_config([]), lookahead=lookahead, similarity=similarity)
    empty = {slot: TreeRollout(0, [7], [], [], [], False, slot) for slot in range(size)}
    tree, order, results = Tree(rule, empty, limit, [STOP], Counter()), random.Random(seed), []
    active = list(tree.growing)
    while active:
        for branch in order.sample(active, order.randint(1, len(active))):
            token, candidates = sample(seed, branch.slot, branch.attempt, branch.rollout.response_ids)
            length = len(branch.rollout.response_ids) + 1
            reason = "stop" if token == STOP else "length" if length == limit else None
            branch.extend(Progress(0, [token], [-1.0], [candidates], reason))
        started, pruned, finished = tree.advance()
        active = [b for b in active if not b.ended and b not in pruned] + started
        for b in finished:
            r = b.rollout
            assert (r.finished, r.sample) == (r.response_ids[-1] == STOP, b.slot)
            results.append((b.slot, b.attempt, r.response_ids, r.logprobs, r.lineage))
    assert (sorted(results), tree.free) == reference(seed, size, limit, lookahead, similarity)


def test_edit_distance_matches_known_values():
    for first, second, distance in (("kitten", "sitting", 3), ("", "abc", 3), ("intention", "execution", 5)):
        assert edit_distance(first, second) == edit_distance(second, first) == distance


# --- two rounds -------------------------------------------------------------------------------------------------------


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
    groups = strategy.generate(
        engine=SimpleNamespace(sample=sample), prompts=[[problem] for problem in problems], problems=problems,
        count=count, n=n, params=SamplingParams(max_tokens=9), seeds=rollout_seeds(0, "train", problems, n),
        entropies=True, step=0, on_finished=score,
    )  # fmt: skip
    assert [len(group) for group in groups] == [n] * count
    rollouts = [r for group in groups for r in group]
    asked = {p: [right(p, seed) for seed in rollout_seeds(0, "train", [p], n)] for p in problems}
    completed = [r.problem for r in rollouts[::n]]
    assert completed == sorted(completed) and len(set(completed)) == count
    assert [r.sample for r in rollouts] == list(range(n)) * count
    for i, r in enumerate(rollouts):
        assert r.problem == completed[i // n] and r.prompt_ids == [r.problem]
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
        return 1 - math.prod(Fraction(of_kind + i, size + i) for i in range(2, 2 + later))

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
