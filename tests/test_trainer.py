"""Training steps against transformers on single sequences and against the sampled rollouts.

The inputs of the update are recomputed from rollouts and rewards, and the forward passes are counted. The update itself
is tested in tests/actor/test_actor.py.
"""

import math
from dataclasses import dataclass, field

import pytest
import torch
from safetensors.torch import load_file

from d3s.actor import Actor
from d3s.advantage import group_advantages
from d3s.packing import Batch
from d3s.rollout.groups import RolloutGroups
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.rules import rule_name
from d3s.trainer import Trainer
from tests.helpers.command_line import lines
from tests.helpers.reference import load_reference, response_entropies, response_logprobs, vocabulary_logprobs
from tests.helpers.rewards import rarely
from tests.helpers.rounding import assert_same_values
from tests.helpers.training import STEPS, B, G, train

ENTROPIES, MASK, TWO_UPDATES, TRUNCATE, TOKEN_MASK, KL, NO_SIGNAL = (
    "selector.entropy_source=actor",
    "loss.engine_correction={rule: sequence_mask, cap: 1.05}",
    "optim.num_minibatches=2",
    "loss.engine_correction={rule: truncate, cap: 1.05}",
    "loss.engine_correction={rule: token_mask, cap: 1.05}",
    "loss.beta=0.1",
    "reward.functions=[tests.helpers.rewards:always]",
)
CASES = {  # overrides, and the forward passes that they need before the update
    "nothing": ([], []),
    "entropies": ([ENTROPIES], ["kept with entropies"]),
    "random tokens": ([ENTROPIES, "selector.tokens=random"], []),
    "all tokens": ([ENTROPIES, "schedule.k_init=1", "schedule.k_final=1", TWO_UPDATES], ["selected"]),
    "old": ([TWO_UPDATES], ["selected"]),
    "old and entropies": ([ENTROPIES, TWO_UPDATES, TRUNCATE], ["kept with entropies"]),
    "gspo": ([TWO_UPDATES, "loss.kind=gspo"], ["rollouts with a selected token"]),
    "weights and reference": ([TRUNCATE, KL], ["selected", "reference"]),
    "gspo, weights and reference": (
        [TWO_UPDATES, TRUNCATE, KL, "loss.kind=gspo"],
        ["rollouts with a selected token", "reference"],
    ),
    "token mask": ([TOKEN_MASK, TWO_UPDATES], ["selected"]),
    "token mask and reference": ([TOKEN_MASK, KL], ["selected", "reference"]),
    "gspo and token mask": ([TWO_UPDATES, TOKEN_MASK, "loss.kind=gspo"], ["rollouts with a selected token"]),
    "mask": ([MASK], ["rollouts with a selected token"]),
    "mask and old": ([MASK, TWO_UPDATES], ["rollouts with a selected token"]),
    "mask and entropies": ([MASK, ENTROPIES, TWO_UPDATES, KL], ["kept with entropies", "reference"]),
    "mask of finished rollouts": (
        [MASK, TWO_UPDATES, "loss.kind=gspo", "loss.overlong_filtering=true"],
        ["rollouts with a selected token"],
    ),
    "no signal": ([TWO_UPDATES, TRUNCATE, NO_SIGNAL], []),
    "no signal but the reference": ([TWO_UPDATES, KL, NO_SIGNAL], ["selected", "reference"]),
}


@dataclass
class StepRecord:
    """What a run of one step sampled, its forward passes before the update, and the batch of the update."""

    groups: RolloutGroups | None = None
    batch: Batch | None = None
    passes: list[tuple] = field(default_factory=list)  # arguments of compute_logprobs


@pytest.fixture
def recorded(monkeypatch) -> StepRecord:
    """Record a step in which every third rollout is close to the actor and no engine number equals the actor's."""
    record = StepRecord()
    generate, collect, compute_logprobs, update = (
        TransformersEngine.generate, Trainer.collect, Actor.compute_logprobs, Actor.update,
    )  # fmt: skip

    def perturbed_generate(self, *arguments, **options):
        rollouts = generate(self, *arguments, **options)
        for i, rollout in enumerate(rollouts):
            rollout.logprobs = [x + (0.5 * (-1) ** t if i % 3 else 0.1) for t, x in enumerate(rollout.logprobs)]
            rollout.entropies = [x * (1 + t % 2) for t, x in enumerate(rollout.entropies)]
        return rollouts

    def recording_collect(self):
        record.groups = collect(self)
        return record.groups

    def recording_logprobs(self, batch, reference=False, wanted=None, entropies=True):
        if record.groups is not None and record.batch is None:  # not the probes of the weight syncs
            record.passes.append((batch, reference, wanted, entropies))
        return compute_logprobs(self, batch, reference, wanted, entropies)

    def recording_update(self, batch, *arguments):
        record.batch = batch
        return update(self, batch, *arguments)

    monkeypatch.setattr(TransformersEngine, "generate", perturbed_generate)
    monkeypatch.setattr(Trainer, "collect", recording_collect)
    monkeypatch.setattr(Actor, "compute_logprobs", recording_logprobs)
    monkeypatch.setattr(Actor, "update", recording_update)
    return record


def pass_name(arguments: tuple, batch: Batch) -> str:
    """The name of a forward pass in CASES."""
    _, reference, wanted, entropies = arguments
    if reference:
        return "reference" if torch.equal(wanted, batch.selected) else "reference of unselected tokens"
    if wanted is None:
        return "kept" + (" with entropies" if entropies else "")
    assert not entropies
    if torch.equal(wanted, batch.selected):
        return "selected"
    assert torch.equal(wanted, batch.rollouts_with(batch.selected))
    return "rollouts with a selected token"


@pytest.mark.parametrize("case", CASES)
def test_update_inputs_match_rollouts_and_reference(case, tied_model, tmp_path, recorded):
    overrides, passes = CASES[case]
    settings = ["train.steps=1", "loss.old_logprobs=actor", "rollout.max_logprob_gap=9", "schedule.n_final=8"]
    settings += ["schedule.k_init=0.2", "optim.num_minibatches=1", *overrides]
    config, [metrics] = train(tied_model, tmp_path, overrides=settings)
    groups, batch = recorded.groups, recorded.batch
    table = {(r.prompt_index, r.sample): r for r in groups.rollouts}
    eligible = [cell for cell, r in table.items() if r.finished or not config.loss.overlong_filtering]
    assert [pass_name(arguments, batch) for arguments in recorded.passes] == passes

    cells = {
        (tuple(r.prompt_ids), tuple(r.response_ids), tuple(torch.tensor(r.logprobs).tolist())): cell
        for cell, r in table.items()
    }
    lengths = [len(r) for r in batch.responses]
    rows = zip(batch.prompts, batch.responses, batch.rollout_logprobs.split(lengths))
    kept = [cells[tuple(map(int, p)), tuple(map(int, r)), tuple(x.tolist())] for p, r, x in rows]
    assert kept == sorted(kept) and set(kept) <= set(eligible) and 0 < len(kept) <= 8 * B < B * G

    batch.prompts, batch.responses = ([list(map(int, x)) for x in texts] for texts in (batch.prompts, batch.responses))
    with torch.no_grad():
        tables = vocabulary_logprobs(load_reference(tied_model), batch, config.rollout.temperature)
    exact, selected = torch.cat(response_logprobs(tables, batch)), batch.selected
    if any("entropies" in name for name in passes):
        assert_same_values(batch.entropies, response_entropies(tables), largest=10.0)
    log_ratios = exact - batch.rollout_logprobs
    near = torch.tensor([float(log_ratios[batch.tokens_of(i)].mean().abs() < math.log(1.05)) for i in range(len(kept))])
    rollout_advantages = group_advantages(groups.rewards)[tuple(zip(*kept))]
    advantages = rollout_advantages.repeat_interleave(torch.tensor(lengths))
    correction = rule_name(config.loss.engine_correction)
    weighted = correction == "truncate" and bool(passes)
    weights = log_ratios.exp().clamp(max=1.05) if weighted else torch.ones_like(advantages)
    if correction == "sequence_mask":
        weights = near.repeat_interleave(torch.tensor(lengths))
        touched = batch.counts_of(batch.rollouts_with(selected)) > 0
        share = 1 - near[touched].double().mean().item()
        assert metrics["mismatch/rollouts_masked"] == pytest.approx(share) and share < 0.9
        assert share > 0.1 or config.loss.overlong_filtering  # few responses end
    masked = correction == "token_mask"
    if masked:
        weights = log_ratios.exp().where((log_ratios > math.log(0.5)) & (log_ratios < math.log(1.05)), 0.0)
        share = (weights[selected] == 0).float().mean().item()
        assert metrics["mismatch/tokens_masked"] == pytest.approx(share) and 0.1 < share < 0.9
        skipped = 0 if config.loss.beta else int((weights[selected] == 0).sum())
        assert metrics["selection/tokens_skipped"] == skipped
    assert masked == ("mismatch/tokens_masked" in metrics)
    assert_same_values(batch.advantages[selected], (advantages * weights)[selected], largest=1.0)
    assert weighted == ("mismatch/tokens_capped" in metrics)
    if weighted:
        capped = (weights >= 1.05)[selected].float().mean().item()
        assert metrics["mismatch/tokens_capped"] == pytest.approx(capped) and 0 < capped < 1
    if config.selector.tokens == "advantage_entropy" and not selected.all():
        priorities = advantages.abs() * batch.entropies
        assert priorities[selected].min() >= priorities[~selected].max()
        assert int(selected.sum()) == math.ceil(0.2 * len(priorities) - 1e-6)
    needed = batch.rollouts_with(selected) if config.loss.kind == "gspo" else selected
    if config.optim.num_minibatches > 1 and passes:
        assert_same_values(batch.old_logprobs[needed], exact[needed])
    else:
        assert batch.old_logprobs is None
    if config.loss.beta:
        assert_same_values(batch.ref_logprobs[selected], exact[selected])


@pytest.mark.parametrize("rule", ["d3s.methods.nonzero:nonzero", "max_variance"])
def test_steps_without_signal_change_no_weight(rule, tied_model, tmp_path):
    """Nothing is kept, or only rollouts of advantage 0: the steps are logged, and weight decay does nothing."""
    settings = [NO_SIGNAL, f"selector.rollouts={rule}", "train.steps=2"]
    settings += ["selector.entropy_source=actor", "optim.weight_decay=0.1", "loss.old_logprobs=actor"]
    _, steps = train(tied_model, tmp_path, overrides=settings)
    assert [step["selection/rollouts"] > 0 for step in steps] == [rule == "max_variance"] * 2
    assert all(step["optimizer_steps"] == step["loss"] == step["grad_norm"] == 0 for step in steps)
    assert all(step["reward/accuracy"] == step["reward/zero_std_groups"] == 1 for step in steps)
    start, end = (load_file(folder / "model.safetensors") for folder in (tied_model, tmp_path / "model"))
    assert all(torch.equal(end[name], start[name]) for name in start)


def test_engine_and_actor_sources_agree(tied_model, tmp_path):
    """In float32 the engine's entropies and log-probabilities give the same selection and training as the actor's."""
    _, engine = train(tied_model, tmp_path / "engine")
    _, actor = train(
        tied_model, tmp_path / "actor", overrides=["selector.entropy_source=actor", "loss.old_logprobs=actor"]
    )
    for left, right in zip(engine, actor):
        assert left["selection/tokens"] == right["selection/tokens"]
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-3, abs=1e-5)
        assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-3)


def test_float32_head_reaches_engine_and_actor(tied_model, tmp_path, monkeypatch):
    from accelerate.state import AcceleratorState

    from d3s import trainer

    monkeypatch.setattr(AcceleratorState, "_shared_state", {})  # an earlier test may have set another precision

    build, built = trainer.build_engine, {}
    monkeypatch.setattr(trainer, "build_engine", lambda *a, **settings: built.update(settings) or build(*a, **settings))
    monkeypatch.setattr(Trainer, "train", lambda self: built.update(actor=self.actor) or 0)
    monkeypatch.setattr("tests.helpers.training.lines", lambda _: [])
    train(tied_model, tmp_path, overrides=["model.head_dtype=float32"])
    assert built["head_dtype"] == "float32"
    assert built["actor"].lm.get_output_embeddings().exact


# --- dynamic sampling -------------------------------------------------------------------------------------------------


def test_dynamic_sampling_replaces_equal_rewards(tied_model, tmp_path, monkeypatch):
    """No group without a signal is left, and the tokens of replaced groups are counted."""
    monkeypatch.setattr("d3s.rollout.groups.MAX_ROUNDS", 8)
    sampled, generate = [], TransformersEngine.generate

    def counting_generate(*arguments, **options):
        rollouts = generate(*arguments, **options)
        if options.get("entropies", True):  # not the probes of the weight syncs
            sampled.append(sum(len(r.response_ids) for r in rollouts))
        return rollouts

    steps = {}
    for dynamic in ("false", "true"):
        settings = ["reward.functions=[tests.helpers.rewards:rarely]"]
        monkeypatch.setattr(TransformersEngine, "generate", counting_generate if dynamic == "true" else generate)
        _, steps[dynamic] = train(
            tied_model, tmp_path / dynamic, overrides=[*settings, f"rollout.dynamic_sampling={dynamic}"]
        )
    assert sum(step["reward/zero_std_groups"] for step in steps["false"]) > 0
    assert sum(step["reward/zero_std_groups"] for step in steps["true"]) == 0
    assert len(sampled) > STEPS
    total = sum(step["selection/tokens_total"] for step in steps["true"])
    assert steps["true"][-1]["tokens_generated"] == total == sum(sampled)


def test_dynamic_sampling_ignores_length_penalties(tied_model, tmp_path, monkeypatch):
    """Every group has right and wrong answers, although DAPO's length penalty makes all rewards differ.

    Verdicts and penalties are recomputed from the texts and tokens in the sample files.
    """
    settings = [
        "reward.functions=[tests.helpers.rewards:rarely]",
        "reward.length={rule: overlong, buffer: 1, penalty: 0.5}",
        "train.steps=2",
    ]
    monkeypatch.setattr("d3s.rollout.groups.MAX_ROUNDS", 8)
    settings += ["loss.overlong_filtering=false"]
    settings += ["tracker.samples_every=1", f"tracker.samples={B * G}"]
    _, steps = train(tied_model, tmp_path, ["configs/method/dapo.yaml"], settings)
    for step in steps:
        samples = lines(tmp_path / "samples" / f"step_{step['step']:06d}.jsonl")
        verdicts = torch.tensor([rarely(sample["response"], "") for sample in samples])
        right = verdicts.view(B, G).sum(1)
        assert ((right > 0) & (right < G)).all() and step["reward/zero_std_groups"] == 0
        assert step["reward/accuracy"] == pytest.approx(right.mean().item() / G)
        penalties = 0.5 * torch.tensor([len(sample["tokens"]) for sample in samples]) / 12
        rewards = torch.tensor([sample["reward"] for sample in samples])
        assert (rewards - (verdicts - penalties)).abs().max() < 1e-6 and (penalties > 0).all()
