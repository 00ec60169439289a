"""Arguments that train.py and train_sft.py share, and the exit codes of their processes."""

import subprocess
import sys

import pytest

from d3s.common import UserError
from d3s.config.command_line import read_arguments
from tests.helpers.configs import ROOT


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


def test_unknown_files_are_user_errors(monkeypatch):
    with pytest.raises(UserError, match=r"missing.yaml: cannot be read"):
        read(monkeypatch, "--config", "missing.yaml")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("return 3", 3, ""),
        ("return None", 0, ""),
        ("raise UserError('a: b; c')", 2, "error: a: b; c\n"),
        ("raise KeyboardInterrupt", 130, "stopped before the first step\n"),
        ("raise ValueError('x')", 1, "ValueError: x\n"),
    ],
)
def test_process_ends_with_the_exit_code(body, code, message):
    program = (
        "from d3s.common import UserError\nfrom d3s.config.command_line import run_and_exit\n"
        f"def main():\n    {body}\nrun_and_exit(main)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == code and done.stderr.endswith(message)
