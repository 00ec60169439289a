"""Rules of a user's own: what they get and may return, and runs with them against built-in rules."""

import shutil
from copy import deepcopy
from inspect import signature

import pytest
import torch

from d3s.common import UserError
from d3s.config.checks import contract_of
from d3s.config.load import load_config
from d3s.passes import forward_passes
from d3s.rules import Contract
from d3s.selector import Selector
from d3s.trainer import Trainer
from tests.helpers import own_rules
from tests.helpers.actors import make_batch
from tests.helpers.command_line import lines, run
from tests.helpers.small_run import same_parameters, same_run
from tests.helpers.subsets import seeded
from tests.helpers.training import train

OWN = "tests.helpers.own_rules"
SAME = {  # own rules that compute what the built-in ones of the default configuration compute
    "loss.kind": f"{{rule: {OWN}:surrogate, clip: 0.2}}",
    "reward.advantages": f"{OWN}:standardized",
    "rollout.strategy": f"{OWN}:InTwoRounds",
    "selector.rollouts": f"{OWN}:pooled",
    "selector.tokens": f"{OWN}:priorities",
    "schedule.n_shape": f"{OWN}:line",
    "schedule.k_shape": f"{{rule: {OWN}:also_line, slope: 1}}",
}


def settings(rules):
    return [f"{option}={value}" for option, value in rules.items()]


def test_rules_get_what_they_take():
    """By name, with their options; a rule with **arguments gets everything."""

    def note(function):
        rule = Contract("a.b", {"f": function}, ("x", "y"), lambda *_, **__: None).rule({"rule": "f", "z": 3})
        return rule(x=1, y=2), rule.takes

    assert note(lambda y, z: (y, z)) == ((2, 3), {"y"})
    assert note(lambda *, z, x=9: (x, z)) == ((1, 3), {"x"})
    assert note(lambda **all_of_them: all_of_them) == ({"x": 1, "y": 2, "z": 3}, {"x", "y"})
    with pytest.raises(UserError, match="takes 'y' by position"):
        note(lambda y, /, z: y)


def test_values_are_checked_in_a_run():
    batch = make_batch()
    batch.entropies[0] = 0.0
    with pytest.raises(UserError, match="NaN or infinity as a priority"):
        select_tokens(f"selector.tokens={OWN}:nan_priorities", batch)


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
    select_tokens(f"selector.tokens={OWN}:unlikely", batch)
    marked = batch.rollout_logprobs < batch.rollout_logprobs.median()
    assert torch.equal(batch.selected, marked) and batch.weights is None
    before = batch.advantages.clone()
    select_tokens(f"selector.tokens={OWN}:every_other", batch)
    assert batch.selected[::2].all() and not batch.selected[1::2].any() and batch.counts_all
    assert torch.equal(batch.advantages, before) and (batch.weights == 2).all()


@pytest.mark.slow
def test_dry_run_names_own_rules():
    code, output = run(["train.py", "--config", "configs/tiny.yaml", "--dry-run", *settings(SAME)])
    names = [value.removeprefix("{rule: ").partition(",")[0] for value in SAME.values()]
    assert code == 0 and not [name for name in names if name not in output]


@pytest.mark.slow
def test_own_rules_equal_built_in_ones_bitwise(tied_model, tmp_path):
    """The loss of one's own logs no clipped tokens."""
    for name, rules in (("built-in", []), ("own", settings(SAME))):
        train(tied_model, tmp_path / name, overrides=["optim.num_minibatches=2", *rules])
    assert same_parameters(tmp_path / "built-in" / "model", tmp_path / "own" / "model")


@pytest.mark.slow
def test_run_goes_on_with_the_state_of_own_rules(tied_model, tmp_path):
    """From its second step: problems, N and K are those of the whole run."""
    rules = {**SAME, "data.order": f"{{rule: {OWN}:Rotation, stride: 3}}", "schedule.follow": f"{OWN}:Restless"}
    options = ["train.steps=4", "checkpoint.every=2", "checkpoint.keep=4", *settings(rules)]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train(tied_model, whole, overrides=options)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "model")
    train(tied_model, resumed, overrides=options, checkpoint=resumed / "checkpoints" / "step_000002")
    assert same_run(whole, resumed)
    states = [torch.load(run / "checkpoints/step_000004/parts.pt", weights_only=True) for run in (whole, resumed)]
    assert states[0] == states[1] and len(states[0][f"schedule.follow {OWN}:Restless"]["rewards"]) == 4
    assert len({line["schedule/k"] for line in lines(whole / "metrics.jsonl")}) > 2
    decisions = [w["message"] for w in lines(resumed / "warnings.jsonl") if w["key"] == "schedule.follow"]
    assert len(decisions) == 4 and all(f"{OWN}:Restless: the mean" in decision for decision in decisions)


@pytest.mark.parametrize("follow", [[], ["schedule.follow=d3s.methods.coverage:Coverage"]])
def test_steps_call_advantages_once_and_look_up_nothing(tied_model, tmp_path, monkeypatch, follow):
    calls, steps, advance, look_up = [], [], Trainer.advance, Contract.rule

    def counted(rewards):
        calls.append(rewards)
        return rewards - rewards.mean(1, keepdim=True)

    def counting_advance(self):
        with monkeypatch.context() as patch:
            patch.setattr(Contract, "rule", lambda self, value: steps.append(self.option) or look_up(self, value))
            before = len(calls)
            metrics = advance(self)
        assert len(calls) - before == 1 and not steps
        return metrics

    monkeypatch.setattr(own_rules, "counted", counted, raising=False)
    monkeypatch.setattr(Trainer, "advance", counting_advance)
    options = [f"reward.advantages={OWN}:counted", "train.steps=2", "loss.old_logprobs=actor"]
    options += ["loss.engine_correction=truncate", "loss.beta=0.1", "optim.num_minibatches=2", *follow]
    train(tied_model, tmp_path / "run", overrides=options)
    assert len(calls) > 2


def select_tokens(option: str, batch) -> None:
    """Half of the tokens of a batch, by the rule that an option names."""
    settings = load_config([], [option])
    Selector(settings.selector, settings.reward).tokens(batch, 0.5, seeded(0))


def shifted(function):
    """A rule that changes every tensor, list and dictionary in place before it calls another one."""

    def rule(**arguments):
        taken = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
        for value in arguments.values():
            if isinstance(value, torch.Tensor):
                value.detach().zero_() if value.dtype is torch.bool else value.detach().add_(1)
            elif isinstance(value, dict):
                [item.add_(1) for item in value.values() if isinstance(item, torch.Tensor)]
                [item.clear() for item in value.values() if isinstance(item, dict | list)]
                value.clear()
            elif isinstance(value, list):
                value.reverse()
        return function(**{name: taken[name] for name in signature(function).parameters if name in taken})

    return rule


@pytest.mark.parametrize(
    ("option", "function"),
    [
        ("selector.rollouts", own_rules.pooled),
        ("selector.tokens", own_rules.priorities),
        ("loss.kind", own_rules.surrogate),
        ("reward.advantages", own_rules.standardized),
    ],
)
def test_rules_change_copies_in_place(option, function, monkeypatch):
    """The trainer's values stay, and the result is that of the same rule without changes."""
    monkeypatch.setattr(own_rules, "shifted", shifted(function), raising=False)
    contract = contract_of(option)
    for arguments, same in zip(contract.examples(), contract.examples(), strict=True):
        kept = {name: deepcopy(value) for name, value in arguments.items() if name != "generator"}
        result = contract.rule(f"{OWN}:shifted")(**arguments)
        assert all(equal(arguments[name], value) for name, value in kept.items())
        assert equal(result, contract.rule(f"{OWN}:{function.__name__}")(**same))


def equal(one, other) -> bool:
    """Whether values are alike, with tensors in lists and dictionaries."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
