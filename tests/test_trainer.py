"""Training steps against transformers on single sequences and the sampled rollouts, the loop against plain sums.

The inputs of the update are recomputed from rollouts and rewards, and the forward passes are counted. The update itself
is tested in tests/actor/test_actor.py.
"""

import itertools
import json
import math
from types import SimpleNamespace

import pytest
import torch

from d3s import trainer
from d3s.actor import Actor
from d3s.advantage import group_advantages
from d3s.collector import Collector
from d3s.config.schema import VERIFIER
from d3s.loss import CORRECTION_RULES
from d3s.packing import Batch
from d3s.rollout.transformers_engine import TransformersEngine
from tests.helpers.command_line import lines
from tests.helpers.reference import load_reference, response_entropies, response_logprobs, vocabulary_logprobs
from tests.helpers.rewards import rarely
from tests.helpers.rounding import assert_same_values
from tests.helpers.small_run import same_parameters
from tests.helpers.training import EVALUATED, B, G, train

ENTROPIES, TWO_UPDATES, KL = "selector.entropy_source=actor", "optim.num_minibatches=2", "loss.beta=0.1"
NO_SIGNAL = "reward.functions=[tests.helpers.rewards:always]"
MASK, TOKEN_MASK, TRUNCATE = (
    f"loss.engine_correction={{rule: {rule}, cap: 1.05}}" for rule in ("sequence_mask", "token_mask", "truncate")
)
KEPT, SELECTED, TOUCHED, REFERENCE = "kept with entropies", "selected", "rollouts with a selected token", "reference"
CASES = {  # overrides, and the forward passes that they need before the update
    "entropies": ([ENTROPIES], [KEPT]),
    "all tokens": ([ENTROPIES, "schedule.k_init=1", "schedule.k_final=1", TWO_UPDATES], [SELECTED]),
    "gspo, weights and reference": ([TWO_UPDATES, TRUNCATE, KL, "loss.kind=gspo"], [TOUCHED, REFERENCE]),
    "token mask": ([TOKEN_MASK, TWO_UPDATES], [SELECTED]),
    "mask": ([MASK], [TOUCHED]),
    "mask and entropies": ([MASK, ENTROPIES, TWO_UPDATES, KL], [KEPT, REFERENCE]),
    "mask of finished": ([MASK, TWO_UPDATES, "loss.kind=gspo", "loss.overlong_filtering=true"], [TOUCHED]),
    "no signal but the reference": ([TWO_UPDATES, KL, NO_SIGNAL], [SELECTED, REFERENCE]),
}

# --- steps ------------------------------------------------------------------------------------------------------------


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

    def recording_gather(groups, selection, *arguments):
        record.groups, record.kept = groups, selection.kept
        record.batch = gather_batch(groups, selection, *arguments)
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
    table = {(r.row, r.sample): r for r in groups.rollouts}
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
    if correction.name != "none":
        read = batch.rollouts_with(selected) if "sequence_ids" in correction.takes else selected
        of_read = {"log_ratios": log_ratios[read], "sequence_ids": batch.sequence_ids[read], "counted": read[read]}
        weights[read], shares = correction(**of_read)
        assert {name: metrics[f"mismatch/{name}"] for name in shares} == pytest.approx(shares)
        few_end = config.loss.overlong_filtering
        assert few_end or all(0.1 < share < 0.9 for share in shares.values())
        assert metrics["selection/tokens_skipped"] == int((weights[selected] == 0).sum())
        assert_same_values(batch.weights[selected], weights[selected], largest=1.0)
    else:
        assert not any(name.startswith(("mismatch/tokens_", "mismatch/rollouts_")) for name in metrics)
    assert_same_values(batch.advantages, advantages, largest=1.0)
    if not selected.all():
        priorities = advantages.abs() * batch.entropies
        assert priorities[selected].min() >= priorities[~selected].max()
        assert int(selected.sum()) == math.ceil(0.2 * len(priorities) - 1e-6)
    needed = batch.rollouts_with(selected) if config.loss.kind == "gspo" else selected
    if config.optim.num_minibatches > 1:
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
    _, steps = train(tied_model, tmp_path, overrides=settings, code=3)
    assert [step["selection/rollouts"] > 0 for step in steps] == [rule == "max_variance"] * 2
    assert all(step["optimizer_steps"] == step["loss"] == step["grad_norm"] == 0 for step in steps)
    assert all(step["reward/accuracy"] == step["reward/zero_std_groups"] == 1 for step in steps)
    assert same_parameters(tied_model, tmp_path / "model")


@pytest.mark.parametrize(("rule", "code"), [("tests.helpers.own_rules:no_token", 3), ("entropy", 0)])
def test_run_that_trains_nothing_says_so(rule, code, tied_model, tmp_path):
    train(tied_model, tmp_path, overrides=["train.steps=2", f"selector.tokens={rule}"], code=code)
    warned = [line["message"].startswith("tokens_trained: no token") for line in lines(tmp_path / "warnings.jsonl")]
    assert any(warned) == (code > 0)


def test_float32_head_reaches_the_engine(tied_model, tmp_path, monkeypatch):
    """tests/actor/test_actor.py has the actor's."""
    build, built = trainer.build_engine, {}
    monkeypatch.setattr(trainer, "build_engine", lambda *a, **settings: built.update(settings) or build(*a, **settings))
    train(tied_model, tmp_path, overrides=["model.head_dtype=float32", "train.steps=1"])
    assert built["head_dtype"] == "float32"


def test_dynamic_sampling_replaces_groups_of_equal_verdicts(tied_model, tmp_path, monkeypatch):
    """Although DAPO's length penalty makes all rewards differ; the tokens of replaced groups are counted.

    Verdicts and penalties are recomputed from the texts and tokens in the sample files.
    """
    monkeypatch.setattr("d3s.groups.MAX_ROUNDS", 8)
    settings = ["reward.functions=[tests.helpers.rewards:rarely]", "train.steps=2", "loss.overlong_filtering=false"]
    settings += ["reward.length={rule: overlong, buffer: 1, penalty: 0.5}"]
    settings += ["tracker.samples_every=1", f"tracker.samples={B * G}"]
    _, steps = train(tied_model, tmp_path, ["configs/method/dapo.yaml"], settings)
    for step in steps:
        samples = lines(tmp_path / "samples" / f"step_{step['step']:06d}.jsonl")
        verdicts = torch.tensor([rarely(sample["response"], "") for sample in samples])
        right = verdicts.view(B, G).sum(1)
        assert ((right > 0) & (right < G)).all() and step["reward/zero_std_groups"] == 0
        assert step["reward/accuracy"] == pytest.approx(right.mean().item() / G)
        lengths = torch.tensor([len(sample["tokens"]) for sample in samples])
        rewards = torch.tensor([sample["reward"] for sample in samples])
        assert (rewards - (verdicts - 0.5 * lengths / 12)).abs().max() < 1e-6
        assert step["selection/tokens_total"] > lengths.sum()


# --- the loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "evaluated", "saved", "shown"), [(2, [0, 2, 4, 5], [2, 4, 5], [1, 3, 5]), (0, [0, 5], [], [])]
)
def test_what_a_run_writes_follows_the_options(every, evaluated, saved, shown, tied_model, tmp_path):
    options = [*EVALUATED, "checkpoint.keep=9", "train.steps=5"]
    options += [f"{option}={every}" for option in ("eval.every", "checkpoint.every", "tracker.samples_every")]
    train(tied_model, tmp_path, overrides=options)
    assert [line["step"] for line in lines(tmp_path / "eval.jsonl")] == evaluated
    for folder, steps in (("checkpoints", saved), ("samples", shown)):
        assert sorted(path.stem for path in tmp_path.glob(f"{folder}/*")) == [f"step_{step:06d}" for step in steps]
    assert (tmp_path / "model" / "config.json").exists()


def test_counts_and_times_are_sums_over_steps(tied_model, tmp_path, monkeypatch):
    """Seconds spent waiting for rewards are not seconds of generation."""
    collect = Collector.collect

    def delayed(*arguments, **options):
        groups = collect(*arguments, **options)
        groups.waited += 1000.0
        return groups

    monkeypatch.setattr(Collector, "collect", delayed)
    _, metrics = train(tied_model, tmp_path, overrides=["checkpoint.every=3", "train.steps=3"])
    for name, total in (("selection/tokens", "tokens_trained"), ("selection/tokens_total", "tokens_generated")):
        assert [line[total] for line in metrics] == list(itertools.accumulate(line[name] for line in metrics))
    state = json.loads((tmp_path / "checkpoints" / "step_000003" / "state.json").read_text())
    assert (state["step"], state["position"]) == (3, 3 * B)
    assert sum(line["time/step"] for line in metrics) <= metrics[-1]["wall_time"]
    assert [line["progress"] for line in metrics] == [0, 0.5, 1]
    for line in metrics:
        assert line["throughput/tokens_per_s"] == pytest.approx(line["selection/tokens_total"] / line["time/step"])
        assert line["time/reward"] >= 1000 and line["time/generate"] + line["time/reward"] <= line["time/step"]


def test_selection_is_seeded_by_run_and_step(tied_model, tmp_path, monkeypatch):
    """Runs of neighboring seeds share no step's random numbers."""
    seeds, select = [], trainer.Selector.rollouts

    def recorded(*arguments, **known):
        seeds.append(arguments[-1].initial_seed())
        return select(*arguments, **known)

    monkeypatch.setattr(trainer.Selector, "rollouts", recorded)
    for seed in (0, 1):
        train(tied_model, tmp_path / str(seed), overrides=[f"train.seed={seed}", "train.steps=3"])
    assert len(set(seeds)) == 6


def test_ranks_compare_what_rules_return(tied_model, tmp_path, monkeypatch):
    """The advantages of all responses, what is chosen by them, and the advantages of that."""
    compared = []
    monkeypatch.setattr(trainer, "require_equal", lambda *arguments: compared.append(arguments[:2]))
    train(tied_model, tmp_path, overrides=["selector.normalize=after", "selector.cross_share=0", "train.steps=1"])
    names, (_, before, kept, after, _) = zip(*compared)
    assert names == ("data.order", "reward.advantages", "selector.rollouts", "reward.advantages", "selector.tokens")
    assert before.shape == after.shape == (B, G) and kept.dtype == torch.bool


def test_verifications_of_evaluations_are_not_counted(tied_model, tmp_path):
    options = [*EVALUATED, "eval.every=1", "eval.reward=null", "train.steps=3"]
    options.append(f"reward.functions=[{VERIFIER}, [tests.helpers.rewards:even_length, 1]]")
    _, metrics = train(tied_model, tmp_path, overrides=options)
    assert [line["reward/decided"] for line in metrics] == [B * G] * 3


def test_one_problem_fills_a_step(tied_model, tmp_path):
    _, (metrics,) = train(tied_model, tmp_path, overrides=["data.limit=1", "train.steps=1"])
    assert metrics["selection/rollouts_total"] == B * G
    assert any("a step repeats problems" in line["message"] for line in lines(tmp_path / "warnings.jsonl"))
