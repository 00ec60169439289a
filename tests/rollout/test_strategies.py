"""Carried responses and trees on vLLM against the model itself and plain rollouts, and exact resume of their runs."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from d3s.config.load import load_config
from d3s.methods.carry_over import CarryOver
from d3s.methods.latr import LATR
from d3s.rollout.engine import SamplingParams
from tests.helpers.rollouts import PROMPTS, actor_of, actor_statistics, assert_statistics, assert_whole, concatenate

# --- carried responses ------------------------------------------------------------------------------------------------


def test_tokens_have_the_statistics_of_their_weights(vllm, tied_model, other_model):
    """Two groups of four are whole in a step; the others end with other weights."""
    rule = CarryOver(load_config([], ["rollout.engine=vllm", "loss.old_logprobs=engine"]), extra=1.0)
    n, params, seen = 16, SamplingParams(max_tokens=40), []

    def generate(rows, step):
        prompts, seeds = [PROMPTS[row] for row in rows], [100 * row + j for row in rows for j in range(n)]
        groups = rule.generate(vllm, prompts, rows, 2, n, params, seeds, step, lambda r: seen.append(r.problem))
        return [r for group in groups for r in group]

    first = generate([0, 1, 2, 3], 0)
    old, new = actor_of(tied_model), actor_of(other_model)
    vllm.load_weights(new.weights())
    second = generate([0, 1], 1)
    vllm.load_weights(old.weights())
    assert len(seen) == 4 * n and not vllm.busy()
    stale = torch.tensor([i < r.counts["stale"] for r in second for i in range(len(r.response_ids))])
    assert any(0 < r.counts["stale"] < len(r.response_ids) for r in second)
    assert not any(r.counts["stale"] for r in first)
    for field, by_old, by_new in zip(("logprobs", "entropies"), *(actor_statistics(a, second) for a in (old, new))):
        expected = torch.where(stale, by_old, by_new)
        torch.testing.assert_close(concatenate(second, field), expected, rtol=0, atol=1e-4)
        assert (by_old - by_new).abs().max() > 0.01


def test_killed_run_that_carries_resumes_bitwise(train_and_resume):
    """The resumed run starts from the checkpoint after the first step, with cut responses in it."""
    options = [
        "rollout.strategy={rule: d3s.methods.carry_over:CarryOver, extra: 1}", "train.steps=4",
        "rollout.max_completion_length=30", "checkpoint.every=1", "checkpoint.keep=4",
    ]  # fmt: skip
    steps = train_and_resume(["configs/method/carry_over.yaml"], options, 1)
    assert all(step["strategy/carried"] > 0 for step in steps)
    assert all(step["strategy/stale"] > 0 and step["grad_norm"] > 0 for step in steps[1:])


# --- trees ------------------------------------------------------------------------------------------------------------

ABSOLUTE, RELATIVE = 0.02, 0.5  # the random model is less certain than a trained one
PARAMS = SamplingParams(max_tokens=40)


@pytest.fixture
def grow(engines):
    """Function (prompts, options) -> eight rollouts to each."""

    def sample(prompts=range(4), params=PARAMS, on_finished=lambda rollout: None, engine=engines["vllm"], **options):
        strategy = LATR(load_config([]), **{"share": 1.0, "absolute": ABSOLUTE, "relative": RELATIVE} | options)
        seeds = [100 * i + j for i in prompts for j in range(8)]
        asked = [PROMPTS[i] for i in prompts]
        groups = strategy.generate(engine, asked, 8, params, seeds, 0, on_finished, list(prompts))
        return [r for group in groups for r in group]

    return sample


def total(rollouts, name):
    return sum(r.counts[name] for r in rollouts)


def contents(rollouts):
    return [(r.prompt_ids, r.sample, r.response_ids, r.lineage) for r in rollouts]


def test_tree_rollouts_match_the_model(grow, vllm, tied_model, temperature=0.7):
    """Log-probability and entropy of every token, and every branching, from the full logits of transformers."""
    params = SamplingParams(max_tokens=40, temperature=temperature)
    rollouts = grow(params=params, lookahead=5, similarity=0.9, engine=vllm)
    assert not vllm.busy()
    assert [(r.problem, r.sample) for r in rollouts] == [(i, j) for i in range(4) for j in range(8)]
    assert_statistics(rollouts, tied_model, temperature)
    assert_whole(rollouts, 40)
    model, forced = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32), 0
    for r in rollouts:
        for branch, position in r.lineage[1:]:
            with torch.no_grad():
                logits = model(torch.tensor([r.prompt_ids + r.response_ids[:position]])).logits[0, -1] / temperature
            values, tokens = logits.softmax(-1).topk(2)
            assert values[1] > ABSOLUTE - 1e-5 and values[0] - values[1] < RELATIVE + 1e-5
            assert r.response_ids[position] in tokens.tolist()
            others = [x for x in rollouts if x.problem == r.problem and branch not in dict(x.lineage)]
            assert all(x.response_ids[: position + 1] != r.response_ids[: position + 1] for x in others if x.lineage)
            forced += 1
    branches, pruned, decoded = (total(rollouts, name) for name in ("branches", "pruned", "decoded"))
    assert forced > 10 and branches - pruned <= forced == total(rollouts, "forced") and pruned > 0
    assert decoded < sum(len(r.response_ids) for r in rollouts) + 10 * pruned


def test_tree_returns_exactly_n_and_half_of_it_plain(grow, engines):
    calls = []
    rollouts = grow(share=0.5, on_finished=lambda r: calls.append((id(r), len(r.response_ids))))
    assert sorted(calls) == sorted((id(r), len(r.response_ids)) for r in rollouts)
    assert all(bool(r.lineage) <= (r.sample < 4) for r in rollouts)
    assert 9 <= total(rollouts, "branches") - total(rollouts, "pruned") <= 12
    plain = engines["vllm"].generate(PROMPTS, 8, PARAMS, [100 * i + j for i in range(4) for j in range(8)])
    assert [(r.prompt_ids, r.sample) for r in rollouts] == [(r.prompt_ids, r.sample) for r in plain]
    same = [r.response_ids == p.response_ids for r, p in zip(rollouts, plain)]
    assert all(same[i] for i, r in enumerate(rollouts) if len(r.lineage) < 2) and not all(same)
    none = grow(share=0.0)
    assert contents(none) == [(r.prompt_ids, r.sample, r.response_ids, []) for r in plain]
    assert [r.entropies for r in none] == [r.entropies for r in plain]


def test_a_tree_does_not_depend_on_its_batch(grow, engines, monkeypatch):
    """Alone, in another order, and with a token budget that lets branches wait for others."""
    options = {"lookahead": 5, "similarity": 0.9}
    together = grow(**options)
    expected = contents(together)
    assert total(together, "pruned") > 0
    assert contents(grow(prompts=[2], **options)) == expected[16:24]
    assert contents(grow(prompts=[3, 2, 1, 0], **options)) == [x for i in (24, 16, 8, 0) for x in expected[i : i + 8]]
    scheduler = engines["vllm"].llm.llm_engine.engine_core.engine_core.scheduler
    monkeypatch.setattr(scheduler, "max_num_scheduled_tokens", 120)
    crowded = grow(**options)
    assert contents(crowded) == expected
    for field in ("logprobs", "entropies"):
        torch.testing.assert_close(concatenate(crowded, field), concatenate(together, field), rtol=0, atol=1e-4)


def test_tree_stops_at_the_model_length(grow):
    assert_whole(grow(prompts=[2], params=SamplingParams(max_tokens=1000)), 1000)
    cut = grow(params=SamplingParams(max_tokens=1))
    assert all(len(r.response_ids) == len(r.logprobs) == len(r.entropies) == 1 for r in cut)
    assert sum(len(r.lineage) > 1 for r in cut) > 0 and not any(math.isnan(r.entropies[0]) for r in cut)


def test_killed_run_with_trees_resumes_bitwise(train_and_resume):
    """The trees end after two of four steps; the resumed run starts from the checkpoint after the first."""
    options = [
        f"rollout.strategy={{rule: d3s.methods.latr:LATR, share: 1, steps: 2, absolute: {ABSOLUTE}, "
        f"relative: {RELATIVE}, lookahead: 4, similarity: 0.9}}",
        *["train.steps=4", "rollout.num_generations=8", "rollout.max_completion_length=30"],
        *["schedule.n_init=4", "schedule.n_final=8", "checkpoint.every=1", "checkpoint.keep=4"],
    ]
    steps = train_and_resume(["configs/method/latr.yaml"], options, 1)
    assert all(step["strategy/branches"] > step["strategy/pruned"] for step in steps[:2])
    assert [step["strategy/branches"] for step in steps[2:]] == [0, 0]
    assert all(step["selection/tokens_total"] < 32 * step["completion/length"] for step in steps[:2])
    assert all(step["mismatch/max_abs"] < 1e-4 and step["grad_norm"] > 0 for step in steps)
