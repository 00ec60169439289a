"""Run a benchmark's command line at the smallest size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import TRL_PYTHON

ROOT = Path(__file__).resolve().parents[2]
TINY_MODEL = ["--hidden", "32", "--layers", "1", "--rounds", "1"]

needs_trl = pytest.mark.skipif(not TRL_PYTHON.exists(), reason="TRL is not installed (make .venv-trl/.installed)")


def run_benchmark(results: Path, module: str, *options: str) -> str:
    """Run `python -m benchmarks.MODULE` and return its output; its tables go to `results`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "D3S_RESULTS": str(results)}
    command = [sys.executable, "-m", f"benchmarks.{module}", *options]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    return process.stdout
