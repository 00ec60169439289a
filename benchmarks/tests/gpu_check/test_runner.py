"""Stages that end in every way, in processes of their own, against the exit code and the files of the check."""

import importlib
import json
import subprocess
import sys
import time

import pytest

from benchmarks import harness
from benchmarks.gpu_check.runner import Outcome, Stage, run_stage
from benchmarks.tests.broken_stages import is_running
from d3s.common import UserError

main = importlib.import_module("benchmarks.gpu_check.__main__")


def stage(function: str, limit: float = 60.0) -> Stage:
    return Stage(function, f"benchmarks.tests.broken_stages:{function}", limit)


def run(function: str, folder, limit: float = 60.0, remaining: float = 600.0) -> Outcome:
    return run_stage(stage(function, limit), "cpu", remaining, folder)


@pytest.mark.parametrize(
    ("function", "status", "reason", "rows"),
    [
        ("lacks_a_part", "failed", "ModuleNotFoundError: No module named 'json.no_such_part'", 0),
        ("measures_nothing", "failed", "measured nothing", 0),
        ("does_not_exist", "failed", "AttributeError: module 'benchmarks.tests.broken_stages' has no", 0),
    ],
)
def test_each_end_of_a_stage_has_a_status(tmp_path, function, status, reason, rows):
    outcome = run(function, tmp_path)
    assert (outcome.status, len(outcome.rows)) == (status, rows)
    assert outcome.reason.startswith(reason) and outcome.broken


@pytest.mark.parametrize(("remaining", "status"), [(600.0, "failed"), (3.0, "no time left")])
def test_hanging_stage_is_killed_with_its_processes(tmp_path, remaining, status):
    """Its own limit of 4 s is a failure; less, because the time of the check is over, is none."""
    started = time.monotonic()
    outcome = run("hangs", tmp_path, limit=4.0, remaining=remaining)
    assert outcome.status == status and 2 < time.monotonic() - started < 60
    [sleeper] = [int(row.measured) for row in outcome.rows]
    deadline = time.monotonic() + 20  # a signal takes effect at the next moment that the process gets
    while is_running(sleeper) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(sleeper)


def test_stage_is_not_started_without_time(tmp_path):
    assert run("raises", tmp_path, limit=60, remaining=19) == Outcome("raises", "no time left")
    assert not list(tmp_path.iterdir())


# --- the whole check -------------------------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The folder of the check's files."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return tmp_path


def test_broken_stages_do_not_lose_the_others(results, capsys):
    """Exit code 1, their names, and the rows of all."""
    names = ["holds", "raises", "exceeds", "lacks_a_library", "is_killed"]
    assert main.check([*map(stage, names), Stage("holds again", stage("holds").target, 60)], "cpu", 600) == 1
    record = {x["name"]: x for x in json.loads((results / "gpu-check.json").read_text())["stages"]}
    assert [len(record[name]["rows"]) for name in ("holds", "raises", "holds again")] == [2, 1, 2]
    assert [row["what"] for row in record["exceeds"]["rows"] if not row["held"]] == ["large error"]
    text = (results / "gpu-check.md").read_text()
    assert text.startswith("**GPU check at tiny shapes on the CPU")
    assert "| holds | error | 0.5 | <= 1 | yes |" in text
    assert "| raises | stage | failed: ValueError: wrong shape; log: " in text
    assert "| lacks_a_library | stage | not run: no_such_library is not installed |  |  |" in text
    failed, below, missing, held = main.summary([Outcome(**{**x, "rows": []}) for x in record.values()])
    assert failed.startswith("failed: raises (ValueError") and "is_killed (killed by signal 9" in failed
    assert below.startswith("did not hold: exceeds (large error") and held == "held: holds, holds again"
    assert missing == "not run: lacks_a_library (no_such_library is not installed)"
    assert failed in capsys.readouterr().out


def test_check_without_a_usable_gpu_runs_no_stage(results, monkeypatch):
    monkeypatch.setattr(main, "gpu_problem", lambda: "torch finds no usable GPU")
    monkeypatch.setattr("sys.argv", ["gpu_check"])
    with pytest.raises(UserError, match="torch finds no usable GPU"):
        main.main()
    assert not any(results.iterdir())


def test_check_that_holds_ends_with_zero(results):
    assert main.check([stage("holds"), stage("lacks_a_library")], "cuda", 600) == 0
    assert (results / "gpu-check.md").read_text().startswith("**GPU check on a cuda for tests**")


def test_files_are_written_after_every_stage(results, monkeypatch):
    def interrupted(stage, *_):
        if stage.name == "second":
            raise KeyboardInterrupt
        return Outcome(stage.name, "held")

    monkeypatch.setattr(main, "run_stage", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main.check([Stage("first", "", 1), Stage("second", "", 1)], "cpu", 600)
    assert [x["name"] for x in json.loads((results / "gpu-check.json").read_text())["stages"]] == ["first"]


def test_unknown_stages_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu_check", "--stages", "device,kernels"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (
        ended.value.code == 2 and "--stages: got kernels, expected some of device,attention" in capsys.readouterr().err
    )


def test_every_stage_can_be_loaded():
    from benchmarks.gpu_check.child import load

    assert all(callable(load(stage.target)) for stage in main.STAGES)
    assert len({stage.name for stage in main.STAGES}) == len(main.STAGES)


def test_first_stages_need_few_libraries():
    """They can be loaded with torch, transformers and accelerate; the others name what they lack."""
    few = ["device", "attention", "head", "chunks", "sampler", "memory", "update"]
    hidden = ["pydantic", "vllm", "deepspeed", "datasets", "trl", "peft", "sympy", "aiohttp", "pytest", "matplotlib"]
    code = f"""
import sys
import accelerate
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel, Qwen2Config
sys.modules.update(dict.fromkeys({hidden}))
from importlib import import_module
for name in {few}:
    import_module("benchmarks.gpu_check." + name)
"""
    subprocess.run([sys.executable, "-c", code], cwd=harness.ROOT, check=True, timeout=200)


def test_missing_torch_names_the_variable_of_make(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    with pytest.raises(SystemExit):
        main.main()
    variable = capsys.readouterr().err.rpartition("make gpu-check ")[2].partition("=")[0]
    assert f"\n\t@$({variable}) -m benchmarks.gpu_check\n" in (harness.ROOT / "Makefile").read_text()
