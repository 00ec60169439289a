"""Local copies of the benchmarks, which lie outside the repository and may be missing."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
needs_benchmark_files = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmark files are not on this machine")
BENCHMARK_FILES = {  # name: (file, number of problems)
    "aime24": (FOLDER / "aime24.jsonl", 30),
    "aime25": (FOLDER / "aime25.jsonl", 30),
    "amc23": (FOLDER / "amc23.jsonl", 40),
    "math500": (FOLDER / "math500.jsonl", 500),
    "gsm8k": (FOLDER / "gsm8k_test.jsonl", 1319),
    "minerva": (FOLDER / "minerva_math.jsonl", 272),
    "olympiadbench": (FOLDER / "olympiadbench.jsonl", 675),
}
TRAINING_FILES = (FOLDER / "gsm8k_train.jsonl", FOLDER / "math_train.jsonl")
