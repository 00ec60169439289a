"""Evaluation with a scripted engine, against metrics recomputed from its seeds; on ranks, against one process."""

import json
import math
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import VERIFIER
from d3s.evaluation.evaluator import evaluate_on_ranks, evaluate_to_files
from d3s.evaluation.results import EvalResult, summarize
from d3s.evaluation.sampling import Sampling, make_requests, sample_responses
from d3s.reward import scorers
from d3s.rollout.engine import SamplingParams, rollout_seed
from tests.helpers.scripted_engine import TOKENIZER, ScriptedEngine, exact_score, make_prompts, scripted_digit

SAMPLING = Sampling(n=8, max_tokens=50)
COUNTDOWN = "d3s.data.synthetic:countdown_reward"


def evaluate(prompts, sampling: Sampling, data: str) -> EvalResult:
    """The result of one data set, sampled in one call."""
    requests, groups = make_requests(data, prompts, exact_score), {}

    def add(request, group):
        groups[request.index] = group

    sample_responses(ScriptedEngine(), TOKENIZER, requests, sampling, add, lambda *_: None)
    return summarize([groups[request.index] for request in requests], data, (1, 4))


def test_results_match_the_scripted_responses():
    result = evaluate(make_prompts(40), SAMPLING, "unit")
    digits = [[scripted_digit(rollout_seed(0, "eval/unit", p * 8 + i)) for i in range(8)] for p in range(40)]
    correct = [row.count(2) for row in digits]
    record = result.record()
    assert record["pass@1"] == pytest.approx(sum(correct) / 320) == record["avg@n"]
    assert record["pass@4"] == pytest.approx(sum(1 - math.comb(8 - c, 4) / math.comb(8, 4) for c in correct) / 40)
    votes = [Counter(d for d in row if d < 4).most_common(1)[0][0] for row in digits]
    assert record["maj@n"] == pytest.approx(votes.count(2) / 40)
    assert record["truncated"] == pytest.approx(sum(row.count(3) for row in digits) / 320)
    assert record["no_answer"] == pytest.approx(sum(row.count(4) for row in digits) / 320)
    assert record["right"] == correct
    assert list(record)[:4] == ["data", "n", "problems", "pass@1"] and record["pass@1_ci"][0] < record["pass@1"]


def run_to(path, engine, count=60, sampling=SAMPLING, **changes):
    tests, progress = {path.stem: (make_prompts(count, **changes), exact_score)}, Counter()
    count_all = {
        "on_found": lambda data, responses: progress.update({data: responses}),
        "on_response": lambda request, sample: progress.update({request.data: 1}),
    }
    (result,) = evaluate_to_files(path.parent, engine, TOKENIZER, tests, sampling, **count_all)
    assert progress == {path.stem: count * sampling.n}
    return result


def test_interrupted_evaluation_resumes_to_the_same_file(tmp_path):
    (tmp_path / "full").mkdir()
    file, uninterrupted = tmp_path / "u.jsonl", tmp_path / "full" / "u.jsonl"
    expected = run_to(uninterrupted, ScriptedEngine())
    first, second = ScriptedEngine(responses=440), ScriptedEngine(responses=40)
    for engine in (first, second):
        with pytest.raises(KeyboardInterrupt):
            run_to(file, engine)
    problem_of = {rollout_seed(0, "eval/u", k): k // 8 for k in range(60 * 8)}
    responses = Counter(problem_of[seed] for seed in first.seeds)
    kept = {json.loads(line)["index"] for line in file.read_text().splitlines()}
    assert {index for index, count in responses.items() if count == 8} <= kept
    assert 10 < len(kept) < 60 and len(file.read_bytes().splitlines()) == 8 * len(kept)
    engine, idle = ScriptedEngine(), ScriptedEngine()
    assert run_to(file, engine) == run_to(file, idle) == expected
    assert {problem_of[seed] for seed in engine.seeds} == set(range(60)) - kept and idle.seeds == []
    assert file.read_bytes() == uninterrupted.read_bytes()
    records = [json.loads(line) for line in uninterrupted.read_text().splitlines()]
    assert [(r["index"], r["sample"]) for r in records] == [(i, s) for i in range(60) for s in range(8)]
    assert records[9] == {
        "data": "u", "index": 1, "id": "p1", "problem": "problem 1?", "prompt": "problem 1?", "answer": "2",
        "sample": 1,
        "response": records[9]["response"], "extracted": records[9]["extracted"], "score": records[9]["score"],
        "tokens": len(records[9]["response"]) + records[9]["finished"], "finished": records[9]["finished"],
        "unclosed_thought": False,
    }  # fmt: skip


@given(st.data())
@settings(max_examples=30)
def test_file_cut_at_any_byte_is_completed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "x.jsonl"
    expected = run_to(path, ScriptedEngine(), count=4)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    assert run_to(path, ScriptedEngine(), count=4) == expected
    assert path.read_bytes() == content


def test_samples_of_other_problems_are_refused(tmp_path):
    path, engine = tmp_path / "x.jsonl", ScriptedEngine()
    run_to(path, engine, count=5)
    content = path.read_bytes()
    for changes in ({"answer": "3"}, {"template": "base"}, {"count": 4}, {"sampling": Sampling(n=4, max_tokens=50)}):
        with pytest.raises(UserError, match=r"x.jsonl: contains samples of other problems, first at problem"):
            run_to(path, engine, **{"count": 5, **changes})
        assert path.read_bytes() == content
    lines = content.splitlines(keepends=True)
    damaged = b"".join([*lines[:9], b"garbage\n", *lines[10:]])
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"x.jsonl line 10: damaged; repair the file or choose another --output"):
        run_to(path, engine, count=5)
    assert path.read_bytes() == damaged


# --- on ranks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "tensor_parallel"), [(1, 1), (2, 1), (3, 1), (4, 2)])
def test_ranks_give_the_results_of_one_process(monkeypatch, ranks, tensor_parallel):
    """Each rank makes one engine call; the last to gather has the samples of all."""
    settings = ["eval.n=4", "eval.k=[1,4]", "rollout.temperature=0.9", "train.seed=3"]
    tests = {"precedence": make_prompts(9), "gsm8k": make_prompts(4)}
    config = load_config([], [*settings, "eval.data=[synthetic:precedence, gsm8k]"])
    config.rollout.tensor_parallel_size = tensor_parallel
    sampling = Sampling(n=4, max_tokens=config.rollout.max_completion_length, seed=3)
    gathered, sampled, opened = [], [], {VERIFIER: exact_score}
    monkeypatch.setattr("d3s.reward.all_gather_objects", lambda failures, _: failures)
    monkeypatch.setattr(
        "d3s.evaluation.evaluator.all_gather_objects", lambda own, _: gathered.extend(own) or list(gathered)
    )
    for rank in range(ranks):
        engine, accelerator = ScriptedEngine(), SimpleNamespace(num_processes=ranks, process_index=rank)
        with monkeypatch.context() as patch:
            if rank < ranks - 1:  # the other ranks' samples are missing until the last has gathered
                patch.setattr("d3s.evaluation.evaluator.summarize", lambda *_: None)
            results = evaluate_on_ranks(engine, opened, TOKENIZER, tests, config, accelerator)
        assert len(engine.calls) == 1 and engine.params == sampling.params
        sampled.append(set(engine.seeds))
    assert len(gathered) == 13  # every problem is reported by one rank
    assert len(set.union(*sampled)) == 13 * 4 and sum(map(len, sampled)) == 13 * 4 * tensor_parallel
    for result, (name, prompts) in zip(results, tests.items(), strict=True):
        alone = evaluate(prompts, sampling, name)
        assert result == replace(alone, reward=VERIFIER)


def test_data_sets_are_scored_by_their_own_reward():
    """Those without one by the verifier, none by the reward of the training. For the gold answer 2 the verifier accepts
    the digit 2; of the problem `0->0`, the reward of countdown accepts 0. eval.reward scores all of them.
    """

    def never(response, answer, row):
        raise AssertionError("the score of the training was used")

    training, always = "tests.helpers.rewards:reads_column", "tests.helpers.rewards:always"
    tests = {"countdown": make_prompts(10, answer="0->0", reward=COUNTDOWN), "gsm8k": make_prompts(1)}
    own, all_alike = {"countdown": (COUNTDOWN, [0]), "gsm8k": (VERIFIER, [2])}, dict.fromkeys(tests, (always, range(5)))
    for chosen, expected in (("null", own), (always, all_alike)):
        options = ["eval.n=8", "eval.k=[1]", "eval.data=[synthetic:countdown, gsm8k]", "train.seed=0"]
        config = load_config([], [*options, f"reward.functions=[{training}]", f"eval.reward={chosen}"])
        accelerator = SimpleNamespace(num_processes=1, process_index=0)
        for result in evaluate_on_ranks(ScriptedEngine(), {training: never}, TOKENIZER, tests, config, accelerator):
            digits = [scripted_digit(rollout_seed(0, f"eval/{result.data}", k)) for k in range(8 * result.problems)]
            reward, right = expected[result.data]
            assert (sum(result.right), result.reward) == (sum(digit in right for digit in digits), reward)


def test_data_for_two_rewards_are_refused():
    problems = [*make_prompts(1).problems, *make_prompts(1, reward=COUNTDOWN).problems]
    with pytest.raises(
        UserError, match=f"^mixed: has problems for {COUNTDOWN} and verify; evaluate them from one file"
    ):
        scorers({"mixed": problems}, None)
    assert scorers({"mixed": problems}, VERIFIER) == {"mixed": VERIFIER}


# --- sampling ---------------------------------------------------------------------------------------------------------


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
    for limit, calls in ((30, [24] * 6 + [16]), (5, [8] * 20)):  # at least one problem in a call
        monkeypatch.setattr("d3s.evaluation.sampling.RESPONSES_PER_CALL", limit)
        (engine, of_a), (_, of_b) = sample(a), sample(b)
        assert engine.calls == calls and of_a | of_b == together


def test_groups_are_delivered_when_scored():
    """A group is delivered when its last score arrives, not before, and without waiting for other groups."""
    scores, groups, snapshots = {}, {}, []
    requests = make_requests("u", make_prompts(3), lambda response, answer, row: scores.setdefault(response, Future()))

    class Engine:
        stop_token_ids = ()

        def generate(self, prompts, *, n, on_finished, **_):
            for response in ("00", "11", "10", "20", "21", "01"):  # prompt and sample
                place = {"problem": int(response[0]), "sample": int(response[1])}
                on_finished(SimpleNamespace(**place, response_ids=TOKENIZER.encode(response), finished=True))
                snapshots.append(dict(groups))
                if response in ("10", "20"):  # the scores of prompt 1 arrive after these two
                    scores["11" if response == "10" else "10"].set_result(float(response == "10"))
            for response in ("00", "01", "20", "21"):
                scores[response].set_result(0.5)

    def add(request, group):
        groups[request.index] = [s.score for s in group]

    sample_responses(Engine(), TOKENIZER, requests, Sampling(n=2), add)
    assert snapshots == [{}] * 4 + [{1: [0.0, 1.0]}] * 2 and groups == {1: [0.0, 1.0], 0: [0.5, 0.5], 2: [0.5, 0.5]}


def test_settings_out_of_range_are_refused():
    for ends in ({"n": 1, "temperature": 0, "seed": 0}, {"n": 10**6, "temperature": 2, "top_p": 1, "seed": 2**31 - 1}):
        assert Sampling(**ends, max_tokens=1).n == ends["n"]
    outside = {"n": (0, 10**6 + 1), "temperature": (-1, 0.009, 2.1), "top_p": (0, 1.1), "max_tokens": (0,)}
    for name, values in (outside | {"seed": (-1, 2**31)}).items():
        for value in values:
            with pytest.raises(UserError, match=f"^--{name.replace('_', '-')}: got .*, expected"):
                Sampling(**{name: value})
    sampling = Sampling(n=2, temperature=0.5, top_p=0.9, max_tokens=7)
    assert sampling.params == SamplingParams(max_tokens=7, temperature=0.5, top_p=0.9)


@pytest.mark.parametrize(("reward", "whole"), [(COUNTDOWN, True), (None, False)])
def test_programs_vote_as_a_whole(reward, whole):
    """A response without a boxed answer has a vote where the problem has a reward of its own."""
    _, groups = sample(make_requests("u", make_prompts(1, reward=reward), exact_score))
    unboxed = [s for s in groups["u", 0] if "boxed" not in s.response]
    assert unboxed and all((s.extracted == "no idea") == whole for s in unboxed)
