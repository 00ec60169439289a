"""make setup with stand-ins of Python: the versions that it takes; the Dockerfile against the files that it names."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
REQUIRES_PYTHON = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
PYTHON = """#!/bin/bash
case "$1" in
  -V) echo Python {version} ;;
  -m) mkdir -p .venv/bin && cp pip .venv/bin/python ;;
esac
"""


def setup(folder: Path, version: str, *arguments: str, installed: str = "") -> subprocess.CompletedProcess:
    """Run make setup in `folder`, where python3 is a Python of `version`; that of .venv also runs `installed`."""
    for name in ("Makefile", "requirements.txt", "requirements-cpu.txt"):
        shutil.copy(ROOT / name, folder)
    programs = {"python3": PYTHON.format(version=version)}
    programs["pip"] = f'#!/bin/bash\necho "$@" >> pip.log\n{installed}\n'
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    command = ["make", "setup", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("version", ["3.1.2", "3.10.13", "3.11.0", "3.12.9", "3.13.0", "3.110.0"])
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
    (tmp_path / "nvidia-smi").write_text("")
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = setup(tmp_path, "3.11.7", installed=f'[ "$1" != -c ] || exit {int(not cuda)}')
    assert "-r requirements.txt\n" in (tmp_path / "pip.log").read_text()
    assert (done.returncode == 0) == (tmp_path / ".venv/.installed").exists() == cuda
    assert cuda or "got a torch without CUDA, expected a CUDA build; " in done.stderr


def test_dockerfile_installs_the_gpu_pins():
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M))
    copies = [line.split()[:-1] for line in re.findall(r"^COPY (.*)$", text, re.M)]
    assert copies == [["requirements.txt"], ["."]]  # the pins first: a change of the code installs nothing anew
    assert "requirements.txt" not in (ROOT / ".dockerignore").read_text().splitlines()
    runs = re.findall(r"^RUN (.*)$", text, re.M)
    assert [command for command in runs if "pip" in command] == [runs[1]]
    assert runs[1].endswith("pip install --no-cache-dir -r requirements.txt")
    for command in runs:
        assert subprocess.run(["bash", "-n", "-c", command], timeout=60).returncode == 0
