"""The complete command lines on programs: training on the synthetic task, evaluation on files of both formats."""

import json
import re

import pytest

from d3s.tiny import ensure_base
from tests.helpers.code_files import HUMANEVAL, MBPP
from tests.helpers.command_line import complete, lines
from tests.helpers.data_files import write_rows

SMALL = [
    "train.steps=2", "train.prompts_per_step=4", "rollout.num_generations=4", "rollout.max_completion_length=8",
    "schedule.n_init=2", "schedule.n_final=4", "eval.data=[]", "reward.timeout_s=20", "reward.workers=1",
    "reward.functions=[{rule: 'd3s.programs.code_reward:ExpressionReward', score: calibrated}]",
    "tracker.samples_every=1", "rollout.engine=transformers",
]  # fmt: skip
PROGRAMS = {"humaneval": HUMANEVAL, "mbpp": MBPP}


@pytest.fixture(scope="module")
def base():
    """A weak base model: it writes expressions that are right now and then. Cached between test runs."""
    return str(ensure_base("tiny:code", steps=150).resolve())


def test_training_runs_programs_in_the_sandbox(base, tmp_path):
    """The scores of the written samples are those of Python. test_rewards.py has two ranks."""
    files = ["configs/tiny.yaml", "configs/code.yaml", "tests/helpers/small.yaml"]
    complete(["train.py", "--config", *files, f"model.name={base}", *SMALL, f"train.output_dir={tmp_path}"])
    metrics = lines(tmp_path / "metrics.jsonl")
    assert len(metrics) == 2 and sum(step["rewards/ExpressionReward/pass_rate"] for step in metrics) > 0
    assert all(step[f"reward/{name}"] == 0 for step in metrics for name in ("timeouts", "out_of_memory", "refused"))
    for sample in lines(tmp_path / "samples" / "step_000001.jsonl"):
        assert (sample["reward"] == 1.0) == passes(sample)


def passes(sample: dict) -> bool:
    """Whether the expression of a response holds in every test `assert f(A, B) == VALUE` of its problem."""
    return all(holds(test, sample["response"]) for test in json.loads(sample["answer"]))


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
    """The model passes no test of a file; every program was run."""
    files = [f"{name}={write_rows(tmp_path / f'{name}.jsonl', [row] * 2)}" for name, row in PROGRAMS.items()]
    words = [*files, "synthetic:code", "--limit", "12", "--n", "4", "--k", "1,4", "--max-tokens", "8"]
    words += ["--engine", "transformers", "--output", str(tmp_path / "out")]
    assert "no answer in" not in complete(["eval.py", "--model", base, "--data", *words])
    results = json.loads((tmp_path / "out" / "summary.json").read_text())["results"]
    assert [(r["data"], r["problems"]) for r in results] == [("humaneval", 2), ("mbpp", 2), ("code", 12)]
    assert results[0]["pass@4"] == results[1]["pass@4"] == 0
    assert all(sample["score"] == passes(sample) for sample in lines(tmp_path / "out" / "code.jsonl"))
