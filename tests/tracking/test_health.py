"""Test the health rules on metrics with known symptoms, and on recorded runs: findings, when, and what they quote."""

import csv
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.tracking.health import health
from tests.helpers.training_steps import metrics, sample

FLOAT32 = {"model": {"dtype": "float32"}}


def keys(history: list[dict], samples: list[dict] = (), config: dict = FLOAT32) -> set[str]:
    return set(health(history, samples, config=config))


def test_healthy_run_has_no_findings():
    assert keys([metrics(step) for step in range(1, 50)], [sample(49)]) == set()
    assert keys([]) == set() and keys([{"step": step} for step in range(1, 9)]) == set()
    for entropy in (0.0, None):  # of greedy responses, and where the engine returns none
        assert keys([metrics(step, policy__entropy=entropy) for step in range(1, 9)]) == set()


def test_symptom_is_found_after_five_steps():
    healthy = [metrics(s) for s in range(1, 21)]
    for key, change in {
        "zero_reward": {"reward__mean": 0.0, "reward__std": 0.0},
        "zero_variance": {"reward__zero_std_groups": 1.0},
        "wrong_groups": {"reward__zero_std_groups": 0.8, "reward__accuracy": 0.45},
        "no_answer": {"reward__no_answer": 64},
        "all_truncated": {"completion__truncated": 0.96},
        "entropy_collapsed": {"policy__entropy": 0.005},
        "much_clipped": {"policy__clip_low": 0.15, "policy__clip_high": 0.1},
        "mismatch": {"mismatch__max_abs": 0.02},
    }.items():
        sick = [metrics(s, **change) for s in range(21, 26)]
        assert keys(healthy + sick) == {key}
        assert keys(healthy + sick[:4]) == keys(healthy + sick + [metrics(26)]) == set()
        assert keys(healthy + sick[:2] + [metrics(23)] + sick[3:]) == set()
        assert keys(healthy[:1] + sick[1:4]) == keys(sick[:4]) == set()  # a run of four steps


D3S = {"schedule": {"n_init": 8, "k_init": 0.05}, "rollout": {"num_generations": 32}, "selector": {"cross_share": 1.0}}
GRPO = {"schedule": {"n_init": None, "k_init": 1.0}, "rollout": {"num_generations": 32}, "selector": D3S["selector"]}
CURVES = [lambda step: 3.0, lambda step: 8 / (1 + step / 20), lambda step: 1 + step / 100]
KL_CURVES = [*CURVES, lambda step: 1e-5 * step**2]  # as the divergence to the initial policy begins
STEP_CURVES = [lambda step: 0.05, lambda step: 0.05 / (1 + step / 20), KL_CURVES[-1]]
# metric, the finding of a jump, its level before, healthy curves, and their noise
JUMPS = [
    ("grad_norm", "gradient_exploded", 3.0, CURVES, 0.5),
    ("policy__kl_ref", "jumped_kl_ref", 0.02, KL_CURVES, 0.3),
    ("policy__approx_kl", "jumped_approx_kl", 0.02, STEP_CURVES, 0.3),
]


def series(key: str, values: list[float]) -> list[dict]:
    return [metrics(step, **{key: value}) for step, value in enumerate(values, 1)]


def noisy(values: Sequence[float], seed: int, spread: float) -> list[float]:
    """These values times log-normal noise, with a single step of ten times the value in every 20."""
    rng = random.Random(seed)
    return [v * math.exp(rng.gauss(0, spread)) * (10 if step % 20 == 13 else 1) for step, v in enumerate(values)]


@pytest.mark.parametrize(("key", "finding", "level", "healthy", "noise"), JUMPS)
def test_lasting_jumps_are_found(key, finding, level, healthy, noise):
    """A jump by a factor of 16, and growth by a half each step; a jump ends once the window has its value."""
    for seed in range(5):
        for curve in healthy:
            history = series(key, noisy([curve(step) for step in range(1, 101)], seed, noise))
            assert not any(keys(history[:end], config=D3S) for end in range(1, 101))
        before = noisy([level] * 40, seed, 0.3)
        for after in ([16 * level] * 60, [level * 1.5**step for step in range(20)]):
            history = series(key, before + noisy(after, seed + 9, 0.3))
            assert keys(history[:40], config=D3S) == set()
            assert any(keys(history[:end], config=D3S) == {finding} for end in range(43, 52))
        assert keys(series(key, before + [16 * level] * 60), config=D3S) == set()
    assert keys(series(key, [1e-4] * 20 + [4e-2] * 5)) == (set() if "kl" in key else {finding})  # a small KL may jump


def found(history: list[dict]) -> set[str]:
    """What is found at any step of a run."""
    return {key for end in range(1, len(history) + 1) for key in keys(history[:end], config=D3S)}


@settings(max_examples=15)
@given(
    st.floats(1.02, 1.04), st.integers(60, 600), st.floats(2, 6), st.floats(0.02, 0.1), st.floats(0, 0.3), st.integers()
)
def test_slow_drifts_are_found(growth, steps, most_kl, share, spread, seed):
    """A norm that grows by 2 to 4 % a step up to 50 times, a KL that rises linearly to nats, a slow collapse."""
    length = 20 + math.ceil(math.log(50) / math.log(growth))
    norms = noisy([3.0 * growth ** max(0, step - 20) for step in range(length)], seed, spread)
    assert found(series("grad_norm", norms)) == {"gradient_exploded"}
    divergences = noisy([most_kl * step / steps for step in range(steps + 5)], seed, spread / 2)
    for key in ("kl_ref", "approx_kl"):
        assert found(series(f"policy__{key}", divergences)) - {"large_update"} == {f"jumped_{key}"}
    entropies = [1.2 * max(share, 1 - step / steps) for step in range(steps + 10)]
    assert found(series("policy__entropy", entropies)) == {"entropy_collapsed"}


@settings(max_examples=15)
@given(
    st.floats(0.3, 3), st.integers(60, 400), st.floats(0.01, 0.6), st.floats(0.3, 1.5), st.floats(0, 0.3), st.integers()
)
def test_healthy_changes_have_no_findings(change, steps, most_kl, share, spread, seed):
    """As large as in the runs of docs/data: norms within a factor of 3, KL to 0.6 nats, entropy from 30 % up."""
    part = [step / steps for step in range(steps)]
    values = {
        "grad_norm": noisy([3.0 * change**x for x in part], seed, spread),
        "policy__kl_ref": noisy([most_kl * x for x in part], seed + 1, spread / 2),
        "policy__entropy": [1.2 * share**x for x in part],
        "completion__distinct": [1 - 0.7 * x for x in part],
    }
    assert found([metrics(i + 1, **{key: v[i] for key, v in values.items()}) for i in range(steps)]) == set()


def test_collapse_to_equal_responses_is_found():
    """As on SmolLM2-135M: entropy from 1.25 to 0.07 nats in 15 steps, distinct responses from 100 to 21 %."""
    shares = [step / 14 for step in range(15)]
    for entropies in ([1.25 * (0.07 / 1.25) ** x for x in shares], [1.25 - 1.18 * min(1, 1.4 * x) for x in shares]):
        lines = [metrics(i, policy__entropy=e, completion__distinct=1 - 0.79 * x) for i, (e, x) in
                 enumerate(zip(entropies, shares), 1)]  # fmt: skip
        assert keys(lines) == {"entropy_collapsed"}
        assert keys([line | {"reward/accuracy": 0.9} for line in lines]) == set()
    few = {"policy__entropy": 0.24, "completion__distinct": 0.4}
    lines = [metrics(1, policy__entropy=1.0, completion__distinct=0.9), *(metrics(s, **few) for s in range(2, 7))]
    assert "completion/distinct from 90% to 40%" in health(lines)["entropy_collapsed"]
    assert keys([lines[0], *(line | {"completion/distinct": 0.5} for line in lines[1:])]) == set()


def recorded() -> dict[tuple[str, ...], list[dict[str, float]]]:
    """The steps of the runs in docs/data/card/steps.csv, by part, row, rate and seed."""
    runs: dict[tuple[str, ...], list[dict[str, float]]] = {}
    with open("docs/data/card/steps.csv", newline="") as file:
        for row in csv.DictReader(file):
            run = runs.setdefault(tuple(row.pop(name) for name in ("part", "row", "rate", "seed")), [])
            run.append({name: float(value) for name, value in row.items()})
    return runs


def test_collapse_is_found_when_the_rise_has_ended():
    """In the recorded runs of SmolLM2 the entropy is low from step 12 on; others than `test` rise to the end."""
    names, found = {"policy/entropy": "entropy", "completion/distinct": "distinct", "reward/mean": "reward"}, {}
    for run, steps in recorded().items():
        lines = [{key: step[name] for key, name in names.items()} for step in steps]
        found[run] = next((end for end in range(5, len(lines) + 1) if keys(lines[:end])), None)
    parts = ("search", "sort search", "long", "sort", "test")
    counts = {part: [step for (of, *_), step in found.items() if of == part] for part in parts}
    warned = {part: [step for step in steps if step] for part, steps in counts.items()}
    assert [len(counts[part]) for part in parts] == [34, 12, 9, 16, 40]
    assert [warned[part] for part in parts[:-1]] == [[24], [], [], []]
    assert len(warned["test"]) == 26 and min(warned["test"]) == 26


def test_updates_that_destroy_the_policy_are_found_at_once():
    """Of the recorded first steps: with the finding the reward falls, above 0.3 nats to 0; four others recover."""
    runs = recorded()
    found = {run: keys([metrics(1, policy__approx_kl=steps[0]["approx_kl"])]) for run, steps in runs.items()}
    assert Counter(run[0] for run, names in found.items() if names) == {"first": 11, "adapters K": 1, "gemma tokens": 3}
    large = [runs[run] for run, names in found.items() if names == {"large_update"} and run[0] == "first"]
    assert len(large) == 11 and all(steps[2]["reward"] < steps[0]["reward"] for steps in large)
    strong = [steps for steps in large if steps[0]["approx_kl"] > 0.3]
    assert all(min(steps[1]["reward"], steps[2]["reward"]) == 0 for steps in strong)
    assert keys([metrics(step, policy__approx_kl=0.5 if step == 11 else 0.1) for step in range(1, 12)]) == set()


def evaluated(*right: int, **fields) -> list[dict]:
    """Evaluations as eval.jsonl has them: of 128 problems the first ones are right in all samples."""
    return [{"data": "math", "n": 8, "right": [8 * (i < count) for i in range(128)]} | fields for count in right]


def worse(evaluations: list[dict]) -> set[str]:
    return set(health([metrics(1)], evaluations=evaluations))


def test_falling_evaluations_are_found():
    """From 64 right problems to 55 is a fall by 3.1 standard errors of the paired difference, to 56 one by 2.9."""
    assert worse(evaluated(40, 64, 30, 55, 55)) == worse(evaluated(64, 30, 30)) == {"worse/math"}
    for harmless in (evaluated(64, 56, 30), evaluated(64, 30, 56), evaluated(64, 30), evaluated(64, 30, 30, 64)):
        assert worse(harmless) == set()
    others = [line | {"right": line["right"][1:]} for line in evaluated(30, 30)]  # of other problems
    assert worse(evaluated(64) + others) == worse(evaluated(64) + evaluated(30, 30, reward="my_rewards:own")) == set()


def test_recorded_runs_without_learning_are_found():
    """In docs/data/runs.csv those that train on a coin fall, and no other; these and pairs have wrong groups."""
    csv.field_size_limit(10**8)
    with_wrong_groups = set()
    with open("docs/data/runs.csv", newline="") as file:
        for row in csv.DictReader(file):
            right = [[int(digit) for digit in evaluation] for evaluation in row["right"].split()]
            lines = [{"data": row["base"], "n": 8, "right": counts} for counts in right]
            fell = any(worse(lines[:end]) for end in range(3, len(lines) + 1))
            assert fell == row["row"].startswith("random rewards"), (row["row"], row["seed"])
            for equal, accuracy in zip(row["zero_std_groups"].split(), row["reward"].split(), strict=True):
                same = {"reward__zero_std_groups": float(equal), "reward__accuracy": float(accuracy)}
                with_wrong_groups |= {row["row"]} if keys([metrics(step, **same) for step in range(1, 6)]) else set()
    assert with_wrong_groups == {"GRPO, G = 2", "random rewards, D3S", "random rewards, GRPO"}
    assert keys([metrics(s, reward__zero_std_groups=0.9, reward__accuracy=0.65) for s in range(1, 6)]) == set()


def test_remedies_are_options_of_the_run():
    """A run that keeps everything is not told to keep more."""
    failing = {"policy__approx_kl": 0.9, "policy__kl_ref": 0.9, "grad_norm": 90.0, "policy__entropy": 0.001}
    calm = {"policy__approx_kl": 0.01, "policy__kl_ref": 0.01, "grad_norm": 1.0}
    history = [metrics(s, **(calm if s <= 20 else failing)) for s in range(1, 26)]
    remedies = {"gradient_exploded": "schedule.n_init", "jumped_kl_ref": "selector.cross_share: 0"}
    remedies |= {"jumped_approx_kl": "selector.cross_share: 0", "worse/math": "schedule.n_final"}
    for config, is_told in ((D3S, True), (GRPO, False), ({}, False)):
        messages = health(history, config=config, evaluations=evaluated(76, 38, 38))
        assert messages.keys() == {*remedies, "entropy_collapsed"}
        assert all((remedy in messages[key]) == is_told for key, remedy in remedies.items())
        assert all("optim.learning_rate" in message and "; " in message for message in messages.values())
    within = D3S | {"selector": {"cross_share": 0.0}}
    assert all("cross_share" not in message for message in health(history, config=within).values())
    supervised = [{key: value for key, value in line.items() if key != "schedule/n"} for line in history]
    assert "schedule" not in health(supervised, config=D3S)["gradient_exploded"]


def test_mismatch_limit_depends_on_the_precision():
    def is_found(dtype, largest, mean, stale=0):
        gaps = {"mismatch__max_abs": largest, "mismatch__mean_abs": mean, "strategy__stale": stale}
        return bool(keys([metrics(s, **gaps) for s in range(1, 6)], config={"model": {"dtype": dtype}}))

    assert [is_found("float32", largest, 0.0) for largest in (9e-4, 0.5)] == [False, True]
    assert [is_found("bfloat16", 0.5, mean) for mean in (0.04, 0.2)] == [False, True]  # 0.02 is published for vLLM
    assert not is_found("float32", 0.5, 0.0, stale=3)  # older weights differ


def test_timeouts_above_one_percent_are_found():
    steps = range(1, 6)  # 64 rollouts a step: 320 in the window
    assert keys([metrics(s, reward__timeouts=3 if s == 5 else 0) for s in steps]) == set()  # 0.94 %
    assert keys([metrics(s, reward__timeouts=4 if s == 5 else 0) for s in steps]) == {"verifier_timeouts"}  # 1.25 %


def test_zero_rewards_quote_response_and_gold_answer():
    dead = {"reward__mean": 0.0, "reward__std": 0.0, "reward__zero_std_groups": 1.0, "reward__no_answer": 64}
    history = [metrics(s, **dead) for s in range(1, 6)]
    messages = health(history, [sample(4, "older"), sample(5, "x" * 500 + "I think it is 7")])
    assert set(messages) == {"zero_reward", "no_answer"}  # zero rewards imply equal rewards
    assert "gold answer is '7'" in messages["zero_reward"] and "I think it is 7" in messages["zero_reward"]
    assert len(messages["zero_reward"]) < 500 and "sample:" not in messages["no_answer"]  # it is quoted once


def test_what_updates_spoiled_names_the_rate():
    """Not the template, which is right where a response was right, nor the limit, which responses did not reach."""
    dead = [metrics(step, reward__mean=0.0, reward__std=0.0) for step in range(2, 7)]
    (message,) = health([metrics(1, reward__mean=0.07), *dead]).values()
    assert "was 0.07 in step 1" in message and "optim.learning_rate" in message and "template" not in message
    assert "template" in health(dead)["zero_reward"]
    cut = [metrics(step, completion__truncated=0.96) for step in range(2, 7)]
    (limit,), (rate,) = (health(history).values() for history in (cut, [metrics(1), *cut]))
    assert "raise it" in limit and "optim.learning_rate" in rate and "raise it" not in rate


def test_unused_sequence_mask_is_found_at_the_end():
    """The rule finds nothing earlier, nor if rollouts were masked in the first or in the last steps."""

    def run(masked, last=20):
        return [metrics(s, mismatch__rollouts_masked=masked.get(s, 0.0), progress=s / 20) for s in range(1, last + 1)]

    assert keys(run({})) == {"nothing_masked"}
    assert keys(run({}, 19)) == keys(run({1: 0.1})) == keys(run({18: 0.1})) == set()
