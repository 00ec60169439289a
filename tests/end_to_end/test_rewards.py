"""Rewards of a data set's own columns, several and dense ones, and failing ones, through train.py."""

import json

import pytest

from d3s.data.problems import problem_order
from tests.helpers.command_line import complete, lines, run
from tests.helpers.small_run import arguments, parameters, same_run

HERE = "tests.helpers.rewards"


def without_reward(command: list[str]) -> list[str]:
    return [argument for argument in command if not argument.startswith("reward.functions=")]


def with_file(command: list[str], file) -> list[str]:
    """The command with one more configuration file."""
    place = command.index("tests/helpers/small.yaml") + 1
    return [*command[:place], str(file), *command[place:]]


def write_problems(folder, problems):
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    return path


def test_three_lines_train_on_a_column_of_the_data(tied_model, tmp_path):
    """Half of the problems ask for even, half for odd lengths; no answer is read."""
    problems = write_problems(tmp_path, [{"problem": f"{i}+{i}=", "answer": "?", "parity": i % 2} for i in range(8)])
    file = tmp_path / "mine.yaml"
    file.write_text(f"data: {{path: {problems}}}\nreward:\n  functions: [{HERE}:reads_column]\n")
    command = with_file(without_reward(arguments(tied_model, tmp_path / "run")), file)
    options = ["data.limit=null", "tracker.samples_every=1", "tracker.samples=64"]
    complete([*command, *options, "eval.data=[synthetic:precedence]", "eval.limit=2", "eval.every=0"])
    assert {record["reward"] for record in lines(tmp_path / "run" / "eval.jsonl")} == {"d3s.reward:verify"}
    samples = [sample for path in (tmp_path / "run" / "samples").iterdir() for sample in lines(path)]
    parities = {p["problem"]: p["parity"] for p in map(json.loads, problems.read_text().splitlines())}
    rewards = [(r["reward"], len(r["response"]) % 2 == parities[r["problem"]]) for r in samples]
    assert len(rewards) == 4 * 16 and all(reward == expected for reward, expected in rewards)
    assert {reward for reward, _ in rewards} == {0.0, 1.0}


def test_several_rewards_are_metrics_of_their_own(tied_model, tmp_path):
    functions = f"[{HERE}:even_length,[{HERE}:dense,0.5]]"
    command = without_reward(arguments(tied_model, tmp_path / "run"))
    complete([*command, f"reward.functions={functions}", "tracker.samples_every=1", "tracker.samples=64"])
    steps = lines(tmp_path / "run" / "metrics.jsonl")
    for step in steps:
        assert step["reward/accuracy"] == pytest.approx(step["rewards/even_length"])
        mean = step["rewards/even_length"] + 0.5 * step["rewards/dense"]
        assert step["reward/mean"] == pytest.approx(mean, rel=1e-5)
        assert step["rewards/dense/vowels"] == pytest.approx(8 * step["rewards/dense"], rel=1e-5)
    assert any(step["rewards/dense"] > 0 for step in steps)
    samples = [sample for path in (tmp_path / "run" / "samples").iterdir() for sample in lines(path)]
    own = [sample for sample in samples if sample["token_advantages"]]
    assert own and all(s["token_advantages"][0] == pytest.approx(s["advantage"], abs=1e-6) for s in own)


def test_dense_rewards_are_alike_on_two_ranks(tied_model, tmp_path):
    """Every rank computes the advantages of its own texts; the update is that of one rank up to rounding."""
    options = [f"reward.functions=[{HERE}:dense]", "train.steps=2"]
    for name, launcher in (("one", "single"), ("two", "ddp")):
        complete([*without_reward(arguments(tied_model, tmp_path / name)), *options], launcher)
    one, two = (lines(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert one[0]["advantage/tokens_changed"] > 0
    for key in ("reward/mean", "advantage/tokens_changed", "selection/tokens"):
        assert [step[key] for step in one] == pytest.approx([step[key] for step in two], rel=1e-6)
    left, right = (parameters(tmp_path / name / "model") for name in ("one", "two"))
    assert all((left[key] - right[key]).abs().max() < 1e-5 for key in left)


def test_failing_rewards_lose_no_step(tied_model, tmp_path, monkeypatch):
    """The run ends with one sentence after a checkpoint of the last step, from which a mended function continues."""
    problems = [{"problem": f"{i}+{i}=", "answer": "?"} for i in range(12)]
    problems[problem_order(12, 0, 9, 1)[0]]["problem"] = "fatal"  # asked in the third step
    path, reward = write_problems(tmp_path, problems), f"reward.functions=[{HERE}:fails_later]"
    commands = {
        name: [
            *without_reward(arguments(tied_model, tmp_path / name)),
            f"data.path={path}",
            "checkpoint.every=0",
            reward,
        ]
        for name in ("whole", "failed")
    }
    code, output = run(commands["failed"])
    assert code == 2 and "Traceback" not in output
    [error] = [line for line in output.splitlines() if line.startswith("error: ")]
    assert "fails_later raised RuntimeError: cannot judge this" in error and "step 2 is saved in" in error
    assert len(lines(tmp_path / "failed" / "metrics.jsonl")) == 2
    monkeypatch.setenv("REWARD_IS_MENDED", "1")
    for command in (commands["whole"], [*commands["failed"], "--resume", "auto"]):
        complete(command)
    assert same_run(tmp_path / "whole", tmp_path / "failed")
