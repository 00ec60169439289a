"""Trackers, and metrics lines and sample records of a healthy training step."""

from contextlib import closing
from pathlib import Path

from d3s.config.load import load_config
from d3s.tracking.tracker import Tracker


def tracker(directory: Path, steps: int, *overrides: str, resume_step: int = 0, **options: Path) -> closing:
    """The tracker of a run in this directory, which `with` opens and closes."""
    config = load_config([], [f"train.output_dir={directory}", f"train.steps={steps}", *overrides])
    return closing(Tracker(config, resume_step, **options))


def metrics(step: int, **changes: float) -> dict:
    """Return the metrics of a healthy step. In a key of `changes` two underscores stand for the slash."""
    line = {
        "step": step, "wall_time": float(step), "reward/mean": 0.4 + 0.001 * step, "reward/std": 0.3,
        "reward/zero_std_groups": 0.1, "reward/timeouts": 0, "reward/no_answer": 3, "reward/decided": 64,
        "policy/entropy": 0.5, "completion/truncated": 0.02, "schedule/n": 8, "schedule/k": 0.05,
        "throughput/tokens_per_s": 1234.0,
    }  # fmt: skip
    return line | {key.replace("__", "/"): value for key, value in changes.items()}


def sample(step: int, response: str = r"so \boxed{7}") -> dict:
    """Return a sample record whose gold answer is 7."""
    return {"step": step, "problem": "3+4=", "answer": "7", "response": response, "reward": 1.0}
