"""Sampling, against an engine whose responses are a function of their seeds."""

from concurrent.futures import Future

import pytest

from d3s.common import UserError
from d3s.config.schema import VERIFIER, RewardConfig
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.evaluate.evaluator import evaluate
from d3s.evaluate.sampling import Sampling, make_requests, open_scores, sample_responses, scorers
from d3s.rollout.engine import SamplingParams
from tests.helpers.scripted_engine import TOKENIZER, ScriptedEngine, ScriptedRollout, exact_score, make_prompts

COUNTDOWN = "d3s.data.synthetic:countdown_reward"
ALWAYS = "tests.helpers.rewards:always"
SAMPLING = Sampling(n=8, max_tokens=50)


def test_responses_have_distinct_seeds():
    engine, other = ScriptedEngine(), ScriptedEngine()
    evaluate(engine, exact_score, TOKENIZER, make_prompts(60), SAMPLING)
    evaluate(other, exact_score, TOKENIZER, make_prompts(60), Sampling(n=8, max_tokens=50, seed=1))
    assert len(set(engine.seeds) | set(other.seeds)) == 2 * 60 * 8


def test_samples_do_not_depend_on_batches_or_other_data(monkeypatch):
    """One engine call for all data sets; the same samples in calls of a few problems of one data set."""

    def sample(*tests):
        engine, groups = ScriptedEngine(), {}
        requests = [r for name, count in tests for r in make_requests(name, make_prompts(count), exact_score)]
        sample_responses(
            engine, TOKENIZER, requests, SAMPLING, lambda r, group: groups.update({(r.data, r.index): group})
        )
        assert len(set(engine.seeds)) == 8 * sum(count for _, count in tests)  # also distinct between data sets
        return engine.calls, groups

    calls, together = sample(("a", 20), ("b", 7))
    assert calls == [27 * 8]
    monkeypatch.setattr("d3s.evaluate.sampling.RESPONSES_PER_CALL", 30)
    (calls, a), (_, b) = sample(("a", 20)), sample(("b", 7))
    assert calls == [24] * 6 + [16] and a | b == together


def test_groups_are_delivered_when_scored():
    """A group is delivered when its last score arrives, not before, and without waiting for other groups."""
    scores, groups, snapshots = {}, {}, []
    requests = make_requests("u", make_prompts(2), lambda response, answer, row: scores.setdefault(response, Future()))

    class Engine:
        def generate(self, prompts, *, n, on_finished, **_):
            for p, i in ((0, 0), (1, 1), (1, 0)):
                on_finished(ScriptedRollout(p, i, TOKENIZER.encode(f"{p}{i}"), True))
            snapshots.append(dict(groups))
            scores["11"].set_result(1.0)
            scores["10"].set_result(0.0)
            on_finished(ScriptedRollout(0, 1, TOKENIZER.encode("01"), True))
            snapshots.append(dict(groups))
            for response in ("00", "01"):
                scores[response].set_result(0.5)

    sample_responses(
        Engine(),
        TOKENIZER,
        requests,
        Sampling(n=2),
        lambda request, group: groups.update({request.index: [s.score for s in group]}),
    )
    assert snapshots == [{}, {1: [0.0, 1.0]}] and groups == {1: [0.0, 1.0], 0: [0.5, 0.5]}


@pytest.mark.parametrize(("n", "calls"), [(2000, [4, 1]), (5000, [1] * 5), (10_000, [1] * 5)])
def test_calls_have_at_most_8192_responses(n, calls):
    """A call has one problem where that has more responses. An engine keeps the responses of a call in memory."""
    prompts_of_calls = []

    class Engine:
        def generate(self, prompts, **_):
            prompts_of_calls.append(len(prompts))

    requests = make_requests("u", make_prompts(5), exact_score)
    sample_responses(Engine(), TOKENIZER, requests, Sampling(n=n), lambda request, group: None)
    assert prompts_of_calls == calls


def test_engine_gets_the_sampling_params():
    sampling = Sampling(n=2, temperature=0.5, top_p=0.9, max_tokens=7)
    assert sampling.params == SamplingParams(max_tokens=7, temperature=0.5, top_p=0.9)


def test_settings_out_of_range_are_refused():
    for change in (
        {"n": 0},
        {"n": 10**6 + 1},
        {"temperature": -1},
        {"temperature": 0.009},
        {"temperature": 2.1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"seed": -1},
        {"seed": 2**31},
    ):
        with pytest.raises(UserError, match=f"{next(iter(change))}: got .*, expected"):
            Sampling(**change)
    for change in ({"n": 10**6}, {"temperature": 0}, {"temperature": 2}, {"top_p": 1}, {"seed": 2**31 - 1}):
        Sampling(**change)


def prompts_of(reward: str | None) -> EncodedPrompts:
    return EncodedPrompts([Problem("0", "p", "a", "s", reward=reward)], ["p"], [TOKENIZER.encode("p")], 0)


def test_data_sets_are_scored_by_their_own_reward():
    """Those without one have the verifier; what is open already is used; a given reward scores all."""
    rewards = {"numbers": COUNTDOWN, "mathematics": None, "here": ALWAYS}
    tests = {name: prompts_of(reward) for name, reward in rewards.items()}
    opened = {VERIFIER: exact_score, ALWAYS: exact_score}
    names = scorers(tests, None)
    assert names == {"numbers": COUNTDOWN, "mathematics": VERIFIER, "here": ALWAYS}
    assert scorers(tests, ALWAYS) == dict.fromkeys(tests, ALWAYS)
    with open_scores(names, opened, RewardConfig()) as scores:
        assert scores["mathematics"] is scores["here"] is exact_score
        assert scores["numbers"]("\\boxed{(2*5)+3}", "2,3,5->13", {}).result(timeout=60) == 1.0
        assert scores["numbers"]("\\boxed{13}", "2,3,5->13", {}).result(timeout=60) == 0.0


@pytest.mark.parametrize(("reward", "whole"), [(COUNTDOWN, True), (None, False)])
def test_programs_vote_as_a_whole(reward, whole):
    """A response without a boxed answer has a vote where the problem has a reward of its own."""
    samples = []
    requests = make_requests("u", prompts_of(reward), exact_score)
    sample_responses(ScriptedEngine(), TOKENIZER, requests, SAMPLING, lambda request, group: samples.extend(group))
    unboxed = [s for s in samples if "boxed" not in s.response]
    assert unboxed and all((s.extracted == "no idea") == whole for s in unboxed)
