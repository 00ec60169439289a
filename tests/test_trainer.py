"""Training steps against transformers on single sequences and against the sampled rollouts.

The inputs of the update are recomputed from rollouts and rewards, and the forward passes are counted. The update itself
is tested in tests/actor/test_actor.py.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from d3s import trainer
from d3s.actor import Actor
from d3s.advantage import group_advantages
from d3s.loss import CORRECTION_RULES
from d3s.packing import Batch
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.trainer import Trainer
from tests.helpers.command_line import lines
from tests.helpers.reference import load_reference, response_entropies, response_logprobs, vocabulary_logprobs
from tests.helpers.rewards import rarely
from tests.helpers.rounding import assert_same_values
from tests.helpers.training import B, G, train

ENTROPIES, MASK, TWO_UPDATES, TRUNCATE, TOKEN_MASK, KL, NO_SIGNAL = (
    "selector.entropy_source=actor",
    "loss.engine_correction={rule: sequence_mask, cap: 1.05}",
    "optim.num_minibatches=2",
    "loss.engine_correction={rule: truncate, cap: 1.05}",
    "loss.engine_correction={rule: token_mask, cap: 1.05}",
    "loss.beta=0.1",
    "reward.functions=[tests.helpers.rewards:always]",
)
KEPT, SELECTED, TOUCHED, REFERENCE = "kept with entropies", "selected", "rollouts with a selected token", "reference"
CASES = {  # overrides, and the forward passes that they need before the update
    "nothing": ([], []),
    "entropies": ([ENTROPIES], [KEPT]),
    "random tokens": ([ENTROPIES, "selector.tokens=random"], []),
    "all tokens": ([ENTROPIES, "schedule.k_init=1", "schedule.k_final=1", TWO_UPDATES], [SELECTED]),
    "old and entropies": ([ENTROPIES, TWO_UPDATES, TRUNCATE], [KEPT]),
    "gspo, weights and reference": ([TWO_UPDATES, TRUNCATE, KL, "loss.kind=gspo"], [TOUCHED, REFERENCE]),
    "token mask": ([TOKEN_MASK, TWO_UPDATES], [SELECTED]),
    "token mask and reference": ([TOKEN_MASK, KL], [SELECTED, REFERENCE]),
    "mask": ([MASK], [TOUCHED]),
    "mask and entropies": ([MASK, ENTROPIES, TWO_UPDATES, KL], [KEPT, REFERENCE]),
    "mask of finished": ([MASK, TWO_UPDATES, "loss.kind=gspo", "loss.overlong_filtering=true"], [TOUCHED]),
    "no signal": ([TWO_UPDATES, TRUNCATE, NO_SIGNAL], []),
    "no signal but the reference": ([TWO_UPDATES, KL, NO_SIGNAL], [SELECTED, REFERENCE]),
}


@pytest.fixture
def record(monkeypatch) -> SimpleNamespace:
    """The groups, kept rollouts, batch and forward passes of a step.

    Every third rollout is close to the actor, and no engine number equals the actor's.
    """
    record = SimpleNamespace(batch=None, passes=[])
    generate, gather_batch, compute = TransformersEngine.generate, trainer.gather_batch, Actor.compute_logprobs

    def perturbed_generate(self, *arguments, **options):
        rollouts = generate(self, *arguments, **options)
        for i, rollout in enumerate(rollouts):
            rollout.logprobs = [x + (0.5 * (-1) ** t if i % 3 else 0.1) for t, x in enumerate(rollout.logprobs)]
            rollout.entropies = [x * (1 + t % 2) for t, x in enumerate(rollout.entropies)]
        return rollouts

    def recording_gather(groups, advantages, kept, *arguments):
        record.groups, record.kept = groups, kept
        record.batch = gather_batch(groups, advantages, kept, *arguments)
        return record.batch

    def recording_compute(self, batch, reference=False, wanted=None, entropies=True):
        if batch is record.batch:  # not the probes of the weight syncs
            record.passes.append((reference, wanted, entropies))
        return compute(self, batch, reference, wanted, entropies)

    monkeypatch.setattr(TransformersEngine, "generate", perturbed_generate)
    monkeypatch.setattr(trainer, "gather_batch", recording_gather)
    monkeypatch.setattr(Actor, "compute_logprobs", recording_compute)
    return record


def pass_name(batch: Batch, reference: bool, wanted: torch.Tensor | None, entropies: bool) -> str:
    """The name of a forward pass in CASES."""
    if wanted is None:
        return KEPT if entropies and not reference else "kept"
    assert reference or not entropies
    if torch.equal(wanted, batch.selected):
        return REFERENCE if reference else SELECTED
    assert torch.equal(wanted, batch.rollouts_with(batch.selected)) and not reference
    return TOUCHED


@pytest.mark.parametrize("case", CASES)
def test_update_inputs_match_rollouts_and_reference(case, tied_model, tmp_path, record):
    overrides, passes = CASES[case]
    settings = ["train.steps=1", "loss.old_logprobs=actor", "rollout.max_logprob_gap=9", "schedule.n_final=8"]
    settings += ["schedule.k_init=0.2", "optim.num_minibatches=1", *overrides]
    config, [metrics] = train(tied_model, tmp_path, overrides=settings)
    groups, batch = record.groups, record.batch
    table = {(r.prompt_index, r.sample): r for r in groups.rollouts}
    assert [pass_name(batch, *arguments) for arguments in record.passes] == passes

    kept = [tuple(cell) for cell in record.kept.nonzero().tolist()]
    assert 0 < len(kept) <= 8 * B < B * G
    assert all(table[cell].finished for cell in kept) or not config.loss.overlong_filtering
    batch.prompts, batch.responses = ([list(map(int, x)) for x in texts] for texts in (batch.prompts, batch.responses))
    assert batch.prompts == [table[cell].prompt_ids for cell in kept]
    assert batch.responses == [table[cell].response_ids for cell in kept]
    assert batch.rollout_logprobs.tolist() == pytest.approx([x for cell in kept for x in table[cell].logprobs])

    lengths = torch.tensor([len(r) for r in batch.responses])
    with torch.no_grad():
        tables = vocabulary_logprobs(load_reference(tied_model), batch, config.rollout.temperature)
    exact, selected = torch.cat(response_logprobs(tables, batch)), batch.selected
    if KEPT in passes:
        assert_same_values(batch.entropies, response_entropies(tables), largest=10.0)
    log_ratios = exact - batch.rollout_logprobs
    advantages = group_advantages(groups.rewards)[record.kept].repeat_interleave(lengths)
    correction, weights = CORRECTION_RULES.rule(config.loss.engine_correction), torch.ones_like(advantages)
    if correction.name != "none" and passes:
        read = batch.rollouts_with(selected) if "sequence_ids" in correction.takes else selected
        of_read = {"log_ratios": log_ratios[read], "sequence_ids": batch.sequence_ids[read], "counted": read[read]}
        weights[read], shares = correction(**of_read)
        assert {name: metrics[f"mismatch/{name}"] for name in shares} == pytest.approx(shares)
        assert (
            all(0.1 < share < 0.9 for share in shares.values()) or config.loss.overlong_filtering
        )  # few responses end
        skipped = 0 if config.loss.beta else int((weights[selected] == 0).sum())
        assert metrics["selection/tokens_skipped"] == skipped
    else:
        assert not any(name.startswith(("mismatch/tokens_", "mismatch/rollouts_")) for name in metrics)
    assert_same_values(batch.advantages[selected], (advantages * weights)[selected], largest=1.0)
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
    _, actor = train(tied_model, tmp_path / "actor", overrides=[ENTROPIES, "loss.old_logprobs=actor"])
    for left, right in zip(engine, actor):
        assert left["selection/tokens"] == right["selection/tokens"]
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-3, abs=1e-5)
        assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-3)


def test_float32_head_reaches_engine_and_actor(tied_model, tmp_path, monkeypatch):
    from accelerate.state import AcceleratorState

    monkeypatch.setattr(AcceleratorState, "_shared_state", {})  # an earlier test may have set another precision
    build, built = trainer.build_engine, {}
    monkeypatch.setattr(trainer, "build_engine", lambda *a, **settings: built.update(settings) or build(*a, **settings))
    monkeypatch.setattr(Trainer, "train", lambda self: built.update(actor=self.actor) or 0)
    monkeypatch.setattr("tests.helpers.training.lines", lambda _: [])
    train(tied_model, tmp_path, overrides=["model.head_dtype=float32"])
    assert built["head_dtype"] == "float32" and built["actor"].lm.get_output_embeddings().exact


def test_dynamic_sampling_replaces_groups_of_equal_verdicts(tied_model, tmp_path, monkeypatch):
    """Although DAPO's length penalty makes all rewards differ; the tokens of replaced groups are counted.

    Verdicts and penalties are recomputed from the texts and tokens in the sample files.
    """
    sampled, generate = [], TransformersEngine.generate

    def counting_generate(*arguments, **options):
        rollouts = generate(*arguments, **options)
        if options.get("entropies", True):  # not the probes of the weight syncs
            sampled.append(sum(len(r.response_ids) for r in rollouts))
        return rollouts

    monkeypatch.setattr("d3s.rollout.groups.MAX_ROUNDS", 8)
    monkeypatch.setattr(TransformersEngine, "generate", counting_generate)
    settings = ["reward.functions=[tests.helpers.rewards:rarely]", "train.steps=2", "loss.overlong_filtering=false"]
    settings += ["reward.length={rule: overlong, buffer: 1, penalty: 0.5}"]
    settings += ["tracker.samples_every=1", f"tracker.samples={B * G}"]
    _, steps = train(tied_model, tmp_path, ["configs/method/dapo.yaml"], settings)
    assert len(sampled) > 2
    total = sum(step["selection/tokens_total"] for step in steps)
    assert steps[-1]["tokens_generated"] == total == sum(sampled)
    for step in steps:
        samples = lines(tmp_path / "samples" / f"step_{step['step']:06d}.jsonl")
        verdicts = torch.tensor([rarely(sample["response"], "") for sample in samples])
        right = verdicts.view(B, G).sum(1)
        assert ((right > 0) & (right < G)).all() and step["reward/zero_std_groups"] == 0
        assert step["reward/accuracy"] == pytest.approx(right.mean().item() / G)
        penalties = 0.5 * torch.tensor([len(sample["tokens"]) for sample in samples]) / 12
        rewards = torch.tensor([sample["reward"] for sample in samples])
        assert (rewards - (verdicts - penalties)).abs().max() < 1e-6 and (penalties > 0).all()
