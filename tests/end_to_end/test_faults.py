"""Accidents: whatever dies, and whenever, the launcher ends with an error, the run directory can be read, nothing is
left running, and --resume auto ends as if nothing had happened. ZeRO-3 and vLLM are in
tests/end_to_end/test_resume.py."""

import json
import shutil
from types import SimpleNamespace

import pytest

from d3s.checkpoint import MANIFEST, find_resume, load_checkpoint
from d3s.common import UserError
from d3s.config.load import load_config
from tests.helpers.command_line import finish, lines, run, start, wait_for
from tests.helpers.pages import CONDITIONAL_METRICS, documented_metrics
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import accident, arguments, assert_readable, parameters, same_run


def test_two_ranks(finished_runs, tied_model, tmp_path, no_process_stays):
    """One run and its accidents, resumed after each: SIGTERM, the launcher killed, a rank killed in every phase."""
    folder, struck = tmp_path / "run", tmp_path / "struck"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    for what, action, saved in (("pause:generate:2:1", "terminate", 2), ("pause:update:3:1", "kill", 2)):
        process = start(["tests/helpers/faulty_train.py", what, *options[1:]], "ddp")
        wait_for(struck.exists, process)
        getattr(process, action)()  # ranks that are told to end finish the step and save; torchrun's own code is 1
        code, output = finish(process)
        assert code == {"terminate": 1, "kill": -9}[action], output
        assert_readable(folder, saved)
        assert len(lines(folder / "metrics.jsonl")) == saved
        struck.unlink()
    for phase, step in (("generate", 3), ("score", 3), ("update", 3), ("sync", 4), ("checkpoint", 4)):
        what, saved = f"kill:{phase}:{step}:1", step - 1
        code, output = accident(what, options, "ddp")
        assert code == 1, f"{what}\n{output}"
        assert_readable(folder, saved)
    code, output = run(options, "ddp")
    assert code == 0, output
    assert same_run(finished_runs("ddp"), folder)


def test_one_process(finished_runs, tied_model, tmp_path, no_process_stays):
    """The same, killed before the last rename too; and a disk that is full: earlier checkpoints stay."""
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), "--resume", "auto"]
    for what, saved in (("kill:logprobs:2:0", 1), ("kill:sync:3:0", 2), ("kill:rename:3:0", 2)):
        code, output = accident(what, options, "single")
        assert code == -9, f"{what}\n{output}"
        assert_readable(folder, saved)
    code, output = accident("full:checkpoint:4:0", options, "single")
    assert code == 2 and "Traceback" not in output
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "step_000004 could not be written" in errors[0] and "free some space" in errors[0]
    assert_readable(folder, 3)
    assert not list((folder / "checkpoints").glob("*000004*"))
    code, output = run(options)
    assert code == 0, output
    assert same_run(finished_runs("single"), folder)


@pytest.mark.parametrize(("before", "after"), [("single", "ddp"), ("ddp", "single")])
def test_another_number_of_ranks_goes_on(before, after, finished_runs, tied_model, tmp_path):
    shutil.copytree(finished_runs(before), tmp_path / "run")
    for step in (3, 4):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step_{step:06d}")
    shutil.rmtree(tmp_path / "run" / "model")
    code, output = run([*arguments(tied_model, tmp_path / "run"), "--resume", "auto"], after)
    assert code == 0, output
    assert [step["step"] for step in lines(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3, 4]
    end, expected = (parameters(folder / "model") for folder in (tmp_path / "run", finished_runs(before)))
    assert_same_way(end, expected, parameters(tied_model))


def test_a_verifier_worker_killed_costs_one_answer(tied_model, tmp_path, no_process_stays):
    options = [*arguments(tied_model, tmp_path / "run"), "reward.function=d3s.reward:verify"]
    code, output = accident("worker:generate:2:0", options, "single")
    assert code == 0, output
    steps = lines(tmp_path / "run" / "metrics.jsonl")
    assert [step["reward/crashes"] for step in steps] == [0, 1, 0, 0]


def test_documented_metrics_are_those_of_a_run(finished_runs):
    steps = lines(finished_runs("single") / "metrics.jsonl")
    logged = {key for step in steps for key in step if not key.startswith("time/")}
    assert logged == documented_metrics() - CONDITIONAL_METRICS - {"time/*"}


# --- checkpoints that are not what was saved -------------------------------------------------------------------------


@pytest.fixture
def copied(finished_runs, tmp_path):
    """A finished run of four checkpoints, to be damaged."""
    return shutil.copytree(finished_runs("single"), tmp_path / "run")


FILES = ["config.yaml", "model.safetensors", "optimizer.pt", "random_0.pt", "state.json"]


def test_the_manifest_names_every_file(copied):
    path = copied / "checkpoints" / "step_000004"
    assert sorted(json.loads((path / MANIFEST).read_text())) == FILES
    assert sorted(p.name for p in path.iterdir()) == sorted([*FILES, MANIFEST])
    assert find_resume(copied, "auto") == path


@pytest.mark.parametrize("name", FILES)
def test_a_file_changed_at_its_old_size_is_noticed(name, copied, capsys):
    file = copied / "checkpoints" / "step_000004" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert find_resume(copied, "auto").name == "step_000003"
    assert f"step_000004 is damaged ({name} is not what {MANIFEST} says)" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"{name} is not what"):
        find_resume(copied, str(file.parent))


def test_without_any_whole_checkpoint_a_run_is_not_started_over(copied):
    for manifest in (copied / "checkpoints").glob(f"*/{MANIFEST}"):
        manifest.write_text("{}")
    with pytest.raises(UserError, match="has no undamaged checkpoint"):
        find_resume(copied, "auto")


def test_another_run_is_not_overwritten_by_a_named_checkpoint(copied, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    checkpoint = str(copied / "checkpoints" / "step_000002")
    assert find_resume(other, checkpoint).name == find_resume(copied, checkpoint).name == "step_000002"
    with pytest.raises(UserError, match=r"there is no manifest\.json in it; allowed are auto, never"):
        find_resume(other, str(other))
    (other / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="other holds another run"):
        find_resume(other, checkpoint)


def test_older_manifests_of_sizes_count_and_what_they_let_through_is_one_sentence(copied):
    path = copied / "checkpoints" / "step_000004"
    (path / MANIFEST).write_text(json.dumps({name: (path / name).stat().st_size for name in FILES}))
    damaged = bytearray((path / "random_0.pt").read_bytes())
    damaged[-400:] = bytes(400)  # where a zip file lists what it contains
    (path / "random_0.pt").write_bytes(damaged)
    assert find_resume(copied, "auto") == path
    actor = SimpleNamespace(zero3=False, load=lambda *_: None, accelerator=SimpleNamespace(process_index=0))
    with pytest.raises(UserError, match=r"step_000004 cannot be loaded into this model \("):
        load_checkpoint(actor, path)
    (path / "state.json").write_text("{" + " " * ((path / "state.json").stat().st_size - 1))
    with pytest.raises(UserError, match=r"state.json is damaged"):
        load_checkpoint(actor, path)


def test_weights_of_another_shape_are_one_sentence(copied, gqa_model):
    from d3s.trainer import Trainer

    config = load_config([copied / "config.yaml"], [f"model.name={gqa_model}"])
    with pytest.raises(UserError, match=r"step_000004 cannot be loaded into this model .* resume with the model.name"):
        Trainer(config, copied / "checkpoints" / "step_000004")
