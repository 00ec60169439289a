"""What schedule.follow decides: in a step against the static choices, in a run against static runs and its metrics."""

import pytest
import torch

from d3s.methods import auto_share
from d3s.packing import Batch
from d3s.passes import forward_passes
from d3s.schedule import Schedule, planned_curve
from tests.helpers.command_line import lines, timeless
from tests.helpers.selection import ALL, REWARDS, config, select
from tests.helpers.small_run import same_parameters
from tests.helpers.subsets import seeded
from tests.helpers.training import EVALUATED, B, train

AUTO, COVERAGE = "d3s.methods.auto_share:AutoShare", "d3s.methods.coverage:Coverage"
PLATEAU = "{rule: d3s.methods.plateau:Plateau, patience: 1}"


@pytest.mark.parametrize("share", [None, 0.0, 0.5, 1.0])
def test_covering_number_measures_the_choice_made(share):
    """With variable shares and ineligible rollouts."""
    settings = config(f"schedule.follow={{rule: {COVERAGE}, n: 0.7}}", "schedule.n_init=2")
    eligible = ALL.clone()
    eligible[0, 6:], eligible[1, 2] = False, False

    def choose(number, generator):
        return select(settings, REWARDS, eligible, number, generator, share)

    generator = seeded(3)
    agreed = []
    n = Schedule(settings, agreed.append).n_of(8, choose, generator)
    assert torch.equal(generator.get_state(), seeded(3).get_state()) and n in (2, 4, 6)
    held = []
    for number in (n - 2, n):
        selection = choose(max(number, 1), seeded(3))
        advantages, kept = selection.advantages, selection.kept
        held.append((advantages[kept].square().sum() / advantages.square().sum()).item())
    assert held[1] >= 0.7 and (n == 2 or held[0] < 0.7)
    assert Schedule(config(), agreed.append).n_of(6, choose, generator) == 6
    assert agreed == [[str(n)]]  # ranks compare what a rule decides


def test_covering_fraction_counts_trainable_tokens():
    """The scores are 8, 4, 2, 1, 1 of 16, and an untrainable one of 99."""
    batch = Batch(
        [[1]], [[2] * 6], torch.tensor([-1.0, 1, 1, 1, 1, 1]), torch.zeros(6), torch.tensor([8.0, 4, 2, 1, 1, 99])
    )
    batch.trainable = torch.tensor([True] * 5 + [False])
    for cover, k in ((0.5, 0.2), (0.75, 0.4), (0.8, 0.6), (0.1, 0.2), (1.0, 0.9)):
        settings = config(f"schedule.follow={{rule: {COVERAGE}, k: {cover}}}", "schedule.k_final=0.9")
        assert Schedule(settings).k_of(0.9, batch) == pytest.approx(k)
    assert Schedule(config()).k_of(0.3, batch) == 0.3
    fixed = config(f"schedule.follow={COVERAGE}", "schedule.k_shape=constant", "selector.tokens=random")
    assert Schedule(fixed).k_of(0.05, batch) == 0.05


def test_coverage_needs_entropies_whenever_k_may_be_below_1():
    """Its plan is the upper bound, and K is known only after the passes."""
    options = ["selector.entropy_source=actor", "schedule.k_final=1"]
    assert not forward_passes(config(*options), 1.0).kept_rollouts
    assert forward_passes(config(*options, f"schedule.follow={COVERAGE}"), 1.0).kept_rollouts
    fixed = ["schedule.k_init=1", f"schedule.follow={COVERAGE}"]
    assert not forward_passes(config(*options, *fixed), 1.0).kept_rollouts


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "same_as"), [(0.0, "selector.cross_share=0"), (1.0, "selector.cross_share=1")])
def test_pinned_share_is_bitwise_the_static_method(share, same_as, tied_model, tmp_path):
    """D3S-I at 0, D3S at 1: the first steps decide nothing."""
    follow = f"schedule.follow={{rule: {AUTO}, share: {share}}}"
    _, automatic = train(tied_model, tmp_path / "auto", overrides=[follow])
    _, expected = train(tied_model, tmp_path / "static", overrides=[same_as])
    own = ("selection/cross_share", "control/")  # metrics of the automatic share
    common = [{k: v for k, v in line.items() if not k.startswith(own)} for line in timeless(automatic)]
    assert common == timeless(expected)
    assert same_parameters(tmp_path / "auto" / "model", tmp_path / "static" / "model")
    assert [(line["selection/cross_share"], line["control/change"]) for line in automatic] == [(share, 0)] * 3


def test_share_follows_the_logged_metrics(tied_model, tmp_path, monkeypatch):
    """Every change is the controller's on the run's own metrics, acts in the next step, and is logged with a reason."""
    for name, value in (("FIRST_STEPS", 1), ("DWELL", 1), ("CALM", 0.05), ("ALARM", 0.2)):
        monkeypatch.setattr(auto_share, name, value)
    options = [f"schedule.follow={AUTO}", "train.steps=8", "optim.learning_rate=3e-3"]
    config, metrics = train(tied_model, tmp_path, overrides=options)
    controller, reasons = auto_share.AutoShare(config), []
    for step, line in enumerate(metrics, 1):
        before, reason = controller.share, controller.observe(line)
        assert line["selection/cross_share"] == before and line["control/deviation"] == controller.deviation
        assert line["control/change"] == (controller.share > before) - (controller.share < before)
        reasons += [(step, f"schedule.follow: {AUTO}: {reason}")] if reason else []
    warnings = lines(tmp_path / "warnings.jsonl")
    assert [(w["step"], w["message"]) for w in warnings if w["key"] == "schedule.follow"] == reasons
    assert len({line["selection/cross_share"] for line in metrics}) > 2


def test_coverage_decides_n_and_k_of_each_step(tied_model, tmp_path):
    options = [f"schedule.follow={{rule: {COVERAGE}, n: 0.6, k: 0.5}}", "schedule.k_final=0.9", "train.steps=4"]
    config, metrics = train(tied_model, tmp_path, overrides=options)
    decided = [(line["schedule/n"], line["schedule/k"]) for line in metrics]
    planned = [planned_curve(config)(step / 3) for step in range(4)]
    assert [line["selection/rollouts"] for line in metrics] == [n * B for n, _ in decided]
    assert any(4 < n < 16 and n != of_plan for (n, _), (of_plan, _) in zip(decided, planned))
    assert all(0.05 < k < 0.9 and k != of_plan for (_, k), (_, of_plan) in zip(decided, planned))


def test_plateau_advances_the_schedule(tied_model, tmp_path):
    """Every response counts as right, so no evaluation after the first has progress, and nothing is trained."""
    options = [*EVALUATED, "eval.every=1", f"schedule.follow={PLATEAU}", "train.steps=5", "schedule.n_final=8"]
    options += ["reward.functions=[tests.helpers.rewards:always]", "eval.reward=tests.helpers.rewards:always"]
    config, metrics = train(tied_model, tmp_path, overrides=options, code=3)
    progress = [line["schedule/progress"] for line in metrics]
    assert progress == [0, 0.25, 0.5, 0.75, 1]
    assert [(line["schedule/n"], line["schedule/k"]) for line in metrics] == list(map(planned_curve(config), progress))
    warnings = [w for w in lines(tmp_path / "warnings.jsonl") if w["key"] == "schedule.follow"]
    assert [w["step"] for w in warnings] == [1, 2, 3, 4] and "0.75 to 1;" in warnings[-1]["message"]
