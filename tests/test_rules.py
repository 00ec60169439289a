"""Rules of a user's own: what they get, what of them is refused, and runs with them against built-in rules."""

import math
import random
import re

import pytest
import torch

from d3s.actor.logprobs import forward_passes
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.downsampling import downsample_tokens
from d3s.loss import LOSS_RULES
from d3s.plan.trials import attempt_rules
from d3s.rules import Contract
from tests.helpers import own_rules
from tests.helpers.actors import make_batch
from tests.helpers.command_line import kill_group, lines, run, start, wait_for
from tests.helpers.own_rules import Restless, Rotation
from tests.helpers.small_run import arguments, parameters, same_run
from tests.helpers.subsets import seeded

OWN, COVERAGE = "tests.helpers.own_rules", "schedule.follow=d3s.methods.coverage:Coverage"
SAME = {  # own rules that compute what the built-in ones of the default configuration compute
    "loss.kind": f"{{rule: {OWN}:surrogate, epsilon: 0.2}}",
    "reward.advantages": f"{OWN}:standardized",
    "rollout.strategy": f"{OWN}:InTwoRounds",
    "selector.rollouts": f"{OWN}:pooled",
    "selector.tokens": f"{OWN}:priorities",
    "schedule.n_shape": f"{OWN}:line",
    "schedule.k_shape": f"{{rule: {OWN}:also_line, slope: 1}}",
}


def settings(rules):
    return [f"{option}={value}" for option, value in rules.items()]


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("loss.kind", "grop", "got 'grop', expected 'grpo', 'gspo', 'cispo', module:function or {rule: NAME, option"),
        ("loss.kind", "{rule: grop}", "did you mean 'grpo'?"),
        ("loss.kind", "{rule: grpo, width: 2}", "grpo has no option 'width'; expected no options"),
        ("loss.kind", "{kind: grpo}", "expected a name, module:function or {rule: NAME, option: value}"),
        ("loss.kind", "{rule: grpo, epsilon: {a: 1}}", "expected {name: value, ...} with text, numbers, true, false"),
        ("loss.kind", "no_such_module:f", "expected module:function (ModuleNotFoundError"),
        ("loss.kind", f"{OWN}:absent", "expected module:function (AttributeError"),
        ("loss.kind", f"{OWN}:misspelled", "needs 'logprob', which is no argument of this rule and has no default"),
        ("loss.kind", f"{{rule: {OWN}:surrogate, width: 2}}", "has no option 'width'; expected one of epsilon"),
        ("loss.kind", f"{{rule: {OWN}:surrogate, advantages: 2}}", "has no option 'advantages'; expected one of epsi"),
        ("loss.kind", f"{OWN}:no_statistics", "returned Tensor, expected (loss, statistics by name)"),
        ("loss.kind", f"{OWN}:no_gradient", "returned a loss without a gradient"),
        ("loss.kind", f"{OWN}:per_token", "returned as the loss a tensor [6], expected []"),
        ("loss.kind", f"{OWN}:bad_statistic", "returned the statistic 'name', expected a tensor"),
        ("loss.kind", f"{OWN}:nan_loss", "returned NaN or infinity for finite arguments"),
        ("loss.kind", f"{OWN}:raises", "raised KeyError: 'missing' (own_rules.py, line "),
        ("selector.rollouts", f"{OWN}:integer_mask", "returned a tensor of torch.int64, expected torch.bool"),
        ("selector.rollouts", f"{OWN}:too_many", "returned rollouts that are not eligible"),
        ("selector.rollouts", f"{OWN}:one_group", "returned a tensor [4], expected [2, 4]"),
        ("selector.tokens", f"{OWN}:nan_priorities", "returned NaN or infinity as a priority"),
        ("selector.tokens", f"{OWN}:double_weights", "returned a tensor of torch.float64, expected torch.float32"),
        ("selector.tokens", f"{OWN}:half_priorities", "returned a tensor of torch.bfloat16, expected torch.float32 or"),
        ("selector.tokens", f"{OWN}:of_rollouts", "returned a tensor [2], expected [8]; priorities are float [T]"),
        ("schedule.n_shape", f"{OWN}:beyond", "returned 1.1 at progress 0.55, expected a number from 0 to 1"),
        ("schedule.k_shape", f"{OWN}:text", "returned 'half' at progress 0, expected a number"),
        ("schedule.k_shape", f"{OWN}:later", "is an async function, expected a plain function"),
    ],
)
def test_wrong_rules_are_refused(option, value, problem):
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], [f"{option}={value}"]))
    assert str(error.value).startswith(f"{option}: ") and problem in str(error.value)


ORDER, FOLLOW = "data.order", "schedule.follow"


@pytest.mark.parametrize(
    ("option", "base", "methods", "problem"),
    [
        (ORDER, object, {}, "has no method take"),
        (ORDER, object, {"take": lambda self, count: random.sample(range(12), count)}, "random numbers need the seed"),
        (ORDER, object, {"take": lambda self: 0, "state_dict": dict}, "expected both or neither"),
        (ORDER, Rotation, {"__init__": lambda self, size: None}, "needs 'size', which is no argument of this rule"),
        (ORDER, Rotation, {"__init__": lambda self: 1 / 0}, "raised ZeroDivisionError: division by zero (test_rules"),
        (ORDER, Rotation, {"take": lambda self, number: 0}, "Wrong.take needs 'number', which is no argument"),
        (ORDER, Rotation, {"take": lambda self: {}["a"]}, "Wrong.take raised KeyError: 'a' (test_rules.py, line "),
        (ORDER, Rotation, {"take": lambda self, count: [0] * (count + 1)}, "expected a list of 4 integers"),
        (ORDER, Rotation, {"take": lambda self, count: [12] * count}, "returned the index 12, expected 0 to 11"),
        (ORDER, Rotation, {"learn": lambda self, outcomes: 0}, "Wrong.learn needs 'outcomes'"),
        (ORDER, Rotation, {"metrics": lambda self: {"a": math.nan}}, "expected finite numbers by name"),
        (ORDER, Rotation, {"state_dict": lambda self: [1]}, "Wrong.state_dict returned list, not dict"),
        (ORDER, Rotation, {"state_dict": lambda self: {"next": print}}, "returned what no checkpoint holds"),
        (ORDER, Rotation, {"load_state_dict": lambda self, state: None}, "restored from its state differs"),
        (FOLLOW, object, {"observe": lambda self: None}, "has no method at or n_of or k_of or cross_share"),
        (FOLLOW, Restless, {"at": lambda self: 8}, "Wrong.at returned 8, expected (N, K)"),
        (FOLLOW, Restless, {"at": lambda self: (33, 0.1)}, "returned 33 as N, expected an integer from 8 to 32"),
        (FOLLOW, Restless, {"at": lambda self: (8, 0.3)}, "returned 0.3 as K, expected a number from 0.05 to 0.2"),
        (FOLLOW, Restless, {"n_of": lambda self, choose: choose(8)}, "as N, expected an integer from 8 to 32"),
        (FOLLOW, Restless, {"k_of": lambda self: math.nan}, "returned nan as K, expected a number from 0.05 to 0.2"),
        (FOLLOW, Restless, {"cross_share": lambda self: 2}, "returned 2, expected a number from 0 to 1"),
        (FOLLOW, Restless, {"observe": lambda self: 3}, "returned 3, expected a text or None"),
    ],
)
def test_wrong_classes_are_refused(option, base, methods, problem, monkeypatch):
    monkeypatch.setattr(own_rules, "Wrong", type("Wrong", (base,), methods), raising=False)
    with pytest.raises(UserError) as error:
        attempt_rules(load_config([], [f"{option}={OWN}:Wrong"]))
    assert str(error.value).startswith(f"{option}: {OWN}:Wrong") and problem in str(error.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([f"data.order={OWN}:line"], "line is no class"),
        ([f"data.order={{rule: {OWN}:Rotation, width: 2}}"], "has no option 'width'; expected one of stride"),
        (["data.order={rule: d3s.methods.vade:Vade, asked: 2}"], "uniform_share and decays must be from 0 to 1"),
        (
            ["schedule.follow={rule: d3s.methods.plateau:Plateau, patience: 0}"],
            "patience must be an integer",
        ),
        ([COVERAGE, "selector.normalize=after", "selector.cross_group=false"], "requires selector.normalize: before"),
        ([COVERAGE, "selector.tokens=entropy"], "requires selector.tokens: advantage_entropy"),
        ([COVERAGE, "schedule.n_shape=constant", "schedule.k_shape=constant"], "requires schedule ends that differ"),
        (["schedule.follow=d3s.methods.auto_share:AutoShare", "selector.cross_group=false"], "requires selector.cross"),
    ],
)
def test_classes_refuse_options(options, problem):
    with pytest.raises(UserError, match=f"^(data.order|schedule.follow): .*{re.escape(problem)}"):
        attempt_rules(load_config([], options))


def test_right_classes_are_accepted():
    attempt_rules(
        load_config([], [f"data.order={{rule: {OWN}:Rotation, stride: 5}}", f"schedule.follow={OWN}:Restless"])
    )


def test_rules_get_what_they_take():
    """By name, with their options; a rule with **arguments gets everything."""
    seen = {}

    def note(function):
        contract = Contract("a.b", {"f": function}, ("x", "y"), lambda *_, **__: None)
        seen["takes"] = contract.rule({"rule": "f", "z": 3}).takes
        return contract.rule({"rule": "f", "z": 3})(x=1, y=2)

    assert note(lambda y, z: (y, z)) == (2, 3) and seen["takes"] == {"y"}
    assert note(lambda *, z, x=9: (x, z)) == (1, 3) and seen["takes"] == {"x"}
    assert note(lambda **all_of_them: all_of_them) == {"x": 1, "y": 2, "z": 3} and seen["takes"] == {"x", "y"}
    with pytest.raises(UserError, match="takes 'y' by position"):
        note(lambda y, /, z: y)


def test_rules_return_checked_values_in_a_run():
    """Also values that only real arguments provoke."""
    rule = LOSS_RULES.rule(f"{OWN}:surrogate")
    with pytest.raises(UserError, match=r"own_rules:surrogate raised \w*Error"):
        rule(logprobs=torch.zeros(2), old_logprobs=torch.zeros(3), advantages=torch.zeros(2), denominator=1.0)
    config = load_config([], [f"selector.tokens={OWN}:nan_priorities"])
    batch = make_batch()
    batch.entropies[0] = 0.0
    with pytest.raises(UserError, match="NaN or infinity as a priority"):
        downsample_tokens(config.selector, batch, 0.5, seeded(0))


@pytest.mark.parametrize(("rule", "entropies"), [("priorities", True), ("unlikely", False), ("takes_all", True)])
def test_passes_follow_the_arguments_of_a_rule(rule, entropies):
    """The actor computes entropies for a rule that takes them, and full rollouts for a loss of sequences."""
    options = [f"selector.tokens={OWN}:{rule}", "selector.entropy_source=actor", "optim.num_minibatches=2"]
    for loss, full in (("surrogate", False), ("sequence_mean", True)):
        passes = forward_passes(load_config([], [*options, f"loss.kind={OWN}:{loss}"]), 0.2)
        assert (passes.kept_rollouts, passes.full_rollouts) == (entropies, full)


def test_token_rules_may_mark_or_weight():
    batch = make_batch()
    batch.rollout_logprobs = -torch.rand(len(batch.sequence_ids), generator=seeded(0))
    chosen, weights, _ = downsample_tokens(
        load_config([], [f"selector.tokens={OWN}:unlikely"]).selector, batch, 0.5, seeded(0)
    )
    assert torch.equal(chosen, batch.rollout_logprobs < batch.rollout_logprobs.median()) and weights is None
    selector = load_config([], [f"selector.tokens={OWN}:every_other"]).selector
    chosen, weights, _ = downsample_tokens(selector, batch, 0.5, seeded(0))
    before = batch.advantages.clone()
    batch.select(chosen, weights)
    assert chosen[::2].all() and not chosen[1::2].any() and batch.weighted
    assert torch.equal(batch.advantages, 2 * before)


@pytest.mark.slow
def test_dry_run_names_own_rules():
    code, output = run(["train.py", "--config", "configs/tiny.yaml", "--dry-run", *settings(SAME)])
    assert code == 0 and f"{OWN}:pooled" in output and f"{OWN}:priorities" in output
    code, output = run(["train.py", "--config", "configs/tiny.yaml", "--dry-run", f"selector.tokens={OWN}:of_rollouts"])
    assert code == 2 and "expected [8]" in output and "Traceback" not in output


@pytest.mark.slow
def test_own_rules_equal_built_in_ones_bitwise(tied_model, tmp_path):
    """On two ranks, through the command line; the loss of one's own logs no clipped tokens."""
    folders = [tmp_path / "built-in", tmp_path / "own"]
    for folder, rules in zip(folders, ([], settings(SAME))):
        assert run([*arguments(tied_model, folder), "optim.num_minibatches=2", *rules], "ddp")[0] == 0
    models = [parameters(folder / "model") for folder in folders]
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.slow
def test_killed_run_goes_on_with_the_state_of_own_rules(tied_model, tmp_path):
    """On two ranks, killed after the second step: problems, N and K are those of the run that was not killed."""
    rules = [f"data.order={{rule: {OWN}:Rotation, stride: 3}}", f"schedule.follow={OWN}:Restless"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    code, output = run([*arguments(tied_model, whole), *rules], "ddp")
    assert code == 0, output
    process = start([*arguments(tied_model, killed), *rules], "ddp")
    wait_for((killed / "checkpoints" / "step_000002").exists, process)
    kill_group(process)
    code, output = run([*arguments(tied_model, killed), *rules, "--resume", "auto"], "ddp")
    assert code == 0 and same_run(whole, killed), output
    states = [torch.load(run / "checkpoints/step_000004/parts.pt", weights_only=True) for run in (whole, killed)]
    assert states[0] == states[1] and len(states[0][f"schedule.follow {OWN}:Restless"]["rewards"]) == 4
    assert len({line["schedule/k"] for line in lines(whole / "metrics.jsonl")}) > 2
    assert all(f"{OWN}:Restless: the mean" in w["message"] for w in lines(killed / "warnings.jsonl"))
