"""Test problems of precedence that no earlier experiment has shown: those after the first 256.

Countdown has 350 test problems. The last of them are drawn rarely, and these are hard: the base model solves hardly
any. So countdown is evaluated on the first 256, by which no learning rate or clip is chosen.
"""

import json
from functools import lru_cache
from pathlib import Path

from benchmarks.harness import ROOT
from d3s.common import write_atomically
from d3s.data.problems import HELD_OUT_SIZE
from d3s.data.synthetic import TASKS

PATH = Path("runs/base/fresh/precedence.jsonl")  # below the repository, the working directory of every run


def overrides(task: str) -> tuple[str, ...]:
    """What selects the test problems of a task."""
    if task == "precedence":
        return (f"eval.data=[{ensure()}]",)
    return f"eval.data=[synthetic:{task}]", "eval.split=test"


@lru_cache(None)
def ensure() -> Path:
    """The file with 256 fresh problems of precedence, created if missing."""
    problems = TASKS["precedence"].draw("test", 2 * HELD_OUT_SIZE, 0)[HELD_OUT_SIZE:]
    lines = [json.dumps({"problem": text, "answer": answer, "level": level}) for text, answer, level in problems]
    content = "".join(f"{line}\n" for line in lines).encode()
    path = ROOT / PATH
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return PATH
