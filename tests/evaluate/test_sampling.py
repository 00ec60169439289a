"""Sampling, against an engine whose responses are a function of their seeds."""

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest

from d3s.common import UserError
from d3s.config.schema import VERIFIER, RewardConfig
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.evaluate.sampling import Sampling, make_requests, open_scores, sample_responses, scorers
from d3s.rollout.engine import SamplingParams
from tests.helpers.scripted_engine import TOKENIZER, ScriptedEngine, ScriptedRollout, exact_score, make_prompts

COUNTDOWN = "d3s.data.synthetic:countdown_reward"
ALWAYS = "tests.helpers.rewards:always"
SAMPLING = Sampling(n=8, max_tokens=50)


def sample(requests, sampling=SAMPLING):
    """The engine, and the samples of each request by data set and index."""
    engine, groups = ScriptedEngine(), {}
    sample_responses(engine, TOKENIZER, requests, sampling, lambda r, group: groups.update({(r.data, r.index): group}))
    return engine, groups


def test_samples_do_not_depend_on_batches_or_other_data(monkeypatch):
    """One engine call for all data sets; the same samples in calls of a few problems of one data set."""
    a, b = (make_requests(name, make_prompts(count), exact_score) for name, count in (("a", 20), ("b", 7)))
    engine, together = sample([*a, *b])
    other, _ = sample(a, replace(SAMPLING, seed=1))
    assert engine.calls == [27 * 8] and len({*engine.seeds, *other.seeds}) == 47 * 8
    monkeypatch.setattr("d3s.evaluate.sampling.RESPONSES_PER_CALL", 30)
    (engine, of_a), (_, of_b) = sample(a), sample(b)
    assert engine.calls == [24] * 6 + [16] and of_a | of_b == together


def test_groups_are_delivered_when_scored():
    """A group is delivered when its last score arrives, not before, and without waiting for other groups."""
    scores, groups, snapshots = {}, {}, []
    requests = make_requests("u", make_prompts(3), lambda response, answer, row: scores.setdefault(response, Future()))

    class Engine:
        def generate(self, prompts, *, n, on_finished, **_):
            for response in ("00", "11", "10", "20", "21", "01"):  # prompt and sample
                on_finished(ScriptedRollout(*map(int, response), TOKENIZER.encode(response), True))
                snapshots.append(dict(groups))
                if response in ("10", "20"):  # the scores of prompt 1 arrive after these two
                    scores["11" if response == "10" else "10"].set_result(float(response == "10"))
            for response in ("00", "01", "20", "21"):
                scores[response].set_result(0.5)

    def add(request, group):
        groups[request.index] = [s.score for s in group]

    sample_responses(Engine(), TOKENIZER, requests, Sampling(n=2), add)
    assert snapshots == [{}] * 4 + [{1: [0.0, 1.0]}] * 2 and groups == {1: [0.0, 1.0], 0: [0.5, 0.5], 2: [0.5, 0.5]}


@pytest.mark.parametrize(("n", "calls"), [(2000, [4, 1]), (5000, [1] * 5), (10_000, [1] * 5)])
def test_calls_have_at_most_8192_responses(n, calls):
    """A call has one problem where that has more responses. An engine keeps the responses of a call in memory."""
    prompts_of_calls = []
    engine = SimpleNamespace(generate=lambda prompts, **_: prompts_of_calls.append(len(prompts)))
    sample_responses(engine, TOKENIZER, make_requests("u", make_prompts(5), exact_score), Sampling(n=n), None)
    assert prompts_of_calls == calls


def test_settings_out_of_range_are_refused():
    ranges = {"n": (1, 10**6), "temperature": (0, 2), "top_p": (0.01, 1), "max_tokens": (1, 1), "seed": (0, 2**31 - 1)}
    outside = {"n": (0, 10**6 + 1), "temperature": (-1, 0.009, 2.1), "top_p": (0, 1.1), "max_tokens": (0,)}
    for name, values in (outside | {"seed": (-1, 2**31)}).items():
        for value in values:
            with pytest.raises(UserError, match=f"{name}: got .*, expected"):
                Sampling(**{name: value})
        for value in ranges[name]:
            assert getattr(Sampling(**{name: value}), name) == value
    sampling = Sampling(n=2, temperature=0.5, top_p=0.9, max_tokens=7)
    assert sampling.params == SamplingParams(max_tokens=7, temperature=0.5, top_p=0.9)


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
    _, groups = sample(make_requests("u", prompts_of(reward), exact_score))
    unboxed = [s for s in groups["u", 0] if "boxed" not in s.response]
    assert unboxed and all((s.extracted == "no idea") == whole for s in unboxed)
