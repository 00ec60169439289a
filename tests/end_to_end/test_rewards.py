"""Own rewards and rules through train.py on one and two ranks. tests/test_trainer_faults.py has failing rewards."""

import pytest

from tests.helpers.command_line import complete, lines
from tests.helpers.data_files import write_rows
from tests.helpers.small_run import arguments, parameters

HERE = "tests.helpers.rewards"
RULES = {
    "loss.kind": "surrogate", "reward.advantages": "standardized", "rollout.strategy": "InTwoRounds",
    "selector.rollouts": "pooled", "selector.tokens": "priorities", "schedule.n_shape": "line",
    "schedule.k_shape": "also_line", "schedule.follow": "Restless", "data.order": "Rotation",
    "rollout.engine": "Silent",
}  # fmt: skip


def test_own_rewards_and_rules_are_alike_on_two_ranks(tied_model, tmp_path):
    """Several reward functions, of which one reads a column and no one an answer, beside own rules for ten options.

    Every rank computes the advantages of its own texts; the update is that of one rank up to rounding.
    """
    problems = [{"problem": f"{i}+{i}=", "answer": "?", "parity": i % 2} for i in range(8)]
    functions = f"[{HERE}:even_length, [{HERE}:dense, 0.5], [{HERE}:reads_column, 0.25], [{HERE}:odd_or_fails, 0.125]]"
    options = [f"reward.functions={functions}", f"data.path={write_rows(tmp_path / 'problems.jsonl', problems)}"]
    options += ["reward.errors=zero", "data.limit=null", "train.steps=3", "eval.data=[synthetic:precedence]"]
    options += ["eval.limit=2", "eval.every=0", "tracker.samples_every=1", "tracker.samples=64"]
    options += [f"{option}=tests.helpers.own_rules:{rule}" for option, rule in RULES.items()]
    for name, launcher in (("one", "single"), ("two", "ddp")):
        complete([*arguments(tied_model, tmp_path / name), *options], launcher)
    one, two = (lines(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert len(one) == len(two) == 3 and one[0]["advantage/tokens_changed"] > 0
    assert len({(step["schedule/n"], step["schedule/k"]) for step in one}) > 1  # the schedule follows the rewards
    for step, other in zip(one, two, strict=True):
        names = "even_length", "dense", "reads_column", "odd_or_fails"
        even, dense, column, odd = (step[f"rewards/{name}"] for name in names)
        assert step["reward/accuracy"] == pytest.approx(even) and dense > 0
        assert step["reward/mean"] == pytest.approx(even + 0.5 * dense + 0.25 * column + 0.125 * odd, rel=1e-5)
        assert step["reward/failures"] == round(16 * even) > 0
        for key in (
            "reward/mean",
            "reward/failures",
            "advantage/tokens_changed",
            "selection/tokens",
            "schedule/n",
            "order/next",
        ):
            assert step[key] == pytest.approx(other[key], rel=1e-6)
    assert {record["reward"] for record in lines(tmp_path / "one" / "eval.jsonl")} == {"verify"}
    samples = [sample for path in (tmp_path / "one" / "samples").iterdir() for sample in lines(path)]
    parities = {problem["problem"]: problem["parity"] for problem in problems}
    assert len(samples) == 3 * 16
    for sample in samples:
        length, dense = len(sample["response"]), sum(character in "aeiou" for character in sample["response"]) / 8
        right = (length % 2 == 0) + 0.5 * dense + 0.25 * (length % 2 == parities[sample["problem"]])
        right += 0.125 * (length % 2)
        assert sample["reward"] == pytest.approx(right)
    own = [sample for sample in samples if sample["token_advantages"]]
    assert own and all(s["token_advantages"][0] == pytest.approx(s["advantage"], abs=1e-6) for s in own)
    left, right = (parameters(tmp_path / name / "model") for name in ("one", "two"))
    assert max((left[key] - right[key]).abs().max().item() for key in left) < 2e-5
