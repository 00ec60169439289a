"""Install d3s in every documented way into a fresh environment, and check what a run needs of it.

python dev/check_install.py                 (all four ways: 25 GB of disk, half an hour; no GPU is needed)
python dev/check_install.py pip-cpu --pip-args='--extra-index-url https://download.pytorch.org/whl/cpu'

Checked are the imports of a run, the pinned versions, that no two packages own the same file with other content, and
that the build of torch is the one that was asked for. Printed are minutes and GB. The exit code is 1 if anything fails.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = {"cpu": "requirements-cpu.txt", "gpu": "requirements.txt"}
WAYS = [f"{tool}-{build}" for tool in ("pip", "uv") for build in PINS]
MODULES = ["d3s.trainer", "d3s.evaluation.evaluator", "d3s.report.png", "d3s.sft.trainer", "vllm", "deepspeed", "peft"]
MODULES += ["wandb", "tensorboard", "math_verify", "pytest", "xdist", "hypothesis"]
GPU_MODULES = ["cuda.core", "cuda.bindings.driver", "nccl.core", "flashinfer", "cutlass", "triton"]
CHECK = """
import importlib, json, sys
from importlib.metadata import distributions
pins, modules, cuda = json.loads(sys.argv[1])
faults, owners = [], {}
stray = {"build_backend.py"}  # two wheels ship the script that built them, which nothing imports
for name in modules:
    try:
        importlib.import_module(name)
    except BaseException as error:
        faults.append(f"import {name}: {type(error).__name__}: {error}"[:200])
for name, wanted in pins.items():
    if (got := [package.version for package in distributions(name=name)]) != [wanted]:
        faults.append(f"{name}: got {' and '.join(got) or 'no package'}, expected {wanted}")
for package in distributions():
    for file in package.files or ():
        if file.hash and ".dist-info/" not in str(file) and str(file) not in stray:
            owners.setdefault(str(file), {}).setdefault(file.hash.value, package.name)
for file, names in owners.items():
    if len(names) > 1:
        faults.append(f"{file}: of {' and '.join(names.values())}")
import torch
if (torch.version.cuda is not None) != cuda:
    faults.append(f"torch {torch.__version__}: expected a build for the {'GPU' if cuda else 'CPU'}")
print(json.dumps(faults))
"""


def commands(way: str, folder: Path, pip_args: list[str], uv: str) -> list[list[str]]:
    """What the Makefile and docs/running.md run for this way; the environment is `folder`."""
    tool, build = way.split("-")
    if tool == "uv":
        return [[uv, "sync", "--frozen", "--group", build]]
    install = ["-m", "pip", "install", "--disable-pip-version-check", "-q", *pip_args, "-r", PINS[build]]
    return [[sys.executable, "-m", "venv", str(folder)], [str(folder / "bin/python"), *install]]


def faults(way: str, folder: Path) -> list[str]:
    """What is wrong with an installed environment, a line each."""
    build = way.partition("-")[2]
    lines = [line for line in (ROOT / PINS[build]).read_text().splitlines() if "==" in line and line[0] != "#"]
    pins = dict(line.split("==") for line in lines)
    question = json.dumps([pins, MODULES + GPU_MODULES * (build == "gpu"), build == "gpu"])
    done = subprocess.run(
        [folder / "bin/python", "-c", CHECK, question],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    answer = done.stdout.strip().rpartition("\n")[2]
    return json.loads(answer) if answer.startswith("[") else [f"exit code {done.returncode}: {done.stderr[-300:]}"]


def check(way: str, pip_args: list[str], uv: str) -> bool:
    """Install and check one way, and print a line for it and one for each fault. Returns whether there is none."""
    with tempfile.TemporaryDirectory(prefix=f"d3s-{way}-") as name:
        folder, started = Path(name) / "env", time.monotonic()
        found = []
        for command in commands(way, folder, pip_args, uv):
            done = subprocess.run(command, cwd=ROOT, env=os.environ | {"UV_PROJECT_ENVIRONMENT": str(folder)})
            if done.returncode:
                found = [f"{shlex.join(command)}: exit code {done.returncode}"]
                break
        minutes = (time.monotonic() - started) / 60
        found = found or faults(way, folder)
        size = sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) / 1e9
    print(f"{way}: {minutes:.1f} minutes, {size:.1f} GB, {'; '.join(found) or 'whole'}", flush=True)
    return not found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of {', '.join(WAYS)} (default: all)")
    parser.add_argument("--pip-args", type=shlex.split, default=[], help="options of pip install, in one word")
    beside = str(Path(sys.executable).with_name("uv"))  # where make installs it
    parser.add_argument("--uv", default=shutil.which("uv") or beside, help="the program uv")
    args = parser.parse_args()
    if unknown := [way for way in args.ways if way not in WAYS]:
        parser.error(f"got {unknown[0]}, expected some of {', '.join(WAYS)}")
    if shutil.which(args.uv) is None and any(way.startswith("uv") for way in args.ways or WAYS):
        parser.error(f"{args.uv}: no such program; pip install uv, or name it with --uv")
    return int(not all([check(way, args.pip_args, args.uv) for way in args.ways or WAYS]))


if __name__ == "__main__":
    sys.exit(main())
