"""Test the health rules on metrics with known symptoms: which findings, when, and what they quote."""

import pytest

from d3s.tracking.health import health
from tests.helpers.training_steps import metrics, sample

FLOAT32 = {"model": {"dtype": "float32"}, "rollout": {"top_p": 1.0, "top_k": -1}}


def keys(history: list[dict], samples: list[dict] = (), config: dict = FLOAT32) -> set[str]:
    return {finding.key for finding in health(history, samples, config=config)}


def test_healthy_run_has_no_findings():
    assert keys([metrics(step) for step in range(1, 50)], [sample(49)]) == set()
    assert keys([]) == set() and keys([{"step": step} for step in range(1, 9)]) == set()


@pytest.mark.parametrize(
    "change, key",
    [
        ({"reward__mean": 0.0, "reward__std": 0.0}, "zero_reward"),
        ({"reward__zero_std_groups": 1.0}, "zero_variance"),
        ({"reward__no_answer": 64}, "no_answer"),
        ({"completion__truncated": 1.0}, "all_truncated"),
        ({"policy__entropy": 0.005}, "entropy_collapsed"),
        ({"policy__clip_low": 0.15, "policy__clip_high": 0.1}, "much_clipped"),
        ({"mismatch__max_abs": 0.02}, "mismatch"),
    ],
)
def test_symptom_is_found_after_five_steps(change, key):
    healthy, sick = [metrics(s) for s in range(1, 21)], [metrics(s, **change) for s in range(21, 26)]
    assert keys(healthy + sick[:4]) == set()
    assert keys(healthy + sick) == {key}
    assert keys(healthy + sick + [metrics(26)]) == set()
    assert keys(healthy + sick[:2] + [metrics(23)] + sick[3:]) == set()
    assert keys(healthy[:1] + sick[1:4]) == keys(sick[:4]) == set()  # a run of four steps


def test_messages_name_a_metric_and_a_remedy():
    sick = {
        "reward__mean": 0.0,
        "reward__std": 0.0,
        "reward__no_answer": 64,
        "reward__timeouts": 9,
        "completion__truncated": 1.0,
        "policy__clip_low": 0.3,
        "policy__clip_high": 0.1,
        "mismatch__max_abs": 0.02,
        "mismatch__rollouts_masked": 0.0,
        "progress": 1,
    }
    history = [metrics(1, mismatch__rollouts_masked=0.0), *(metrics(s, **sick) for s in range(2, 7))]
    history[-5:] = [line | {"policy/entropy": 0.005} for line in history[-5:]]
    findings = health(history, config=FLOAT32)
    assert len(findings) == 8
    for finding in findings:
        metric, problem = finding.message.split(": ", 1)
        assert metric.split(" ")[0] in history[-1] and "; " in problem and not problem.endswith(".")


def test_entropy_of_zero_has_not_collapsed():
    """The entropy is missing where the engine returns none, and 0 where every response is greedy."""
    for entropy in (0.0, None):
        assert keys([metrics(step, policy__entropy=entropy) for step in range(1, 9)]) == set()


def test_mismatch_limit_depends_on_the_precision():
    def finding_keys(dtype, sampling=(), **gaps):
        config = {"model": {"dtype": dtype}, "rollout": {"top_p": 1.0, "top_k": -1, **dict(sampling)}}
        return keys([metrics(s, **gaps) for s in range(1, 6)], config=config)

    assert finding_keys("float32", mismatch__max_abs=9e-4) == set()
    assert finding_keys("bfloat16", mismatch__mean_abs=0.04, mismatch__max_abs=0.5) == set()  # as published for vLLM
    assert finding_keys("bfloat16", mismatch__mean_abs=0.2, mismatch__max_abs=0.5) == {"mismatch"}
    for sampling in ({"top_p": 0.9}, {"top_k": 5}):  # the engine renormalizes over the remaining tokens
        assert finding_keys("float32", sampling, mismatch__max_abs=0.5) == set()


def test_timeouts_above_one_percent_are_found():
    steps = range(1, 6)  # 64 rollouts a step: 320 in the window
    assert keys([metrics(s, reward__timeouts=3 if s == 5 else 0) for s in steps]) == set()  # 0.94 %
    assert keys([metrics(s, reward__timeouts=4 if s == 5 else 0) for s in steps]) == {"verifier_timeouts"}  # 1.25 %


def test_unused_sequence_mask_is_found_at_the_end():
    """The rule finds nothing earlier, nor if rollouts were masked in the first or in the last steps."""

    def run(masked, last=20):
        return [metrics(s, mismatch__rollouts_masked=masked.get(s, 0.0), progress=s / 20) for s in range(1, last + 1)]

    assert keys(run({})) == {"nothing_masked"}
    assert keys(run({}, 19)) == keys(run({1: 0.1})) == keys(run({18: 0.1})) == set()


def test_zero_rewards_quote_response_and_gold_answer():
    dead = {"reward__mean": 0.0, "reward__std": 0.0, "reward__zero_std_groups": 1.0, "reward__no_answer": 64}
    history = [metrics(s, **dead) for s in range(1, 6)]
    messages = {
        f.key: f.message for f in health(history, [sample(4, "older"), sample(5, "x" * 500 + "I think it is 7")])
    }
    assert set(messages) == {"zero_reward", "no_answer"}  # zero rewards imply equal rewards
    assert "gold answer is '7'" in messages["zero_reward"] and "I think it is 7" in messages["zero_reward"]
    assert len(messages["zero_reward"]) < 500 and "sample:" not in messages["no_answer"]  # it is quoted once
