"""Arguments that train.py and train_sft.py share, and the exit codes of their processes."""

import os
import re
import sys
from unittest.mock import Mock

import pytest

from d3s.commands.command_line import LAUNCH, read_arguments, run_and_exit
from d3s.common import UserError
from tests.helpers.configs import ROOT
from tests.helpers.processes import run_python


def read(monkeypatch, *arguments):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    return read_arguments("A program.")


def test_overrides_follow_files_in_any_place(monkeypatch):
    args, config = read(monkeypatch, "train.seed=1", "--config", "configs/tiny.yaml", "train.steps=5")
    assert (config.train.seed, config.train.steps, config.data.overlong_prompts) == (1, 5, "drop")
    assert (args.resume, args.dry_run) == ("never", False)
    args, config = read(monkeypatch, "--dry-run", "--config", "configs/tiny.yaml", "--resume", "auto", "train.seed=2")
    assert (args.resume, args.dry_run, config.train.seed) == ("auto", True, 2)


def test_files_are_told_from_overrides(monkeypatch, tmp_path):
    """Also a file whose path has an equals sign, and one in ~, which a shell does not replace after --config=."""
    file = tmp_path / "lr=1e-5" / "config.yaml"
    file.parent.mkdir()
    file.write_text("train: {steps: 7}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    long = f"data.system_prompt={'x' * 5000}"
    for path in (file, "~/lr=1e-5/config.yaml"):
        args, config = read(monkeypatch, f"--config={path}", "--resume=~/run", long)
        assert (config.train.steps, config.data.system_prompt, args.resume) == (7, "x" * 5000, str(tmp_path / "run"))


def test_overrides_alone_are_a_configuration(monkeypatch):
    _, config = read(monkeypatch, "model.name=m", "data.path=p.jsonl")
    assert (config.model.name, config.data.path) == ("m", "p.jsonl")
    with pytest.raises(UserError, match=r"^--config: got no file and no section\.key=value"):
        read(monkeypatch, "--resume", "auto")


def test_no_list_option_forgets_its_first_use():
    """Of every command line of the repository: argparse alone would keep the values of the last use."""
    files = [*ROOT.glob("*.py"), *(ROOT / "d3s").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    calls = [call for file in files for call in re.findall(r'\(\s*"--[^()]*nargs="[+*]"[^()]*', file.read_text())]
    assert len(calls) >= 4
    for call in calls:
        assert 'action="extend"' in call and re.findall("default=(..)", call) in ([], ["[]"]), call


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"RANK": "1"}, "no LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
        ({"WORLD_SIZE": "2"}, "no RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"),
        (dict(zip(LAUNCH, ("1", "1", "2", "here"))), "no MASTER_PORT"),
        (dict(zip(LAUNCH, ("1", "one", "2", "here", "29500"))), "got LOCAL_RANK='one', expected a number"),
    ],
)
def test_incomplete_launch_is_one_sentence(monkeypatch, variables, problem):
    for name in LAUNCH:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    message = f"the launcher's environment: {problem}; use torchrun or accelerate launch, or unset "
    with pytest.raises(UserError, match=re.escape(message + ", ".join(variables))):
        read(monkeypatch, "--config", "configs/tiny.yaml")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    read(monkeypatch, "--config", "configs/tiny.yaml")  # an address alone launches nothing


@pytest.mark.parametrize(
    ("result", "code", "text"),
    [
        (3, 3, ""),
        (None, 0, ""),
        (UserError("a: b; c"), 2, "error: a: b; c\n"),
        (KeyboardInterrupt(), 130, "stopped before the first step\n"),
        (ValueError("x"), 1, "ValueError: x\n"),
        (
            PermissionError(13, "Permission denied", "/a"),
            2,
            "error: /a: Permission denied; check the path and its permissions\n",
        ),
        (
            OSError(36, "File name too long", "b" * 300),
            2,
            f"error: {'b' * 80}…: File name too long; check the path and its permissions\n",
        ),
        (OSError(5, "Input/output error", "/a"), 1, "OSError: [Errno 5] Input/output error: '/a'\n"),
    ],
)
def test_process_ends_with_the_exit_code(result, code, text, monkeypatch, capsys):
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        run_and_exit(Mock(side_effect=[result]))
    assert ended.value.code == code and capsys.readouterr().err.endswith(text)


@pytest.mark.parametrize(("said", "policy"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")])
def test_threads_wait_without_spinning_unless_told(said, policy):
    """Set when d3s is imported, by a command or in a notebook, before it imports torch."""
    program = "import d3s, os, sys; print('torch' in sys.modules, os.environ['OMP_WAIT_POLICY'])"
    others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    assert run_python(program, env=others | said).split() == ["False", policy]
