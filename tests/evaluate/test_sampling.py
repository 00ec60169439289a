"""Estimators against brute force and closed forms; evaluation with a scripted engine, then with a real model."""

import argparse
import io
import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import eval as evaluate_command
from d3s.common import UserError
from d3s.data.problems import Problem, load_problems
from d3s.data.prompts import EncodedPrompts, encode_prompts
from d3s.evaluate import pass_at_k
from d3s.evaluate.compare import compare, main
from d3s.evaluate.estimators import canonical, majority, parse_ks, per_problem
from d3s.evaluate.files import Sample, SampleFile, fingerprint, open_output
from d3s.evaluate.intervals import bootstrap_interval
from d3s.evaluate.sampling import Sampling, evaluate, evaluate_to, questions, sample, submit_for, summarize
from d3s.rollout.seeds import rollout_seed
from d3s.tiny import byte_tokenizer, ensure_base

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "benchmarks"
TOKENIZER = byte_tokenizer()
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "150", "HF_HUB_OFFLINE": "1"}


# --- estimators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([1] * c + [0] * (n - c), k))
        assert pass_at_k(n, c, k) == float(Fraction(sum(any(s) for s in subsets), len(subsets)))


@given(st.integers(1, 3000), st.data())
def test_pass_at_k_is_rounded_once(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    miss = Fraction(1)
    for i in range(k):  # another form: the chance that k draws in a row miss
        miss *= Fraction(max(n - c - i, 0), n - i)
    assert pass_at_k(n, c, k) == float(1 - miss)


@pytest.mark.parametrize(
    ("n", "c", "k"), [(4, 2, 5), (4, 5, 2), (4, -1, 2), (4, 2, 0), (4, 2, -1), (0, 0, 1), (-1, 0, 1)]
)
def test_pass_at_k_refuses(n, c, k):
    with pytest.raises(ValueError):
        pass_at_k(n, c, k)


@given(st.lists(st.sampled_from(["1", "1.0", " 1 ", "2", "x", "$x$", None]), max_size=9))
def test_majority_by_counting(answers):
    same = {"1.0": "1", " 1 ": "1", "$x$": "x"}
    votes = [same.get(a, a) for a in answers if a is not None]
    winner = majority(answers)
    if not votes:
        assert winner is None
    else:
        most = max(votes.count(v) for v in votes)
        chosen = next(v for v in votes if votes.count(v) == most)  # ties: first seen
        assert winner == next(i for i, a in enumerate(answers) if a is not None and same.get(a, a) == chosen)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("007", "7", True),
        ("27.0", "27", True),
        ("27.50", "27.5", True),
        ("+3", "3", True),
        ("-3.", "-3", True),
        ("\\dfrac{1}{2}", "\\frac{1}{2}", True),
        ("\\left( 1,\\, 2 \\right)", "(1,2)", True),
        ("$5$", "5", True),
        ("0.5", "5", False),
        ("-3", "3", False),
        ("27.05", "27.5", False),
        ("\\leftarrow", "arrow", False),
        ("1,2", "12", False),
        ("²", "2", False),
        ("1e9999999999", "1e1", False),
    ],
)
def test_canonical_answers(a, b, equal):
    assert (canonical(a) == canonical(b)) is equal


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=6, max_size=6), min_size=1, max_size=5))
def test_metrics_against_fractions(scores):
    answers = [["7" if s else f"{random.Random(i).randrange(9)}x" for i, s in enumerate(row)] for row in scores]
    values = per_problem(np.array(scores), answers, [1, 3])
    for p, row in enumerate(scores):
        right = int(sum(row))
        assert values["pass@1"][p] == float(Fraction(right, 6))
        assert values["avg@n"][p] == pytest.approx(right / 6, abs=1e-15)
        assert values["pass@3"][p] == float(1 - Fraction(math.comb(6 - right, 3), math.comb(6, 3)))
        counts = Counter(answers[p])
        assert values["maj@n"][p] == float(counts.most_common(1)[0][0] == "7")


def test_graded_scores_are_right_from_one_on():
    values = per_problem(np.array([[0.5, 1.0, 0.0, 1.5]]), [["a", "b", None, "c"]], [1])
    assert values["pass@1"][0] == 0.5 and values["avg@n"][0] == 0.75 and values["maj@n"][0] == 0.0


def test_bootstrap_interval_is_the_normal_one_for_many_problems():
    values = np.array([1.0] * 300 + [0.0] * 700)
    half = 1.959964 * math.sqrt(0.3 * 0.7 / 1000)
    e = bootstrap_interval({"x": values})["x"]
    assert e.value == pytest.approx(0.3, abs=1e-12)
    assert e.low == pytest.approx(0.3 - half, abs=0.003) and e.high == pytest.approx(0.3 + half, abs=0.003)
    assert bootstrap_interval({"x": values})["x"] == e != bootstrap_interval({"x": values}, seed=1)["x"]


def test_bootstrap_interval_covers_the_truth():
    rng, hits = np.random.default_rng(0), 0
    for trial in range(60):
        e = bootstrap_interval({"x": rng.beta(2, 3, size=60)}, seed=trial)["x"]
        hits += e.low <= 0.4 <= e.high
    assert 50 <= hits <= 60  # 57 expected, four standard errors below


def test_ten_thousand_problems_of_64_samples_take_less_than_two_seconds():
    rng, draw = np.random.default_rng(0), random.Random(0)
    chances = rng.beta(0.5, 0.5, size=10_000)
    answers = ["7", " 12", "\\frac{1}{2}", None, *map(str, range(100))]
    groups = [
        [Sample("", draw.choice(answers), float(draw.random() < chance), 30, True) for _ in range(64)]
        for chance in chances
    ]
    start = time.process_time()
    result = summarize(groups, "many", (1, 2, 4, 8, 16, 32, 64))
    assert time.process_time() - start < 2
    assert result.estimates["pass@1"].low < result.estimates["pass@1"].value < result.estimates["pass@1"].high
    assert (result.problems, result.n, result.mean_length, result.truncated) == (10_000, 64, 30, 0)


# --- evaluation with a scripted engine ------------------------------------------------------------


@dataclass
class FakeRollout:
    prompt_index: int
    sample: int
    response_ids: list[int]
    finished: bool


class FakeEngine:
    """Answers `prompt + \\boxed{d}` with d from the seed alone, in a random order; is interrupted after `responses`."""

    def __init__(self, responses=10**6):
        self.responses, self.seeds, self.calls = responses, [], []

    def generate(self, prompts, n, params, seeds, *, entropies, on_finished):
        self.calls.append(len(prompts) * n)
        requests = [(p, i) for p in range(len(prompts)) for i in range(n)]
        for p, i in random.Random(len(prompts)).sample(requests, len(requests)):
            if len(self.seeds) == self.responses:
                raise KeyboardInterrupt
            child = seeds[p * n + i]
            self.seeds.append(child)
            digit = random.Random(child).randrange(5)
            text = f"{TOKENIZER.decode(prompts[p])} \\boxed{{{digit}}}" if digit < 4 else "no idea"
            on_finished(FakeRollout(p, i, TOKENIZER.encode(text), digit != 3))


def exact(response, answer):
    outcome = Future()
    outcome.set_result(float(response.endswith(f"\\boxed{{{answer}}}")))
    return outcome


def make_prompts(count, answer="2", template="plain"):
    problems = [Problem(f"p{i}", f"problem {i}?", answer, "unit") for i in range(count)]
    return encode_prompts(problems, template, TOKENIZER, 1000)


SAMPLING = Sampling(n=8, max_tokens=50)


def test_evaluate_counts_what_the_engine_answers():
    result = evaluate(FakeEngine(), exact, TOKENIZER, make_prompts(40), SAMPLING, ks=(1, 4), data="unit")
    digits = [
        [random.Random(rollout_seed(0, "eval/unit", p * 8 + i)).randrange(5) for i in range(8)] for p in range(40)
    ]
    right = [row.count(2) for row in digits]
    line = result.record()
    assert line["pass@1"] == pytest.approx(sum(right) / 320) == line["avg@n"]
    assert line["pass@4"] == pytest.approx(sum(1 - math.comb(8 - c, 4) / math.comb(8, 4) for c in right) / 40)
    votes = [Counter(d for d in row if d < 4).most_common(1)[0][0] for row in digits]
    assert line["maj@n"] == pytest.approx(votes.count(2) / 40)
    assert line["truncated"] == pytest.approx(sum(row.count(3) for row in digits) / 320)
    assert line["no_answer"] == pytest.approx(sum(row.count(4) for row in digits) / 320)
    assert line["right"] == right
    assert list(line)[:4] == ["data", "n", "problems", "pass@1"] and line["pass@1_ci"][0] < line["pass@1"]


def test_no_two_responses_share_a_seed():
    engine = FakeEngine()
    evaluate(engine, exact, TOKENIZER, make_prompts(300), SAMPLING)
    other = FakeEngine()
    evaluate(other, exact, TOKENIZER, make_prompts(300), Sampling(n=8, max_tokens=50, seed=1))
    assert len(set(engine.seeds) | set(other.seeds)) == 2 * 300 * 8


def run_to(path, engine, count=300, sampling=SAMPLING, **changes):
    progress = []
    tests = {path.stem: (make_prompts(count, **changes), exact)}
    (result,) = evaluate_to(
        path.parent, engine, TOKENIZER, tests, sampling, on_progress=lambda data, more: progress.append(more)
    )
    assert sum(progress) == count * sampling.n
    return result


def test_an_interrupted_evaluation_goes_on_and_ends_the_same(tmp_path):
    (tmp_path / "whole").mkdir()
    file, undisturbed = tmp_path / "u.jsonl", tmp_path / "whole" / "u.jsonl"
    whole = run_to(undisturbed, FakeEngine())
    first, second = FakeEngine(responses=2000), FakeEngine(responses=100)
    for engine in (first, second):
        with pytest.raises(KeyboardInterrupt):
            run_to(file, engine)
    problem_of = {rollout_seed(0, "eval/u", k): k // 8 for k in range(300 * 8)}
    complete = Counter(problem_of[seed] for seed in first.seeds)
    kept = {json.loads(line)["index"] for line in file.read_text().splitlines()}
    assert {index for index, count in complete.items() if count == 8} <= kept
    assert 10 < len(kept) < 300 and len(file.read_bytes().splitlines()) == 8 * len(kept)
    engine = FakeEngine()
    assert run_to(file, engine) == whole
    assert sorted({problem_of[seed] for seed in engine.seeds}) == sorted(set(range(300)) - kept)
    assert file.read_bytes() == undisturbed.read_bytes()
    idle = FakeEngine()
    assert run_to(file, idle) == whole and idle.seeds == []
    lines = [json.loads(line) for line in undisturbed.read_text().splitlines()]
    assert [(r["index"], r["sample"]) for r in lines] == [(i, s) for i in range(300) for s in range(8)]
    assert lines[9] == {
        "data": "u", "index": 1, "id": "p1", "problem": "problem 1?", "prompt": "problem 1?", "answer": "2",
        "sample": 1,
        "response": lines[9]["response"], "extracted": lines[9]["extracted"], "score": lines[9]["score"],
        "tokens": len(lines[9]["response"]), "finished": lines[9]["finished"],
    }  # fmt: skip


def test_samples_do_not_depend_on_the_pieces_nor_on_other_data_sets(monkeypatch):
    """One call of the engine for all data sets; the same samples in calls of a few problems of one data set."""

    def drawn(*tests):
        engine, groups = FakeEngine(), {}
        rows = [q for name, count in tests for q in questions(name, make_prompts(count), exact)]
        sample(engine, TOKENIZER, rows, SAMPLING, lambda q, group: groups.update({(q.data, q.index): group}))
        assert len(set(engine.seeds)) == 8 * sum(count for _, count in tests)  # none shared by two data sets either
        return engine.calls, groups

    calls, together = drawn(("a", 20), ("b", 7))
    assert calls == [27 * 8]
    monkeypatch.setattr("d3s.evaluate.sampling.SAMPLES_AT_ONCE", 30)
    (calls, a), (_, b) = drawn(("a", 20)), drawn(("b", 7))
    assert calls == [24] * 6 + [16] and a | b == together


@pytest.mark.parametrize("ranks", [1, 2])
def test_training_samples_all_benchmarks_in_one_call(monkeypatch, ranks):
    """The records of the trainer are those of one evaluation after the other, whichever rank has which problems."""
    from d3s.config.load import load_config
    from d3s.trainer import Trainer

    tests = {"synthetic:precedence": make_prompts(9), "gsm8k": make_prompts(4)}
    config = load_config([], ["eval.n=4", "eval.k=[1,4]", "train.seed=3", f"eval.data=[{','.join(tests)}]"])
    tests = dict(zip(("precedence", "gsm8k"), tests.values()))
    sent, records = [], []
    for rank in range(ranks):
        trainer = SimpleNamespace(config=config, tests=tests, engine=FakeEngine(), tokenizer=TOKENIZER)
        trainer.accelerator = SimpleNamespace(num_processes=ranks, process_index=rank)
        trainer.reward_function, trainer.state = (
            SimpleNamespace(accuracy=exact),
            SimpleNamespace(step=7, tokens_trained=5),
        )
        trainer.tracker = SimpleNamespace(log_eval=records.append)
        monkeypatch.setattr("d3s.trainer.all_gather_objects", lambda own, accelerator: sent.extend(own) or list(sent))
        records.clear()  # those of the last rank have the samples of all
        Trainer._evaluate_all(trainer)
        assert len(trainer.engine.calls) == 1
    sampling = Sampling(n=4, max_tokens=config.rollout.max_completion_length, seed=3)
    for record, (name, prompts) in zip(records, tests.items(), strict=True):
        alone = evaluate(FakeEngine(), exact, TOKENIZER, prompts, sampling, ks=(1, 4), data=name).record()
        assert {key: record[key] for key in alone} == alone
        assert (record["step"], record["tokens_trained"]) == (7, 5)


def test_responses_are_scored_while_others_are_generated():
    """A group is handed over when its last score arrives, not before, and without waiting for the other groups."""
    rows = questions("u", make_prompts(2), lambda response, answer: verdicts.setdefault(response, Future()))
    verdicts, groups, seen = {}, {}, []

    class Engine:
        def generate(self, prompts, *, n, on_finished, **_):
            for p, i in ((0, 0), (1, 1), (1, 0)):
                on_finished(FakeRollout(p, i, TOKENIZER.encode(f"{p}{i}"), True))
            seen.append(dict(groups))
            verdicts["11"].set_result(1.0)
            verdicts["10"].set_result(0.0)
            on_finished(FakeRollout(0, 1, TOKENIZER.encode("01"), True))
            seen.append(dict(groups))
            for response in ("00", "01"):
                verdicts[response].set_result(0.5)

    sample(
        Engine(), TOKENIZER, rows, Sampling(n=2), lambda q, group: groups.update({q.index: [s.score for s in group]})
    )
    assert seen == [{}, {1: [0.0, 1.0]}] and groups == {1: [0.0, 1.0], 0: [0.5, 0.5]}


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_a_file_torn_at_any_byte_is_completed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("torn") / "x.jsonl"
    whole = run_to(path, FakeEngine(), count=4)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    assert run_to(path, FakeEngine(), count=4) == whole
    assert path.read_bytes() == content


def test_samples_of_other_problems_are_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    run_to(path, FakeEngine(), count=5)
    content = path.read_bytes()
    for changes in ({"answer": "3"}, {"template": "base"}, {"count": 4}, {"sampling": Sampling(n=4, max_tokens=50)}):
        with pytest.raises(UserError, match="holds samples of other problems"):
            run_to(path, FakeEngine(), **{"count": 5, **changes})
        assert path.read_bytes() == content
    lines = content.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:8], b"garbage\n", *lines[9:]]))
    with pytest.raises(UserError, match=r"x.jsonl line 9 and what follows is damaged"):
        run_to(path, FakeEngine(), count=5)
    assert len(path.read_bytes().splitlines()) == 40  # and nothing was cut off


def test_a_full_disk_leaves_whole_problems(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    prompts = make_prompts(3)
    with SampleFile(path, "u", prompts, 8) as file:
        file.append(0, [Sample("a", "a", 1.0, 1, True)] * 8)
        before = path.read_bytes()

        class Full:
            """Takes 100 bytes, then none."""

            fileno, truncate, close = file._file.fileno, file._file.truncate, file._file.close

            def write(self, data):
                if len(path.read_bytes()) > len(before):
                    raise OSError(28, "No space left on device")
                return os.write(self.fileno(), data[:100])

        monkeypatch.setattr(file, "_file", Full())
        with pytest.raises(UserError, match=r"x.jsonl: cannot be written \(No space left on device\)"):
            file.append(1, [Sample("b", "b", 1.0, 1, True)] * 8)
    assert path.read_bytes() == before


def test_output_directories(tmp_path):
    out = tmp_path / "a" / "b"
    open_output(out, {"n": 8, "temperature": 1.0})
    open_output(out, {"n": 8, "temperature": 1.0})
    with pytest.raises(UserError, match=r"holds samples made with temperature 1.0, not 0.5: choose another output"):
        open_output(out, {"n": 8, "temperature": 0.5})
    with pytest.raises(UserError, match="is not empty and holds no evaluation"):
        open_output(tmp_path, {"n": 8})
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be used for output"):
        open_output(tmp_path / "file", {"n": 8})


def test_fingerprint_sees_changed_weights(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"a" * 3_000_000)
    first = fingerprint(tmp_path)
    weights.write_bytes(b"a" * 2_999_999 + b"b")
    assert fingerprint(tmp_path) != first


def test_impossible_settings():
    for change in (
        {"n": 0},
        {"temperature": -1},
        {"temperature": 0.009},
        {"top_p": 0},
        {"max_tokens": 0},
        {"seed": -1},
    ):
        with pytest.raises(UserError, match=f"{next(iter(change))} is .*, must be"):
            Sampling(**change)
    assert parse_ks("1,8") == (1, 8)
    for text in ("0", "1,,2", "a", "-1", "1.5", "9" * 9999):
        with pytest.raises(argparse.ArgumentTypeError, match="expected whole numbers from 1 up"):
            parse_ks(text)


def test_embedded_tasks_bring_their_own_score():
    submit = submit_for("synthetic:countdown", exact)
    assert submit("\\boxed{(2*5)+3}", "2,3,5->13").result() == 1.0
    assert submit("\\boxed{13}", "2,3,5->13").result() == 0.0
    assert submit_for("synthetic:precedence", exact) is submit_for("gsm8k", exact) is exact


# --- comparison -----------------------------------------------------------------------------------


def write_samples(path, rights, n=4, first=0):
    """`rights[p]` right ones of n samples for problem `first + p`."""
    problems = [Problem(f"p{i}", f"problem {i}?", "2", "unit") for i in range(first, first + len(rights))]
    prompts = EncodedPrompts(problems, [p.problem for p in problems], [[1]] * len(problems), 0)
    with SampleFile(path, "unit", prompts, n) as file:
        for p, c in enumerate(rights):
            file.append(p, [Sample("", "2" if i < c else None, float(i < c), 5, True) for i in range(n)])


def test_paired_comparison_is_on_common_problems_and_sharper_than_unpaired(tmp_path):
    hard = [random.Random(i).choice([0, 1, 3]) for i in range(200)]
    write_samples(tmp_path / "a.jsonl", [*hard, 4, 4])
    write_samples(tmp_path / "b.jsonl", [c + (i % 4 == 0) for i, c in enumerate(hard)])
    common, rows = compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", (1, 4))
    a, b, difference = rows["pass@1"]
    assert common == 200
    assert a.value == pytest.approx(sum(hard) / 800) and b.value - a.value == pytest.approx(50 / 800)
    assert difference.value == pytest.approx(50 / 800) and difference.low > 0
    assert difference.high - difference.low < 0.4 * (a.high - a.low)
    reverse = compare(tmp_path / "b.jsonl", tmp_path / "a.jsonl", (1,))[1]["pass@1"][2]
    assert reverse.value == pytest.approx(-difference.value)


def test_as_many_samples_vote_in_both_files(tmp_path):
    """The same samples in both files, and eight more in one, which would overturn every vote."""
    problems = [Problem(f"p{i}", f"problem {i}?", "2", "unit") for i in range(6)]
    prompts = EncodedPrompts(problems, [p.problem for p in problems], [[1]] * 6, 0)
    right, wrong = Sample("", "2", 1.0, 5, True), Sample("", "3", 0.0, 5, True)
    for name, group in (("a", [wrong] * 5 + [right] * 3), ("b", [wrong] * 5 + [right] * 11)):
        with SampleFile(tmp_path / f"{name}.jsonl", "unit", prompts, len(group)) as file:
            for p in (3, 0, 5, 1, 2, 4):
                file.append(p, group)
    for first, second in ("ab", "ba"):
        _, rows = compare(tmp_path / f"{first}.jsonl", tmp_path / f"{second}.jsonl", (1,))
        assert list(rows) == ["pass@1", "avg", "maj@8"]
        assert [e.value for e in rows["maj@8"]] == [0, 0, 0]
        assert sorted(e.value for e in rows["avg"][:2]) == [3 / 8, 11 / 16]  # unbiased with any number of samples
    assert [e.value for e in compare(*[tmp_path / "b.jsonl"] * 2, (1,))[1]["maj@16"]] == [1, 1, 0]


def test_comparison_command(tmp_path, capsys):
    write_samples(tmp_path / "a.jsonl", [1, 2])
    write_samples(tmp_path / "b.jsonl", [2, 4])
    main([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "--k", "1,2"])
    shown = capsys.readouterr().out
    assert "2 common problems" in shown and "+37.5 [+25.0, +50.0]" in shown
    write_samples(tmp_path / "c.jsonl", [1], first=7)
    for other, k, expected in (
        ("c.jsonl", "1", "have no problem in common"),
        ("b.jsonl", "8", "pass@8 needs 8 samples per problem, these files have 4"),
        ("missing.jsonl", "1", "missing.jsonl: cannot be read"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([str(tmp_path / "a.jsonl"), str(tmp_path / other), "--k", k])
        assert caught.value.code == 2 and expected in capsys.readouterr().err


# --- the command line with a real model -----------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A poor base model: it has the format, and is right now and then."""
    return str(ensure_base("tiny:precedence", steps=150, folder=tmp_path_factory.mktemp("bases")))


def command(*arguments):
    return [sys.executable, str(ROOT / "eval.py"), *map(str, arguments)]


def call(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, timeout=500)


def within(*arguments):
    """The same in this process, which saves the imports, for what ends before an engine is made."""
    evaluate_command.main(evaluate_command.parse_arguments([str(a) for a in arguments]), Console(file=io.StringIO()))


def test_eval_with_vllm(base, tmp_path):
    """Two data sets through the real engine and the real verifier; every figure is recomputed from the samples."""
    from d3s.verifier.verifier import verify

    (tmp_path / "own.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n{"problem": "2*3=", "answer": "6"}\n')
    done = call(
        "--model", base, "--data", "synthetic:precedence", tmp_path / "own.jsonl", "--n", 8, "--k", "1,8",
        "--max-tokens", 48, "--limit", 24, "--output", tmp_path / "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    samples = [json.loads(line) for line in (tmp_path / "out" / "precedence.jsonl").read_text().splitlines()]
    assert f"--->{samples[0]['prompt']}<---" in done.stdout
    assert len(samples) == 24 * 8 and len({s["response"] for s in samples}) > 60
    rights = Counter()
    for s in samples:
        assert s["score"] == verify(s["response"], s["answer"])
        rights[s["index"]] += s["score"]
        assert s["tokens"] == len(s["response"].encode()) + s["finished"] or "\ufffd" in s["response"]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    line, own = summary["results"]
    assert line["pass@1"] == pytest.approx(sum(rights.values()) / len(samples))
    assert line["pass@8"] == pytest.approx(sum(c > 0 for c in rights.values()) / 24)
    assert line["mean_length"] == pytest.approx(sum(s["tokens"] for s in samples) / len(samples))
    assert (own["data"], own["problems"], own["n"]) == ("own", 2, 8)
    assert summary["verifier"]["timeouts"] == 0 and summary["settings"]["engine"] == "vllm"


def test_eval_ended_and_called_again(base, tmp_path):
    """SIGTERM in the middle; the second call does the rest, and the samples are those of an undisturbed run."""
    common = ["--model", base, "--data", "synthetic:precedence", "--n", 256, "--k", "1,8,256", "--max-tokens", 12]
    common += ["--limit", 12, "--engine", "transformers"]
    file = tmp_path / "ended" / "precedence.jsonl"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT, "cwd": ROOT}
    process = subprocess.Popen(command(*common, "--output", tmp_path / "ended"), **quiet)
    while process.poll() is None and not (file.exists() and file.stat().st_size > 0):
        time.sleep(0.02)
    process.terminate()
    assert process.communicate()[1].endswith("interrupted; the same command continues\n") and process.returncode
    partial = file.read_bytes()
    assert 0 < len(partial.splitlines()) < 12 * 256, "the evaluation was over before it could be ended"
    with pytest.raises(UserError, match="seed 0, not 1"):
        within(*common, "--seed", 1, "--output", tmp_path / "ended")
    assert file.read_bytes() == partial
    again = call(*common, "--output", tmp_path / "ended")
    whole = call(*common, "--output", tmp_path / "whole")
    assert again.returncode == whole.returncode == 0, again.stderr + whole.stderr
    assert file.read_bytes() == (tmp_path / "whole" / "precedence.jsonl").read_bytes()
    results = [json.loads((tmp_path / o / "summary.json").read_text())["results"] for o in ("ended", "whole")]
    assert results[0] == results[1]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark files are not beside the repository")
def test_eval_on_real_problems_says_that_nothing_is_right(base, tmp_path):
    done = call(
        "--model", base, "--data", f"gsm8k={SHARED / 'gsm8k_test.jsonl'}", SHARED / "math500.jsonl",
        SHARED / "aime24.jsonl", "--n", 2, "--k", 1, "--max-tokens", 12, "--limit", 60, "--template", "base",
        "--output", tmp_path / "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    gsm8k, math500, aime = json.loads((tmp_path / "out" / "summary.json").read_text())["results"]
    assert gsm8k["pass@1"] == math500["pass@1"] == 0 and gsm8k["data"] == "gsm8k" and math500["problems"] == 60
    assert aime["data"] == "aime24" and aime["problems"] == 30
    assert "no answer is found in" in done.stdout
    first = json.loads((tmp_path / "out" / "gsm8k.jsonl").read_text().splitlines()[0])
    drawn = load_problems(f"gsm8k={SHARED / 'gsm8k_test.jsonl'}", limit=60, sampled=True)
    assert first["answer"] == drawn[0].answer and first["index"] == 0 and f"--->{first['prompt']}<---" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "synthetic:precedence", "--k", "64"], "pass@64 needs at least 64 samples per problem, --n is 32"),
        (["--data", "synthetic:precedence", "--max-tokens", "5000"], "max_tokens is 5000, must be less than the 2048"),
        (["--data", "synthetic:precedence", "--template", "chat"], "the tokenizer has no chat template"),
        (
            ["--data", "synthetic:precedence", "--model", "no/such/model"],
            "the model 'no/such/model' must be a directory",
        ),
        (
            ["--data", "synthetic:precedence", "--temperature", "-1"],
            "temperature is -1.0, must be 0 (greedy), or from 0.01 to 2",
        ),
    ],
)
def test_mistakes_are_one_sentence(base, tmp_path, arguments, expected):
    with pytest.raises(UserError) as caught:
        within("--model", base, *arguments, "--output", tmp_path / "out")
    assert expected in str(caught.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "nothing.jsonl"], "error: nothing.jsonl: no such file\n"),
        (["--data", "x.jsonl", "--k", "1,x"], "argument --k: got '1,x', expected whole numbers from 1 up"),
    ],
)
def test_exit_code_of_mistakes(tmp_path, arguments, expected):
    done = call("--model", "none", *arguments, "--output", tmp_path / "out")
    assert done.returncode == 2 and expected in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
