"""train_sft.py through the command line: shipped files, ranks that resume, refusals."""

import pytest

from tests.helpers.actors import assert_bitwise_equal
from tests.helpers.command_line import complete, lines, timeless
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import parameters

Q_TUNING = "configs/sft_q_tuning.yaml"
NO_SAMPLES = "sft.prune={rule: 'd3s.methods.q_tuning:q_tuning', samples: 0, tokens: 1}"


def arguments(model, folder, *files_and_overrides):
    """train_sft.py and its arguments: four steps of six demonstrations."""
    return [
        "train_sft.py", "--config", "configs/sft.yaml", f"model.name={model}", f"train.output_dir={folder}",
        "train.steps=4", "data.limit=40", "train.prompts_per_step=6", "optim.warmup_steps=1", "checkpoint.every=1",
        "checkpoint.keep=4", *files_and_overrides,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def single(tied_model, tmp_path_factory):
    """A run on one process."""
    folder = tmp_path_factory.mktemp("single") / "run"
    assert f"the trained model is in {folder / 'model'}" in complete(arguments(tied_model, folder, Q_TUNING))
    return folder


def test_two_ranks_train_as_one_process(single, tied_model, tmp_path):
    """Under ZeRO-3. Resumed from its second step, the run has the same metrics and, bit for bit, the same weights."""
    options = arguments(tied_model, tmp_path / "run", Q_TUNING, "checkpoint.every=2")
    complete(options, "zero3")
    expected, metrics = (timeless(lines(folder / "metrics.jsonl")) for folder in (single, tmp_path / "run"))
    for left, right in zip(expected, metrics, strict=True):
        assert right == pytest.approx(left, rel=1e-3, abs=1e-4)
    weights = parameters(tmp_path / "run/model")
    assert_same_way(weights, parameters(single / "model"), parameters(tied_model))
    complete([*options, "--resume", str(tmp_path / "run/checkpoints/step_000002")], "zero3")
    assert_bitwise_equal(parameters(tmp_path / "run/model"), weights)
    assert timeless(lines(tmp_path / "run/metrics.jsonl")) == metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.path=missing.jsonl"], "missing.jsonl: no such file"),
        ([NO_SAMPLES], "sft.prune: d3s.methods.q_tuning:q_tuning raised ValueError: samples must be in (0, 1], not 0"),
        (["rollout.stop=[x]"], "rollout.stop: not read by train_sft.py; remove it"),
        (["eval.every=1"], "eval.every: not read by train_sft.py without sft.held_out; remove it"),
        (["data.max_prompt_length=2", "rollout.max_completion_length=3"], "expected at most 5; raise rollout.max_c"),
    ],
)
def test_bad_input_ends_with_one_sentence(tied_model, tmp_path, changes, message, refusal):
    words = arguments(tied_model, tmp_path / "run", *changes)
    assert message in refusal(words)
    assert "data.path" not in changes[0] or message in refusal([*words, "--dry-run"])
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_settings_of_other_runs_are_refused(single, tied_model, refusal):
    """Of RL with options of the warm-up alone, and of a resumed warm-up with other demonstrations."""
    assert refusal(["train.py", "--config", Q_TUNING]).startswith("sft.prune: not read by train.py; remove ")
    error = refusal(["train.py", "--config", "configs/sft.yaml"])
    assert error.startswith("data.problem_field, data.answer_field: not read by train.py with synthetic:countdown; ")
    error = refusal([*arguments(tied_model, single, Q_TUNING, "train.prompts_per_step=5"), "--resume", "auto"])
    assert "made with other settings (train.prompts_per_step: got 5, expected 6)" in error
