"""Held-out problems of the synthetic tasks that no earlier experiment has shown: those after the first 256 drawn."""

import json
from functools import lru_cache
from itertools import chain
from pathlib import Path

from benchmarks.harness import ROOT
from d3s.common import write_atomically
from d3s.data.problems import HELD_OUT_SIZE
from d3s.data.synthetic import TASKS

FOLDER = Path("runs/base/fresh")  # below the repository, whose root is the working directory of every run
DRAWN = {  # by task and split; countdown has few more
    "precedence": {"test": 512},
    "countdown": {"test": 350, "validation": 310},
}


@lru_cache(None)
def ensure(task: str) -> Path:
    """The file with the fresh problems of a task, 256 of precedence and 148 of countdown; created if missing."""
    path = FOLDER / f"{task}.jsonl"
    drawn = (TASKS[task].draw(split, count, 0)[HELD_OUT_SIZE:] for split, count in DRAWN[task].items())
    lines = [json.dumps({"problem": text, "answer": answer, "level": level}) for text, answer, level in chain(*drawn)]
    content = "".join(f"{line}\n" for line in lines).encode()
    if not (ROOT / path).exists() or (ROOT / path).read_bytes() != content:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(ROOT / path, content)
    return path
