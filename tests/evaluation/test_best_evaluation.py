"""The best evaluation on scripted values, against hand-written decisions."""

import json
from dataclasses import replace

from d3s.config.load import load_config
from d3s.evaluation.best_evaluation import RECORD, BestEvaluation, read_record
from tests.helpers.evaluations import scripted_result

EVALUATED = ["eval.data=[synthetic:precedence,synthetic:countdown]", "eval.every=1", "eval.k=[1,2]", "eval.n=4"]


def follow(*overrides):
    return BestEvaluation(load_config([], [*EVALUATED, *overrides]))


def observe(best, values, first_step=0):
    """Feed values of the first benchmark, with those of the second running against them; the ends and the exports."""
    ends, exports = [], []
    for step, value in enumerate(values, first_step):
        results = [scripted_result("precedence", value), scripted_result("countdown", 1 - value)]
        ends += [step] if best.observe_eval(results, step) else []
        exports += [step] if best.improved else []
    return ends, exports


def test_each_better_evaluation_is_the_best():
    """Equal ones are not better, also where they differ by rounding; the one before training counts."""
    best = follow("eval.keep_best=true")
    assert observe(best, [0.3, 0.2, 0.3, 0.1 + 0.2, 0.4, 0.35, 0.5]) == ([], [0, 4, 6])
    expected = {"step": 6, "data": "precedence", "value": 0.5, "n": 4, "problems": 10, "reward": ""}
    assert best.evaluation == expected and not best.reached


def test_training_ends_at_the_target():
    best = follow("eval.stop_at=0.3")
    assert observe(best, [0.1, 0.29]) == ([], [0, 1]) and not best.reached and best.problem() is None
    reason = best.observe_eval([scripted_result("precedence", 0.3 - 1e-16)], 40)
    assert reason == "eval.stop_at: avg@n of precedence is 0.3 after step 40, at least 0.3; training ends"
    assert best.reached and "takes no step; raise eval.stop_at, or set it to null" in best.problem()
    observe(best, [0.2])
    assert not best.reached


def test_restored_state_decides_alike():
    values, options = [0.3, 0.2, 0.4, 0.4, 0.35, 0.5], ["eval.keep_best=true", "eval.stop_at=0.5"]
    for split in range(1, 6):
        first, second = follow(*options), follow(*options)
        before = observe(first, values[:split])
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        after = observe(second, values[split:], first_step=split)
        assert tuple(a + b for a, b in zip(before, after)) == ([5], [0, 2, 5])


def test_other_benchmarks_sizes_and_rewards_start_anew():
    """A lower value is the best one of its kind, and the reason names the reward."""
    old, other = follow("eval.keep_best=true", "eval.stop_at=0.95"), follow("eval.data=[synthetic:countdown]")
    observe(old, [0.9])
    other.load_state_dict(old.state_dict())
    assert other.last is None and not other.reached
    old.observe_eval([scripted_result("precedence", 0.2, problems=20)], 1)
    assert old.improved and old.evaluation["problems"] == 20
    first, second = (replace(scripted_result("precedence", value), reward="m:f") for value in (0.05, 0.95))
    assert old.observe_eval([first], 2) is None and old.improved
    assert "avg@n of precedence by f is 0.95 after step 3" in old.observe_eval([second], 3)


def test_lost_and_later_models_are_exported_anew(tmp_path):
    """best/ must hold the model of the best evaluation that the checkpoint knows."""
    best = follow("eval.keep_best=true")
    observe(best, [0.4, 0.5])
    record = tmp_path / RECORD
    assert read_record(tmp_path) is None
    record.write_text(json.dumps(best.evaluation))
    best.forget_unless_kept(read_record(tmp_path))
    assert observe(best, [0.5], first_step=2) == ([], [])
    record.write_text(json.dumps(best.evaluation | {"step": 7}))
    best.forget_unless_kept(read_record(tmp_path))
    assert observe(best, [0.1], first_step=2) == ([], [2])
    record.write_text("{")
    assert read_record(tmp_path) is None
