"""The complete command lines on programs: training on the synthetic task, evaluation on files of both formats."""

import json
import re

import pytest

from d3s.tiny import ensure_base
from tests.helpers.code_files import HUMANEVAL, MBPP
from tests.helpers.command_line import complete, lines, run, timeless
from tests.helpers.data_files import write_rows

SMALL = [
    "train.steps=2", "train.prompts_per_step=4", "rollout.num_generations=4", "rollout.max_completion_length=8",
    "schedule.n_init=2", "schedule.n_final=4", "eval.data=[]", "reward.timeout_s=20", "reward.workers=1",
    "reward.code_score=calibrated", "tracker.samples_every=1", "rollout.engine=transformers",
]  # fmt: skip


@pytest.fixture(scope="module")
def base():
    """A weak base model: it writes expressions that are right now and then. Cached between test runs."""
    return str(ensure_base("tiny:code", steps=150).resolve())


def train(base, folder, launcher="single"):
    files = ["configs/tiny.yaml", "configs/code.yaml", "tests/helpers/small.yaml"]
    arguments = ["train.py", "--config", *files, f"model.name={base}", *SMALL, f"train.output_dir={folder}"]
    code, output = run(arguments, launcher)
    assert code == 0 and "Traceback" not in output, output
    return timeless(lines(folder / "metrics.jsonl"))


def test_training_runs_programs_in_the_sandbox(base, tmp_path):
    """The scores of the written samples are those of Python; two ranks repeat the rewards."""
    steps = train(base, tmp_path / "one")
    assert len(steps) == 2 and sum(step["rewards/ExpressionReward/pass_rate"] for step in steps) > 0
    assert all(step[f"reward/{name}"] == 0 for step in steps for name in ("timeouts", "out_of_memory", "refused"))
    for sample in lines(tmp_path / "one" / "samples" / "step_000001.jsonl"):
        assert (sample["reward"] == 1.0) == all(
            holds(test, sample["response"]) for test in json.loads(sample["answer"])
        )
    names = ("reward/mean", "rewards/ExpressionReward/all_passed", "rewards/ExpressionReward/pass_rate")
    ranks = train(base, tmp_path / "two", "ddp")
    for one, two in zip(steps, ranks, strict=True):
        assert [two[name] for name in names] == pytest.approx([one[name] for name in names], abs=1e-6)


def holds(test: str, expression: str) -> bool:
    """Whether `assert f(A, B) == VALUE` holds for an expression of a, b, digits and signs; other text is wrong."""
    a, b, value = map(int, re.fullmatch(r"assert f\((\d+), (\d+)\) == (-?\d+)", test).groups())
    if not re.fullmatch(r"(?!.*\*\*.*\*\*)[ab\d+*() -]+", expression):  # at most one power, which is small
        return False
    try:
        return eval(expression, {"__builtins__": {}}, {"a": a, "b": b}) == value
    except (ArithmeticError, NameError, SyntaxError, TypeError):
        return False


def test_evaluation_reads_both_formats(base, tmp_path):
    """The model passes no test; every program of a file was run."""
    humaneval = write_rows(tmp_path / "h.jsonl", [HUMANEVAL] * 2)
    mbpp = write_rows(tmp_path / "m.jsonl", [MBPP] * 2)
    output = complete(
        [
            "eval.py", "--model", base, "--data", f"humaneval={humaneval}", mbpp, "synthetic:code", "--limit", "12",
            "--n", "4", "--k", "1,4", "--max-tokens", "8", "--engine", "transformers",
            "--output", str(tmp_path / "out"),
        ]
    )  # fmt: skip
    assert "no answer in" not in output
    results = {r["data"]: r for r in json.loads((tmp_path / "out" / "summary.json").read_text())["results"]}
    assert [results[name]["problems"] for name in ("humaneval", "m", "code")] == [2, 2, 12]
    assert results["humaneval"]["pass@4"] == results["m"]["pass@4"] == 0
    samples = lines(tmp_path / "out" / "code.jsonl")
    right = [all(holds(test, s["response"]) for test in json.loads(s["answer"])) for s in samples]
    assert [s["score"] for s in samples] == [float(r) for r in right]
