"""Carrying groups over, on a simulated engine with random lengths: no response is lost, repeated or late."""

import random

from hypothesis import given
from hypothesis import strategies as st

from d3s.config.load import load_config
from d3s.methods.carry_over import CarryOver
from d3s.rollout.engine import SamplingParams
from d3s.rollout.seeds import rollout_seeds
from research.carry_over import SimulatedEngine

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
        rollouts = rule.generate(engine, prompts, problems, count, n, params, seeds, step, finished.append)
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
        assert [(r.prompt_index, r.sample) for r in rollouts] == [(i, j) for i in range(count) for j in range(n)]
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
    """One response of 10 tokens among ones of 2 is cut twice, and read again each time; then it is too old."""
    engine, seconds = SimulatedEngine(lambda problem, seed: 2 + 8 * (problem == 0), 8, call=1.0, token=0.125), []
    for steps in (1, 2, 3):
        engine.seconds = 0.0
        results, _, rule = run(engine, 2, 1, 20, steps, extra=0.5, max_age=2)
        seconds.append(engine.seconds - sum(seconds))
    assert [[r.problem for r in rollouts] for rollouts in results] == [[1, 2], [3, 4], [5, 0]]
    assert seconds == [2 * 1.375, 2 * 1.375 + 2 * 0.125, 2 * 1.375 + 4 * 0.125 + 4 * 1.125]
    assert [r.counts["stale"] for r in results[-1]] == [0, 4]
    assert [(group.problem, group.open) for group in rule.groups] == [(6, set())]
