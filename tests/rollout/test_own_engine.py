"""Engines of a user's own: that of the guide through the command lines, one against the built-in, and wrong ones."""

import math
import re
import sys
from pathlib import Path

import pytest

from d3s.commands import train as train_command
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import RolloutConfig
from d3s.rollout import build_engine
from d3s.rollout.engine import SamplingParams
from d3s.trials import attempt_rules
from tests.helpers import own_rules
from tests.helpers.command_line import lines
from tests.helpers.evaluations import call_eval
from tests.helpers.own_rules import Silent
from tests.helpers.small_run import arguments, same_run

[GUIDE] = re.findall(r"```python\n([^`]*?def sample\([^`]*?)```", Path("docs/hacking.md").read_text())
ENGINE = "tests.helpers.own_rules:engine"


def changed(base=Silent, **values):
    """An engine whose second response has other values."""

    def sample(self, seeds, rollouts, params, entropies):
        base.sample(self, seeds, rollouts, params, entropies)
        for name, value in values.items():
            setattr(rollouts[1], name, value)

    return type("Changed", (base,), {"sample": sample})


def reports_unfilled(self, rollouts, on_finished):
    on_finished(rollouts[0])


def reports_twice(self, seeds, rollouts, params, entropies, on_finished):
    Silent.sample(self, seeds, rollouts, params, entropies)
    on_finished(rollouts[0])
    on_finished(rollouts[0])


def reports_early(self, seeds, rollouts, params, entropies, on_finished):
    Silent.sample(self, seeds, rollouts, params, entropies)
    on_finished(rollouts[0])
    rollouts[0].response_ids[0] += 1


def serves_one_model(self, weights):
    raise NotImplementedError


def own(**methods):
    return type("Own", (Silent,), methods)


def without(name):
    return type("Lacking", (), {key: value for key, value in vars(Silent).items() if key != name})


def call(*words, monkeypatch):
    """train.py in this process, which saves the imports."""
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    return train_command.main()


def test_guide_engine_trains_and_evaluates(tied_model, tmp_path, monkeypatch):
    """In one file, through the command lines; a run with it is evaluated by it."""
    (tmp_path / "guide_engine.py").write_text(GUIDE)
    monkeypatch.syspath_prepend(tmp_path)
    words = [*arguments(tied_model, tmp_path / "run"), "train.steps=2", "rollout.engine=guide_engine:Engine"]
    assert call(*words, monkeypatch=monkeypatch) == 0
    steps = lines(tmp_path / "run" / "metrics.jsonl")
    assert len(steps) == 2 and all(0 < s["policy/entropy"] < 6 and s["sync/mean_abs_dlogp"] < 1e-5 for s in steps)
    options = ["--run", tmp_path / "run", "--data", "synthetic:precedence", "--limit", 2, "--n", 2, "--output"]
    assert "precedence" in call_eval(*options, tmp_path / "out")[1]
    assert len(lines(tmp_path / "out" / "precedence.jsonl")) == 4


def test_stopped_evaluation_is_no_engine_failure(tied_model, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(rollout):
        raise Stopped

    def sample(self, rollouts, on_finished):
        for rollout in rollouts:
            rollout.response_ids, rollout.logprobs = [1], [-1.0]
            on_finished(rollout)

    monkeypatch.setattr(own_rules, "engine", own(sample=sample), raising=False)
    engine = build_engine(tied_model, RolloutConfig(engine=ENGINE), dtype="float32", max_model_len=64, seed=0)
    params = SamplingParams(temperature=1.0, max_tokens=4)
    with pytest.raises(Stopped):
        engine.generate([[1]], n=1, params=params, seeds=[0], entropies=False, on_finished=stop)


def test_own_engine_equals_the_built_in_bitwise(tied_model, tmp_path, monkeypatch):
    monkeypatch.setattr(own_rules, "engine", Silent, raising=False)
    for name, engine in (("built-in", "transformers"), ("own", f"{{rule: {ENGINE}, tokens: 2}}")):
        words = [*arguments(tied_model, tmp_path / name), "train.steps=2", f"rollout.engine={engine}"]
        assert call(*words, monkeypatch=monkeypatch) == 0
    assert same_run(tmp_path / "built-in", tmp_path / "own")


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ("{rule: vllm, eager: true}", "vllm has no option 'eager'; expected no options"),
        (lambda: None, "engine is no class"),
        (without("sample"), "engine has no method sample"),
        (without("load_weights"), "engine has no method load_weights"),
        (own(load_weights=lambda self, named: None), ".load_weights needs 'named', which is no"),
        (own(__init__=lambda self, url: None), "needs 'url', which is no argument of this rule"),
        (own(sample=lambda self, rollouts: rollouts), "returned list, expected None, as `sample`"),
        (own(sample=lambda self: None), ".sample returned 0 tokens in rollout 0, expected 1 to 8"),
        (own(sample=lambda self: {}["a"]), ".sample raised KeyError: 'a' (test_own_engine.py, "),
        (own(load_weights=lambda self, weights: {}[0]), ".load_weights raised KeyError: 0 (test"),
        (own(checksums=lambda self: [1]), ".checksums returned list, expected the dict of weight"),
        (own(take_preemptions=lambda self: "1"), ""),  # asked by a run alone
        (changed(response_ids=list(range(9))), ".sample returned 9 tokens in rollout 1, expected 1 to 8 token ids"),
        (changed(response_ids=[1], logprobs=[None]), ".sample returned None in the logprobs in rollout 1, expected"),
        (changed(response_ids=[1], logprobs=[-math.inf]), ".sample returned -inf in the logprobs in rollout 1, expe"),
        (changed(response_ids=[257], logprobs=[-1.0]), ".sample returned the token 257 in rollout 1, expected an id b"),
        (changed(response_ids=[-1], logprobs=[-1.0]), ".sample returned the token -1 in rollout 1, expected an id b"),
        (own(sample=reports_unfilled), ".sample called on_finished with 0 tokens in a rollout, expected 1 to 8 token"),
        (own(sample=reports_twice), ".sample called on_finished with a rollout for the second time"),
        (own(sample=reports_early), ".sample called on_finished before the response was complete"),
        (changed(entropies=[]), "returned no entropies; set selector.entropy_source: actor"),
        (Silent, ""),
        (own(load_weights=serves_one_model), ""),
    ],
)  # fmt: skip
def test_wrong_engines_are_refused_before_a_run(engine, problem, monkeypatch):
    if not isinstance(engine, str):
        monkeypatch.setattr(own_rules, "engine", engine, raising=False)
        engine = ENGINE
    if not problem:
        attempt_rules(load_config([], [f"rollout.engine={engine}"]))
        return
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], [f"rollout.engine={engine}"]))
    assert str(error.value).startswith("rollout.engine: ") and problem in str(error.value)
    if "entropies" in problem:
        attempt_rules(load_config([], [f"rollout.engine={engine}", "selector.entropy_source=actor"]))


def test_evaluations_refuse_wrong_engines(tied_model, tmp_path, monkeypatch):
    monkeypatch.setattr(own_rules, "engine", without("sample"), raising=False)
    for engine, problem in ((ENGINE, f"{ENGINE} has no method sample"), ("hf", "got 'hf', expected 'vllm'")):
        with pytest.raises(UserError, match=f"^--engine: {problem}"):
            call_eval("--model", tied_model, "--data", "synthetic:precedence", "--engine", engine)
