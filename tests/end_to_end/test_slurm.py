"""The Slurm script with stand-ins of Slurm's programs: the launch on both nodes, and the stop before the time limit."""

import os
import re
import signal
import subprocess
import sys

import pytest

from d3s.config.command_line import read_arguments
from tests.helpers.command_line import ROOT, kill_group, wait_for

SCRIPT = ROOT / "configs/slurm/zero3_2nodes.sbatch"
CONFIG = ROOT / "configs/qwen2.5-math-7b.yaml"
PROGRAMS = {
    "scontrol": 'case "$1" in show) printf "node7\\nnode8\\n" ;; *) echo "$@" > requeued ;; esac',
    # One task per node. Like Slurm's own, it answers SIGTERM by killing the tasks.
    "srun": """while [ "$1" != bash ]; do shift; done
for node in 0 1; do SLURM_NODEID=$node "$@" & tasks="$tasks $!"; done
echo $tasks > tasks.partial && mv tasks.partial tasks
trap 'kill -KILL $tasks' TERM
code=0; for task in $tasks; do wait $task || code=$?; done; exit $code""",
    # A signal reaches the tasks alone, and the batch script only with --batch.
    "scancel": '[ "$*" = "--signal=TERM 41" ] && kill -TERM $(cat tasks)',
    # The launcher: records its arguments, then trains until $END appears or SIGTERM comes.
    ".venv/bin/accelerate": """printf '%s\\n' "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT" "$@" > arguments.$SLURM_NODEID
trap 'sleep 0.2; echo saved > saved.$SLURM_NODEID; exit 1' TERM
touch ready.$SLURM_NODEID
until [ -e end ]; do sleep 0.02; done; exit $(cat end)""",
}


@pytest.fixture
def job(tmp_path):
    """The script in a directory with the stand-ins, while both launchers run."""
    for name, text in PROGRAMS.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7-8]"}
    command = ["bash", str(SCRIPT), "--config", str(CONFIG), "train.steps=7"]
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | variables, start_new_session=True)
    files = [tmp_path / name for name in ("arguments.0", "arguments.1", "ready.0", "ready.1", "tasks")]
    wait_for(lambda: all(file.exists() for file in files), process, timeout=60)
    yield process
    kill_group(process)


def test_script_launches_train_on_both_nodes(job, tmp_path, monkeypatch):
    from accelerate.commands.launch import launch_command_parser

    (tmp_path / "end.partial").write_text("0")
    (tmp_path / "end.partial").rename(tmp_path / "end")
    assert job.wait(60) == 0
    for node in (0, 1):
        timeout, *arguments = (tmp_path / f"arguments.{node}").read_text().splitlines()
        launch = launch_command_parser().parse_args(arguments[1:])
        assert arguments[0] == "launch" and (launch.main_process_ip, launch.machine_rank) == ("node7", node)
        assert (ROOT / launch.config_file).samefile(ROOT / "configs/accelerate/zero3_2nodes.yaml")
        assert launch.training_script == "train.py"
        monkeypatch.setattr(sys, "argv", [launch.training_script, *launch.training_script_args])
        train, config = read_arguments("")
        assert (train.resume, config.train.steps, config.model.name) == ("auto", 7, "Qwen/Qwen2.5-Math-7B")
    before_limit_s = int(re.search(r"--signal=B:USR1@(\d+)", SCRIPT.read_text())[1])
    assert 0.9 * before_limit_s <= int(timeout) < before_limit_s
    assert not (tmp_path / "requeued").exists()


def test_signal_saves_and_requeues(job, tmp_path):
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 0
    assert all((tmp_path / f"saved.{node}").exists() for node in (0, 1))
    assert (tmp_path / "requeued").read_text() == "requeue 41\n"


def test_directives_match_the_launch_configuration():
    text, options = SCRIPT.read_text(), {}
    for line in re.findall(r"^#SBATCH (.*)$", text, re.M):
        options |= {name: value for name, _, value in (option.partition("=") for option in line.split())}
    processes = int(re.search(r"num_processes: (\d+)", (ROOT / "configs/accelerate/zero3_2nodes.yaml").read_text())[1])
    assert int(options["--nodes"]) * int(options["--gpus-per-node"]) == processes
    assert options["--ntasks-per-node"] == "1" and "--requeue" in options
    assert text.index("\n#SBATCH") < text.index("\nexport")  # sbatch reads no directive after the first command
