"""A whole training step against plain transformers on one sequence at a time: what reaches the update is computed anew
from the sampled rollouts and their rewards, and its passes are counted. tests/test_actor.py has the update."""

import math

import pytest
import torch

from d3s.actor import Actor
from d3s.advantage import group_advantages
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.trainer import Trainer
from tests.end_to_end.test_methods import B, G, train
from tests.helpers.rounding import assert_same_values
from tests.helpers.reference import load_reference, response_entropies, response_logprobs, vocabulary_logprobs

ENTROPIES, MASK, TWO = (
    "selector.entropy_source=actor",
    "loss.engine_correction=sequence_mask",
    "optim.num_minibatches=2",
)
TRUNCATE, KL = "loss.engine_correction=truncate", "loss.beta=0.1"
CASES = {
    "nothing": ([], []),
    "entropies": ([ENTROPIES], ["kept with entropies"]),
    "entropies that rank nothing": ([ENTROPIES, "selector.tokens=random"], []),
    "entropies, all tokens": ([ENTROPIES, "schedule.k_init=1", "schedule.k_final=1", TWO], ["selected"]),
    "old": ([TWO], ["selected"]),
    "old and entropies": ([ENTROPIES, TWO, TRUNCATE], ["kept with entropies"]),
    "whole rollouts": ([TWO, "loss.kind=gspo"], ["touched"]),
    "weights and reference": ([TRUNCATE, KL], ["selected", "reference"]),
    "mask": ([MASK], ["all"]),
    "mask and old": ([MASK, TWO], ["all"]),
    "mask and entropies": ([MASK, ENTROPIES, TWO, KL], ["all with entropies", "reference"]),
    "mask of what is complete": ([MASK, TWO, "loss.kind=gspo", "loss.overlong_filtering=true"], ["all"]),
    "no signal": ([TWO, TRUNCATE, "reward.function=tests.helpers.rewards:always"], []),
    "no signal but the reference's": (
        [TWO, KL, "reward.function=tests.helpers.rewards:always"],
        ["selected", "reference"],
    ),
}


@pytest.fixture
def seen(monkeypatch):
    """What passes through a run of one step: experience, the update's batch, the passes before it."""
    held = {"passes": []}
    generate, collect, score, update = (
        TransformersEngine.generate, Trainer.collect, Actor.compute_logprobs, Actor.update,
    )  # fmt: skip

    def off(self, *arguments, **options):  # every third rollout is far from the actor, and no number is the actor's
        rollouts = generate(self, *arguments, **options)
        for i, rollout in enumerate(rollouts):
            rollout.logprobs = [x + (0.5 * (-1) ** t if i % 3 else 0.1) for t, x in enumerate(rollout.logprobs)]
            rollout.entropies = [x * (1 + t % 2) for t, x in enumerate(rollout.entropies)]
        return rollouts

    def remember(self):
        held["experience"] = collect(self)
        return held["experience"]

    def count(self, batch, reference=False, wanted=None, entropies=True):
        result = score(self, batch, reference, wanted, entropies)
        if "experience" in held and "batch" not in held:  # not the probes of the syncs
            held["passes"].append((batch, reference, wanted, entropies))
        return result

    def take(self, batch, *arguments):
        held["batch"] = batch
        return update(self, batch, *arguments)

    monkeypatch.setattr(TransformersEngine, "generate", off)
    monkeypatch.setattr(Trainer, "collect", remember)
    monkeypatch.setattr(Actor, "compute_logprobs", count)
    monkeypatch.setattr(Actor, "update", take)
    return held


def kind(of: tuple, total: int, batch) -> str:
    """The name of a pass in CASES."""
    scored, reference, wanted, entropies = of
    if reference:
        return "reference" if torch.equal(wanted, batch.selected) else "too much of the reference"
    if wanted is None:
        return ("all" if len(scored.responses) == total else "kept") + (" with entropies" if entropies else "")
    assert not entropies
    return "selected" if torch.equal(wanted, batch.selected) else "touched"


@pytest.mark.parametrize("case", CASES)
def test_what_reaches_the_update(case, tied_model, tmp_path, seen):
    overrides, passes = CASES[case]
    settings = ["train.steps=1", "loss.old_logprobs=actor", "rollout.max_logprob_gap=9", "schedule.n_final=8"]
    settings += ["schedule.k_init=0.2", "optim.num_minibatches=1", "loss.engine_correction_cap=1.05", *overrides]
    config, [metrics] = train(tied_model, tmp_path, overrides=settings)
    experience, batch = seen["experience"], seen["batch"]
    table = {(r.prompt_index, r.sample): r for r in experience.rollouts}
    possible = [cell for cell, r in table.items() if r.finished or not config.loss.overlong_filtering]
    assert [kind(of, len(possible), batch) for of in seen["passes"]] == passes

    places = {
        (tuple(r.prompt_ids), tuple(r.response_ids), tuple(torch.tensor(r.logprobs).tolist())): cell
        for cell, r in table.items()
    }
    lengths = [len(r) for r in batch.responses]
    rows = zip(batch.prompts, batch.responses, batch.rollout_logprobs.split(lengths))
    kept = [places[tuple(map(int, p)), tuple(map(int, r)), tuple(x.tolist())] for p, r, x in rows]
    assert kept == sorted(kept) and set(kept) <= set(possible) and 0 < len(kept) <= 8 * B < B * G

    batch.prompts, batch.responses = ([list(map(int, x)) for x in texts] for texts in (batch.prompts, batch.responses))
    with torch.no_grad():
        words = all_logprobs(reference_model(tied_model), batch, config.rollout.temperature)
    exact, chosen = torch.cat(of_tokens(words, batch)), batch.selected
    if any("entropies" in name for name in passes):
        entropies = torch.cat([-(table.exp() * table).sum(-1) for table in words])
        assert_same_values(batch.entropies, entropies, largest=10.0)
    ratios = exact - batch.rollout_logprobs
    if config.loss.engine_correction == "sequence_mask":
        assert all(ratios[batch.tokens_of(i)].mean().abs() < math.log(1.05) + 1e-4 for i in range(len(kept)))
        assert 0.2 < metrics["mismatch/rollouts_masked"] < 0.8
    of_rollouts = group_advantages(experience.rewards)[tuple(zip(*kept))]
    advantages = of_rollouts.repeat_interleave(torch.tensor(lengths))
    weighted = config.loss.engine_correction == "truncate" and bool(passes)
    used = advantages * ratios.exp().clamp(max=1.05) if weighted else advantages
    assert_same_values(batch.advantages[chosen], used[chosen], largest=1.0)
    if config.selector.tokens == "advantage_entropy" and not chosen.all():
        keys = advantages.abs() * batch.entropies
        assert keys[chosen].min() >= keys[~chosen].max() and int(chosen.sum()) == math.ceil(0.2 * len(keys) - 1e-6)
    needed = batch.with_a_selected_token() if config.loss.kind == "gspo" else chosen
    if config.optim.num_minibatches > 1 and passes:
        assert_same_values(batch.old_logprobs[needed], exact[needed])
    else:
        assert batch.old_logprobs is None
    if config.loss.beta:
        assert_same_values(batch.ref_logprobs[chosen], exact[chosen])
