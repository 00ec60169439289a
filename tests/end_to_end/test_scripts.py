"""make setup, the Slurm script and the Dockerfile, with stand-ins of the programs that they call.

The versions of Python that setup takes; the launch on both nodes, and the stop before the time limit.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from d3s.commands.command_line import read_arguments
from tests.helpers.command_line import ROOT, kill_group, wait_for

REQUIRES_PYTHON = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
PYTHON = """case "$1" in
  -V) echo Python {version} ;;
  -m) mkdir -p .venv/bin && cp pip .venv/bin/python ;;
esac
"""
SCRIPT = ROOT / "configs/slurm/zero3_2nodes.sbatch"
SLURM = {
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


def write_programs(folder: Path, programs: dict[str, str]) -> dict[str, str]:
    """Write shell scripts by name. Return environment variables in which they are found first."""
    for name, text in programs.items():
        program = folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return variables | {"PATH": f"{folder}:{variables['PATH']}"}


def setup(folder: Path, version: str, *arguments: str, installed: str = "") -> subprocess.CompletedProcess:
    """Run make setup in `folder`, where python3 is a Python of `version`; that of .venv also runs `installed`."""
    for name in ("Makefile", "requirements.txt", "requirements-cpu.txt"):
        shutil.copy(ROOT / name, folder)
    programs = {"python3": PYTHON.format(version=version), "pip": f'echo "$@" >> pip.log\n{installed}'}
    options = {"cwd": folder, "env": write_programs(folder, programs), "capture_output": True, "text": True}
    return subprocess.run(["make", "setup", *arguments], timeout=60, **options)


@pytest.mark.parametrize("version", ["3.1.2", "3.10.13", "3.11.0", "3.13.0", "3.110.0"])
def test_setup_takes_the_versions_of_the_package(tmp_path, version):
    done = setup(tmp_path, version)
    if version in REQUIRES_PYTHON:
        assert done.returncode == 0, done.stderr
        assert re.search(r"pip install .*-r requirements(-cpu)?\.txt$", (tmp_path / "pip.log").read_text(), re.M)
        assert (tmp_path / ".venv/.installed").exists()
    else:
        assert done.returncode == 2 and not (tmp_path / ".venv").exists()
        [sentence] = [line for line in done.stderr.splitlines() if not line.startswith("make")]
        assert sentence.startswith(f"python3: got Python {version}, expected Python 3.11 or 3.12; ")
        assert "make setup PYTHON3=" in sentence


@pytest.mark.parametrize("fails", [False, True])
def test_uv_looks_where_pip_is_told_to_look_and_pip_follows_if_it_fails(tmp_path, fails):
    """The stand-in of pip has settings, and installs a stand-in of uv."""
    installed = f"""case "$*" in
  *"config list") printf "global.timeout='9'\n:env:.find-links='/a /b'\nglobal.index-url='https://c/simple'\n" ;;
  *uv==*) printf '#!/bin/bash\necho uv "$@" >> pip.log; exit {int(fails)}' > .venv/bin/uv; chmod +x .venv/bin/uv ;;
esac"""
    done = setup(tmp_path, "3.11.7", "PIP_ARGS=--extra-index-url d", installed=installed)
    log = (tmp_path / "pip.log").read_text()
    [of_uv] = re.findall(r"^uv pip install .*", log, re.M)
    assert "--find-links /a --find-links /b --index-url https://c/simple --extra-index-url d -r requirements" in of_uv
    assert done.returncode == 0 and bool(re.search(r"^-m pip install .* -r requirements", log, re.M)) == fails


@pytest.mark.parametrize("cuda", [True, False])
def test_setup_on_a_gpu_machine_wants_a_build_with_cuda(tmp_path, cuda):
    """The stand-in of .venv/bin/python answers the question for torch.version.cuda by its exit code."""
    write_programs(tmp_path, {"nvidia-smi": ""})
    done = setup(tmp_path, "3.11.7", installed=f'[ "$1" != -c ] || exit {int(not cuda)}')
    assert "-r requirements.txt\n" in (tmp_path / "pip.log").read_text()
    assert (done.returncode == 0) == (tmp_path / ".venv/.installed").exists() == cuda
    assert cuda or "got a torch without CUDA, expected a CUDA build; " in done.stderr


def test_dockerfile_installs_the_gpu_pins():
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M))
    steps = [line for line in text.splitlines() if line.startswith("COPY") or "pip" in line]
    assert [step.split()[0] for step in steps] == ["COPY", "RUN", "COPY"]  # a change of the code installs nothing anew
    assert steps[1].endswith("pip install --no-cache-dir -r requirements.txt")
    assert "requirements.txt" not in (ROOT / ".dockerignore").read_text().splitlines()


@pytest.fixture
def job(tmp_path):
    """The script in a directory with the stand-ins, while both launchers run."""
    variables = write_programs(tmp_path, SLURM) | {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7-8]"}
    command = ["bash", str(SCRIPT), "--config", str(ROOT / "configs/qwen2.5-math-7b.yaml"), "train.steps=7"]
    process = subprocess.Popen(command, cwd=tmp_path, env=variables, start_new_session=True)
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
    text = SCRIPT.read_text()
    options = dict(re.findall(r" (--[\w-]+)=?(\S*)", "".join(re.findall(r"^#SBATCH(.*)$", text, re.M))))
    processes = int(re.search(r"num_processes: (\d+)", (ROOT / "configs/accelerate/zero3_2nodes.yaml").read_text())[1])
    assert int(options["--nodes"]) * int(options["--gpus-per-node"]) == processes
    assert options["--ntasks-per-node"] == "1" and "--requeue" in options
    assert text.index("\n#SBATCH") < text.index("\nexport")  # sbatch reads no directive after the first command
