"""D3S and GRPO on SmolLM2-135M-Instruct and Gemma 3 270M, within minutes of one GPU, by the transformers engine.

    python -m d3s.real runs/base/smollm2-135m-instruct  # its parts are run if it is there
    python -m research.gemma runs/base/gemma3-270m      # likewise
    python -m research.card --jobs 12 --seconds 540     # again for what is left; --parts first: that alone
    python -m research.card --parts methods --jobs 2 --engine vllm  # on two CPU cores

The task is that of `make demo-real`, in another shape (research/words.yaml). Runs share the card, so their seconds
are those of a shared card. Each finished run adds rows to the CSV files of --output, from which
research/card_tables.py makes tables; research/card_rows.py has the rows. The parts, of which a later one begins while
runs of an earlier one go on:

    search       one seed, validation problems: learning rates and shapes of GRPO and D3S; the best ones go to `test`
    test         new seeds, test problems: GRPO and D3S as chosen, and rows that differ from D3S in one thing
    long         responses of about 60 tokens, by another warm-up
    sort search  another task, sorting numbers: a smaller search
    sort         new seeds, test problems: GRPO and D3S as chosen, then other methods
    remedy       a shape that loses its entropy, and what the warning names against it
    gemma search, gemma: sorting by Gemma 3 270M, whose head is 63 % of its work
    first        the first three steps of sorting at rates that are too high
    methods      the word problems by other methods, in the shape of research/words.yaml
    budgets      GRPO with groups of 4, 8 and 16, by a quarter of the steps and by all of them
    adapters search, adapters: LoRA in the shape of `make demo-real`, on two CPU cores
    adapters K search, adapters K: in that shape, the paper's K and random tokens
    200, 60 and 15 tokens: the same two by the length of responses, all weights, 64 responses a step, on two CPU cores
    gemma tokens: the same two in sorting by Gemma 3 270M, likewise

docs/data/card also has the part `earlier`, the test of commit 5e2d3fc, before ten runs were added to the search.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ROOT
from d3s.common import exit_code
from research import card_records, card_tasks
from research.card_records import choose
from research.card_rows import (
    COMMON,
    CONSTANT,
    FAMILIES,
    FIRST,
    GRPO,
    HALF_RATE,
    LENGTHS,
    MODELS,
    OF_PART,
    PAPER,
    PAPER_RANDOM,
    PAPER_ROW,
    PARTS,
    RANDOM_ROW,
    REMEDIES,
    ROUNDED,
    SEARCH_OF,
    SEARCHED,
    SEARCHES,
    groups,
    means,
    other_rows,
)


@dataclass(frozen=True)
class Run:
    """One training: its part of the experiment, row, arguments, learning rate and seed."""

    part: str
    row: str
    arguments: tuple[str, ...] = field(repr=False)
    rate: float
    seed: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The first columns of its rows."""
        return self.part, self.row, f"{self.rate:g}", str(self.seed)

    def folder(self, output: Path) -> Path:
        """Its run directory."""
        return output / "-".join("".join(c if c.isalnum() or c in ".-" else "" for c in text) for text in self.key)

    def command(self, output: Path) -> list[str]:
        """Its configurations and overrides of train.py."""
        steps, every, split, _ = PARTS[self.part]
        evaluated = (f"eval.split={split}", f"eval.every={every}")
        model = MODELS.get(self.part, "warmup")
        shared = (*COMMON, *evaluated, f"model.name={output / model / 'model'}", f"optim.learning_rate={self.rate:g}")
        if model in ("sorting", "gemma"):
            shared += (card_tasks.SORT_LENGTH, f"data.path={output}/sorting-train.jsonl")
            shared += (f'eval.data=["{output}/sorting-{split}.jsonl"]',)
        own = (f"train.seed={self.seed}", f"train.steps={steps}", f"train.output_dir={self.folder(output)}")
        return ["research/words.yaml", *shared, *OF_PART.get(self.part, ()), *self.arguments, *own]


def start(run: Run, output: Path, engine: str) -> subprocess.Popen:
    """Start train.py for a run."""
    command = [sys.executable, "train.py", "--config", *run.command(output), f"rollout.engine={engine}"]
    with open(f"{run.folder(output)}.log", "w") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})


def searched() -> list[Run]:
    """The runs of all searches."""
    return [
        Run(part, row, arguments, rate, seed)
        for part, rows in SEARCHES.items()
        for row, (arguments, rates) in rows.items()
        for rate in rates
        for seed in PARTS[part][3]
    ]


def best(output: Path, part: str) -> dict[str, tuple[tuple[str, ...], float]]:
    """The chosen GRPO and D3S of a part: row -> arguments, rate."""
    chosen = (choose(output, family, SEARCH_OF[part]) for family in FAMILIES)
    return {row: (SEARCHES[SEARCH_OF[part]][row][0], rate) for row, rate in chosen}


def tested(output: Path) -> list[Run]:
    """The chosen GRPO and D3S on test problems, and D3S with the means of its N and K; all rows of a seed together."""
    rows = best(output, "test")
    *_, (row, (arguments, rate)) = rows.items()
    return of_seeds("test", rows | {f"{row}, {CONSTANT}": (means(arguments), rate)})


def paper_k(output: Path, part: str) -> list[Run]:
    """D3S with the paper's K on test problems, and the same with random tokens, at the same rate."""
    rate = card_records.best_rate(output, PAPER, SEARCH_OF[part])
    return of_seeds(part, {PAPER: (PAPER_ROW, rate), PAPER_RANDOM: (RANDOM_ROW, rate)})


def sort_rows(output: Path) -> list[Run]:
    """Sorting by other methods than the chosen GRPO and D3S."""
    return of_seeds("sort", other_rows(*best(output, "sort").values()))


def methods() -> list[Run]:
    """The runs of the part `methods`, in the shape and at the rate of research/words.yaml."""
    rows = {row: (SEARCHED[row][0], 2e-5) for row in ("GRPO", "D3S, K 50 to 100 %")}
    rounded = {f"{row}, bfloat16": ((*args, *ROUNDED), rate) for row, (args, rate) in rows.items()}
    return of_seeds("methods", rows | rounded | other_rows(*rows.values()))


def budgets() -> list[Run]:
    """The runs of the part `budgets`: 128 responses a step, the rate of research/words.yaml."""
    return of_seeds("budgets", {f"GRPO, G = {size}": ((*GRPO, *groups(size, 128)), 2e-5) for size in (4, 8, 16)})


def of_seeds(part: str, rows: dict[str, tuple[tuple[str, ...], float]]) -> list[Run]:
    """The runs of a part, all rows of a seed together."""
    return [Run(part, row, args, rate, seed) for seed in PARTS[part][3] for row, (args, rate) in rows.items()]


def by_length() -> list[Run]:
    """The runs with long responses; those of about 200, 60 and 15 tokens in small steps, and of Gemma."""
    rows = {PAPER: (PAPER_ROW, 1e-5), PAPER_RANDOM: (RANDOM_ROW, 1e-5)}
    small = [run for part in LENGTHS for run in of_seeds(part, rows)]
    gemma = of_seeds("gemma tokens", {row: (arguments, 4e-6) for row, (arguments, _) in rows.items()})
    return of_seeds("long", {"GRPO": (GRPO, 1e-5)} | rows) + small + gemma


def remedies() -> list[Run]:
    """The runs of the part `remedy`."""
    rates = {HALF_RATE: 1e-5}
    return of_seeds("remedy", {row: (args, rates.get(row, 2e-5)) for row, args in REMEDIES.items()})


def first() -> list[Run]:
    """The runs of the part `first`."""
    rows, rates = FIRST
    return [
        Run("first", row, SEARCHED[row][0], rate, seed) for rate in rates for seed in PARTS["first"][3] for row in rows
    ]


def train(output: Path, parts: set[str], jobs: int, seconds: float, engine: str) -> None:
    """Train what is missing of `parts`, `jobs` runs at the same time; what is not done after `seconds` is dropped.

    A run that fails is tried again beside one run less, as the memory of a card has no other limit. Three failures
    before the first success end it.
    """
    begin, done, running, failed = time.monotonic(), card_records.finished(output), {}, []
    search_left = {run.key for run in searched()} - done
    # next, and when all else is begun
    after = {
        "search": lambda: (tested(output), paper_k(output, "test")),
        "sort search": lambda: (of_seeds("sort", best(output, "sort")), sort_rows(output)),
        "gemma search": lambda: (of_seeds("gemma", best(output, "gemma")), paper_k(output, "gemma")),
        "adapters search": lambda: (of_seeds("adapters", best(output, "adapters")), []),
        "adapters K search": lambda: (paper_k(output, "adapters K"), []),
    }
    after = {part: runs for part, runs in after.items() if part in parts}
    waiting = [*searched(), *by_length(), *remedies(), *first(), *methods(), *budgets()]
    waiting = [run for run in waiting if run.part in parts and run.key not in done]
    while waiting or running or after:
        for part in [part for part in after if all(key[0] != part for key in search_left)]:
            chosen, others = after.pop(part)()
            print("chosen:", *dict.fromkeys((run.row, run.rate) for run in chosen), flush=True)
            waiting = [run for run in dict.fromkeys([*chosen, *waiting, *others]) if run.key not in done]
        now = time.monotonic() - begin
        if now > seconds or (len(failed) > 2 and not done):
            break
        while waiting and len(running) < jobs:
            run = waiting.pop(0)
            running[run] = start(run, output, engine), now
        for run, (process, started) in list(running.items()):
            if process.poll() is None:
                continue
            del running[run]
            print(f"{now:.0f} s: {run}, exit code {process.returncode} after {now - started:.0f} s", flush=True)
            if process.returncode in (0, 3):  # 3: nothing was trained
                card_records.record(run.key, run.folder(output), output)
                done.add(run.key)
            else:
                print(Path(f"{run.folder(output)}.log").read_text()[-1500:], flush=True)
                jobs = max(1, jobs - 1)
                if run not in failed:
                    waiting.insert(0, run)
                failed.append(run)
            if run not in waiting:
                search_left.discard(run.key)
            shutil.rmtree(run.folder(output), ignore_errors=True)
        time.sleep(0.2)
    for process, _ in running.values():
        process.kill()
    print(f"{len(running)} runs stopped, {len(waiting)} not begun", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=12, help="runs at the same time")
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit; unfinished runs are dropped")
    searches = [part for part in PARTS if part not in SEARCH_OF]
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=searches,
        default=[part for part in searches if not card_records.on_cores(part)],
        help="a search is followed by its test",
    )
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers", help="vllm on CPU cores")
    parser.add_argument("--output", type=Path, default=Path("runs/card"))
    args = parser.parse_args()
    output = args.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    models = {part: MODELS.get(part, "warmup") for part in args.parts}
    found = card_tasks.warm_up(output, set(models.values()))
    parts = {part for part, model in models.items() if model in found}
    train(output, parts, args.jobs, args.seconds, args.engine)


if __name__ == "__main__":
    sys.exit(exit_code(main))
