"""d3s.train and d3s.evaluate against the configuration and the files of the commands, and their refusals."""

import json
import os
import re

import pytest

import d3s
from d3s.commands.command_line import LAUNCH
from d3s.config.load import load_config
from d3s.rewards.given import name_function
from d3s.rollout import build_engine
from d3s.rules import load_object
from tests.helpers import rewards
from tests.helpers.command_line import lines
from tests.helpers.configs import ROOT, flat
from tests.helpers.data_files import write_rows
from tests.helpers.evaluations import call_eval
from tests.helpers.pages import section
from tests.helpers.processes import run_python
from tests.helpers.verifier_workers import server_ids

PROBLEMS = [{"problem": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
STEP = {
    "steps": 1, "prompts_per_step": 2, "num_generations": 4, "n_init": None, "n_final": None, "samples_every": 1,
    "engine": "transformers", "max_completion_length": 6, "rollout.temperature": 0.9, "data": {"template": "plain"},
}  # fmt: skip
WORDS = (
    "train.steps=1 train.prompts_per_step=2 rollout.num_generations=4 schedule.n_init=null schedule.n_final=null "
    "tracker.samples_every=1 rollout.engine=transformers rollout.max_completion_length=6 rollout.temperature=0.9 "
    "data.template=plain loss.kind=gspo"
)
KS = "expected positive integers joined by commas, as in 1,8"
SAMPLED = {"engine": "transformers", "max_tokens": 6, "n": 2, "template": "plain", "stop": ["1", "2"]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_import_loads_nothing():
    code = "import sys, d3s; print({'torch', 'numpy', 'pydantic', 'd3s.evaluation'} & set(sys.modules))"
    code += "; d3s.train, d3s.Run, d3s.UserError; print('torch' in sys.modules, callable(d3s.evaluate))"
    assert run_python(code).split("\n")[:2] == ["set()", "False True"]


def engine_beside_a_launcher(*arguments, **options):
    """An engine that sets what vLLM's reads of a launcher."""
    os.environ.update(zip(LAUNCH, ("0", "0", "1", "127.0.0.1", "29500")))
    return build_engine(*arguments, **options)


@pytest.mark.slow
def test_runs_and_evaluations_are_those_of_the_commands(tied_model, tmp_path, monkeypatch):
    """With a lambda, of which the configuration names the place in this process."""
    monkeypatch.setattr("d3s.trainer.build_engine", engine_beside_a_launcher)
    reward = [lambda response: float(len(response) % 2), ("boxed", 0.5)]
    run = d3s.train(tied_model, PROBLEMS, reward, kind="gspo", **STEP)
    assert not set(LAUNCH) & os.environ.keys()  # else the next run would be one of several
    assert str(run.path) == "runs/d3s-1" and run.code == 0 and (run.model / "config.json").is_file()
    assert run.metrics == lines(run.path / "metrics.jsonl") and [row["step"] for row in run.metrics] == [1]
    assert run.samples and {row["problem"] for row in run.samples} <= {row["problem"] for row in PROBLEMS}
    config = load_config([run.path / "config.yaml"])
    assert lines(tmp_path / config.data.path) == PROBLEMS
    own = {"model.name": str(tied_model), "data.path": config.data.path, "train.output_dir": run.path}
    own["reward.functions"] = ["d3s.rewards.given:reward", ("boxed", 0.5)]
    assert flat(config) == flat(load_config(["method/d3s"], WORDS.split())) | own

    with pytest.raises(d3s.UserError, match=r"runs/d3s-1: holds a run already; .* change train.output_dir"):
        d3s.train(tied_model, PROBLEMS, output_dir=run.path, **STEP)
    evaluation = d3s.evaluate(run, PROBLEMS, k=[2], n=2)
    (result,) = evaluation.results
    assert (result["data"], result["n"]) == ("problems", 2) and "pass@2" in result

    with monkeypatch.context() as patched:
        patched.setattr("d3s.commands.evaluate.build_engine", engine_beside_a_launcher)
        evaluation = d3s.evaluate(run.model, PROBLEMS, reward=rewards.even_length, **SAMPLED)
    assert not set(LAUNCH) & os.environ.keys()
    path = write_rows(tmp_path / "problems.jsonl", PROBLEMS)
    words = "--engine transformers --max-tokens 6 --n 2 --template plain --stop 1 2 --reward"
    words = [*words.split(), "tests.helpers.rewards:even_length"]
    output, _ = call_eval("--model", run.model, "--data", path, *words)
    assert evaluation.samples == lines(output / "problems.jsonl") and len(evaluation.samples) == 16
    assert evaluation.results == json.loads((output / "summary.json").read_text())["results"]
    write_rows(tmp_path / "more.jsonl", PROBLEMS[:2])
    again = SAMPLED | {"reward": "tests.helpers.rewards:even_length", "output": output}
    assert [r["data"] for r in d3s.evaluate(run.model, str(tmp_path / "more.jsonl"), **again).results] == ["more"]


@pytest.mark.slow
def test_lines_of_the_guide_run(tied_model):
    """On another model, in smaller numbers."""
    (block,) = re.findall(r"```python\n(.*?)```", section(ROOT / "docs/hacking.md", "Train from Python"), re.S)
    small = {
        '"tiny:precedence"': repr(str(tied_model)),
        "steps=20": "steps=1, prompts_per_step=2",
        "n=4)": "n=4, limit=2)",
    }
    for shown, replaced in small.items():
        assert shown in block
        block = block.replace(shown, replaced)
    exec(block, names := {})
    assert (names["run"].model / "config.json").is_file()


def test_failed_start_leaves_no_process(tied_model):
    rows, before = [{"problem": "2", "answer": '["assert double(1) == 2"]'}], server_ids()
    options = STEP | {"functions": ["d3s.programs.code_reward:CodeReward"], "data": {"template": "chat"}}
    with pytest.raises(d3s.UserError, match="has no chat template"):
        d3s.train(tied_model, rows, **options)
    assert server_ids() == before


def test_functions_have_a_name_that_rules_load():
    def shadowed(response):
        return 0.0

    class Counter:
        def __call__(self, response):
            return 0.0

    for function in (rewards.even_length, shadowed, lambda response: 1.0, lambda response: 0.0, Counter()):
        assert load_object(name_function(function), "reward.functions") is function
        assert name_function(function) == name_function(function)
    assert name_function(rewards.even_length) == "tests.helpers.rewards:even_length"
    with pytest.raises(d3s.UserError, match="unknown was not given in this process"):
        load_object("d3s.rewards.given:unknown", "reward.functions")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"steps": 0}, "train.steps: got 0, expected a number >= 1"),
        ({"stepz": 1}, "stepz: no such option (did you mean 'steps'?)"),
        ({"limit": 1}, "limit: got one of several options, expected data.limit or eval.limit"),
        ({"train": {"step": 1}}, "train.step: unknown key; did you mean train.steps?"),
        ({"data.path": "x"}, "data.path: is given twice, also by another argument; remove one"),
        ({"method": "d4s"}, "method: got 'd4s' (did you mean 'd3s'?)"),
        ({"train": 3}, "train: got 3, expected {option: value, ...}"),
        ({"problems": 5}, "problems: got 5, expected a source, or a list of dictionaries"),
        ({"problems": PROBLEMS[0]}, ", expected a source, or a list of dictionaries"),
        ({"problems": [3]}, "problems: number 1 is 3, expected a dictionary with problem and answer"),
        ({"problems": []}, "problems: got none, expected a source, or a list of dictionaries"),
        ({"train": {"steps": 1}}, "train.steps: is given twice, also by another argument; remove one"),
        ({"method": "../tiny"}, "method: got '../tiny'; expected one of "),
        ({"resume": True}, "resume: got True, expected 'auto', 'never' or the path of a checkpoint"),
        ({"problems": [PROBLEMS[0], {"problem": "a"}]}, "problems.jsonl line 2: no field 'answer'"),
        ({"problems": [{"problem": {1}}]}, "problems: number 1 has a value that is not of JSON ("),
        ({"problems": "none.jsonl"}, "none.jsonl: no such file"),
        ({"problems": ["a.jsonl", {"path": "a.jsonl", "weight": 2}]}, "expected a.jsonl once"),
        ({"reward": 3}, "reward.functions.0: got 3, expected module:function or [module:function, weight]"),
        ({"reward": lambda other: 1.0}, "needs 'other', which is no argument of this rule"),
        ({"model": "none"}, "none: no such directory and not in the hub's cache"),
    ],
)
def test_mistakes_raise_the_sentence_of_the_command(arguments, expected, monkeypatch):
    monkeypatch.setattr("d3s.pretrained.hub_problem", lambda endpoint: "offline")
    arguments = {"model": "tiny:precedence", "problems": PROBLEMS} | STEP | arguments
    with pytest.raises(d3s.UserError) as refused:
        d3s.train(**arguments)
    assert expected in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "--data: expected at least one benchmark, file, hub name or synthetic:TASK"),
        ({"problems": PROBLEMS, "other": 1}, "unrecognized arguments: --other=1"),
        ({"problems": PROBLEMS, "n": 2, "k": (1, 8)}, "--k: got pass@8, expected at most --n = 2"),
        ({"problems": PROBLEMS, "n": 2, "k": 8}, "--k: got pass@8, expected at most --n = 2"),
        ({"problems": PROBLEMS, "n": "x"}, "argument --n: invalid int value: 'x'"),
        ({"problems": PROBLEMS, "k": 0}, f"argument --k: got '0', {KS}"),
        ({"problems": PROBLEMS, "k": 1.5}, f"argument --k: got '1.5', {KS}"),
        ({"problems": PROBLEMS, "max_token": 3}, "unrecognized arguments: --max-token=3"),
        (
            {"problems": PROBLEMS, "model": "x"},
            "model: is another argument of d3s.evaluate; remove it from the options",
        ),
        ({"model_or_run": None}, "model_or_run: got None, expected a model, a run or the path of either"),
    ],
)
def test_mistakes_of_evaluations_are_raised(arguments, expected):
    with pytest.raises(d3s.UserError) as refused:
        d3s.evaluate(**{"model_or_run": "tiny:precedence"} | arguments)
    assert str(refused.value) == expected
