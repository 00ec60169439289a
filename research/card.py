"""D3S and GRPO on SmolLM2-135M-Instruct and Gemma 3 270M, within minutes of one GPU, by the transformers engine.

    python -m d3s.real runs/base/smollm2-135m-instruct  # its parts are run if it is there
    python -m research.gemma runs/base/gemma3-270m      # likewise
    python -m research.card --jobs 12 --seconds 540     # again for what is left; --parts first: that alone
    python -m research.card --parts methods --jobs 2 --engine vllm  # on two CPU cores

The task is that of `make demo-real`, in another shape (research/words.yaml). Runs share the card, so their seconds
are those of a shared card. Each finished run adds rows to the CSV files of --output, from which
research/card_tables.py makes tables. The parts, of which a later one begins while runs of an earlier one go on:

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

docs/data/card also has the part `earlier`, the test of commit 5e2d3fc, before ten runs were added to the search.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ROOT
from d3s.common import exit_code
from research import card_records, card_tasks
from research.card_records import choose

GRPO = ("configs/method/grpo.yaml",)


def growing(k_init: float, k_final: float, n_init: int = 2, n_final: int = 8) -> tuple[str, ...]:
    """N and K of D3S over a run; equal ends make them constant."""
    n = f"schedule.n_init={n_init}", f"schedule.n_final={n_final}"
    return *n, f"schedule.k_init={k_init:g}", f"schedule.k_final={k_final:g}"


def groups(size: int, responses: int = 256) -> tuple[str, ...]:
    """`size` responses to a problem, `responses` in a step."""
    return f"rollout.num_generations={size}", f"train.prompts_per_step={responses // size}"


FOUR_UPDATES, ONE_UPDATE = ("optim.num_minibatches=4",), ("optim.num_minibatches=1",)
PAPER_K, MIDDLE_K, LARGE_K = (0.05, 0.2), (0.2, 0.5), (0.5, 1.0)
# Row -> arguments, learning rates of the search.
SEARCHED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "GRPO": (GRPO, (2.5e-6, 5e-6, 1e-5, 2e-5)),
    "GRPO, G = 4": ((*GRPO, *groups(4)), (5e-6, 1e-5, 2e-5)),
    "GRPO, G = 4, 4 updates": ((*GRPO, *groups(4), *FOUR_UPDATES), (1e-5, 2e-5)),
    "GRPO, G = 16": ((*GRPO, *groups(16)), (5e-6, 1e-5)),
    "GRPO, 4 updates": ((*GRPO, *FOUR_UPDATES), (5e-6, 1e-5, 2e-5)),
    "GRPO, 8 updates": ((*GRPO, "optim.num_minibatches=8"), (1e-5,)),
    "GRPO, 1 update": ((*GRPO, *ONE_UPDATE), (1e-5, 2e-5)),
    "D3S, K 5 to 20 %": (growing(*PAPER_K), (5e-6, 1e-5, 2e-5)),
    "D3S, K 20 to 50 %": (growing(*MIDDLE_K), (5e-6, 1e-5, 2e-5)),
    "D3S, K 50 to 100 %": (growing(*LARGE_K), (5e-6, 1e-5, 2e-5, 4e-5)),
    "D3S, K 50 to 100 %, 4 updates": ((*growing(*LARGE_K), *FOUR_UPDATES), (1e-5, 2e-5)),
    "D3S, K 50 to 100 %, G = 4": ((*growing(*LARGE_K, 2, 4), *groups(4)), (2e-5,)),
    "D3S, K 50 to 100 %, G = 4, 4 updates": ((*growing(*LARGE_K, 2, 4), *groups(4), *FOUR_UPDATES), (1e-5,)),
    "D3S, K 20 to 50 %, 4 updates": ((*growing(*MIDDLE_K), *FOUR_UPDATES), (5e-6, 1e-5)),
    "D3S, K 20 to 50 %, G = 16": ((*growing(*MIDDLE_K, 4, 16), *groups(16)), (1e-5,)),
}
FAMILIES = ("GRPO", "D3S")
# Row -> learning rates of the search on sorting.
SORTED: dict[str, tuple[float, ...]] = {
    "GRPO": (1e-5, 2e-5),
    "GRPO, 4 updates": (1e-5, 2e-5),
    "GRPO, G = 4, 4 updates": (1e-5, 2e-5),
    "D3S, K 5 to 20 %": (2e-5,),
    "D3S, K 20 to 50 %": (2e-5,),
    "D3S, K 50 to 100 %": (1e-5, 2e-5),
    "D3S, K 50 to 100 %, 4 updates": (1e-5,),
    "D3S, K 50 to 100 %, G = 4, 4 updates": (1e-5,),
}
# Row -> learning rates of the search with Gemma 3 270M, which one step at 2e-5 destroys.
GEMMA: dict[str, tuple[float, ...]] = {
    "GRPO": (2e-6, 4e-6),
    "GRPO, G = 4, 4 updates": (1e-6, 2e-6, 4e-6),
    "D3S, K 5 to 20 %": (1e-6, 2e-6, 4e-6),
    "D3S, K 50 to 100 %": (2e-6, 4e-6),
}
# Row -> arguments, learning rates of the search with adapters.
ADAPTED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "GRPO": (GRPO, (1e-4, 2e-4, 4e-4)),
    "GRPO, G = 4, 4 updates": ((*GRPO, *groups(4, 128), *FOUR_UPDATES), (1e-4, 2e-4, 4e-4)),
    "D3S, N 2 to 4, K 50 to 100 %": (growing(*LARGE_K, 2, 4), (1e-4, 2e-4, 4e-4)),
    "D3S, N 2 to 4, K 50 to 100 %, 4 updates": ((*growing(*LARGE_K, 2, 4), *FOUR_UPDATES), (1e-4, 2e-4)),
    "D3S, N 2 to 4, K 50 to 100 %, G = 4, 4 updates": (
        (*growing(*LARGE_K, 2, 4), *groups(4, 128), *FOUR_UPDATES),
        (1e-4, 2e-4, 4e-4),
    ),
}
SEARCHES = {
    "search": SEARCHED,
    "sort search": {row: (SEARCHED[row][0], rates) for row, rates in SORTED.items()},
    "gemma search": {row: (SEARCHED[row][0], rates) for row, rates in GEMMA.items()},
    "adapters search": ADAPTED,
    "adapters K search": {"D3S, K 5 to 20 %": (growing(*PAPER_K), (1e-4, 2e-4, 4e-4, 8e-4))},
}
PAPER, RANDOM, CONSTANT = "D3S, K 5 to 20 %", "random tokens", "constant N and K"
HALF_RATE = "half the rate"
PAPER_RANDOM = f"{PAPER}, {RANDOM}"
COLLAPSING = growing(0.2, 0.2, 4, 4)
REMEDIES = {
    "D3S, N = 4, K = 20 %": COLLAPSING,
    "K = 100 %": growing(1, 1, 4, 4),
    "N = 8": growing(0.2, 0.2, 8, 8),
    HALF_RATE: COLLAPSING,
    "epsilon_high 0.28": (*COLLAPSING, "loss.epsilon_high=0.28"),
    "D3S-I": ("configs/method/d3s_i.yaml", *COLLAPSING),
    RANDOM: (*COLLAPSING, "selector.tokens=random"),
    "GRPO": GRPO,
}
ROUNDED = "model.dtype=bfloat16", "loss.old_logprobs=actor", "loss.engine_correction=truncate"
FIRST = ("GRPO, 4 updates", PAPER), (2e-5, 4e-5, 8e-5, 1.6e-4)  # rows, learning rates


@dataclass(frozen=True)
class Claim:
    """`row` has a higher Pass@1 than `reference` at an equal budget of `axis`, over the seeds of a part."""

    text: str
    row: str
    reference: str
    axis: str  # steps, or estimated seconds of two cores; the budget is what the cheaper of both spent in the mean
    part: str = "test"


# Written down before the runs; Holm's method over these. BEST: the row that the search chose of a family.
BEST = "best "
BEST_ROWS = BEST + "D3S", BEST + "GRPO"
CLAIMS = (
    Claim("D3S beats GRPO, each in its best shape, in equal seconds", *BEST_ROWS, "seconds"),
    Claim("D3S beats GRPO, each in its best shape, in as many steps", *BEST_ROWS, "steps"),
    Claim("N and K that grow beat their means throughout", BEST + "D3S", f"{BEST}D3S, {CONSTANT}", "seconds"),
    Claim("Tokens by |A| x H beat random tokens at the paper's K", PAPER, PAPER_RANDOM, "steps"),
    Claim("The same at responses of about 60 tokens", PAPER, PAPER_RANDOM, "steps", "long"),
    # Written down when the results of the others were known, but for that of the paper's K.
    Claim("Sorting: D3S beats GRPO, each in its best shape, in equal seconds", *BEST_ROWS, "seconds", "sort"),
    # Written down when all others were known.
    Claim(
        "Gemma 3 270M, sorting: D3S beats GRPO, each in its best shape, in equal seconds",
        *BEST_ROWS,
        "seconds",
        "gemma",
    ),
    Claim("Gemma 3 270M: tokens by |A| x H beat random tokens at the paper's K", PAPER, PAPER_RANDOM, "steps", "gemma"),
    # Written down when all but that of Gemma's tokens were known.
    Claim("Adapters: D3S beats GRPO, each in its best shape, in equal seconds", *BEST_ROWS, "seconds", "adapters"),
    # Written down when all others were known; the rate is the best of four by the last Pass@1 on validation problems.
    Claim(
        "Adapters: tokens by |A| x H beat random tokens at the paper's K", PAPER, PAPER_RANDOM, "steps", "adapters K"
    ),
)
# Part -> steps, steps between evaluations, split, seeds
PARTS = {
    "search": (24, 8, "validation", (1000,)),
    "test": (40, 10, "test", tuple(range(1, 9))),
    "long": (16, 8, "test", (1, 2, 3)),
    "sort search": (20, 10, "validation", (1000,)),
    "sort": (30, 10, "test", tuple(range(1, 9))),
    "remedy": (30, 15, "test", (1, 2, 3)),
    "gemma search": (20, 10, "validation", (1000,)),
    "gemma": (30, 10, "test", tuple(range(1, 9))),
    "first": (3, 3, "test", (1, 2)),
    "methods": (16, 8, "test", (1, 2, 3)),
    "budgets": (16, 4, "test", (1, 2, 3)),
    "adapters search": (20, 10, "validation", (1000,)),
    "adapters": (20, 10, "test", tuple(range(11, 19))),  # the recipe was tuned with lower seeds
    "adapters K search": (20, 10, "validation", (1000,)),
    "adapters K": (20, 10, "test", tuple(range(21, 29))),
}
COMMON = (
    "rollout.max_num_seqs=512",
    "train.prompts_per_step=32",
    "train.max_tokens_per_microbatch=1024",  # so that twelve runs fit
    "eval.limit=128",
    "reward.workers=4",
)
OF_PART = {
    "long": ("rollout.max_completion_length=128", "rollout.max_num_seqs=256"),
    "remedy": ("train.prompts_per_step=16",),
    "gemma search": ("rollout.max_num_seqs=256",),
    "gemma": ("rollout.max_num_seqs=256",),
    "first": ("train.prompts_per_step=16", "eval.limit=8"),
    "methods": ("train.prompts_per_step=16", "train.max_tokens_per_microbatch=null"),
    "budgets": ("train.max_tokens_per_microbatch=null",),
}
# Those of configs/smollm2.yaml, and of its warm-up.
ADAPTERS = "adapters search", "adapters", "adapters K search", "adapters K"
OF_PART |= dict.fromkeys(
    ADAPTERS,
    (
        "lora.rank=16",
        'data.path=["synthetic:words", {path: "synthetic:chains", weight: 0.4}]',
        "rollout.max_completion_length=28",
        "train.prompts_per_step=16",
        "train.max_tokens_per_microbatch=null",
    ),
)
# Part -> the model that it begins with, of other parts: warmup
MODELS = {"long": "spoken"} | dict.fromkeys(("sort search", "sort", "first"), "sorting")
MODELS |= dict.fromkeys(("gemma search", "gemma"), "gemma") | dict.fromkeys(ADAPTERS, "mixed")
# The part whose best rows a part runs.
SEARCH_OF = {"test": "search"} | {part: f"{part} search" for part in ("sort", "gemma", "adapters", "adapters K")}


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
    """D3S with the paper's K on test problems, and the same with random tokens."""
    arguments, rate = SEARCHED[PAPER][0], card_records.best_rate(output, PAPER, SEARCH_OF[part])
    rows = {PAPER: (arguments, rate), PAPER_RANDOM: ((*arguments, "selector.tokens=random"), rate)}
    return of_seeds(part, rows)


def other_rows(
    grpo: tuple[tuple[str, ...], float], d3s: tuple[tuple[str, ...], float]
) -> dict[str, tuple[tuple[str, ...], float]]:
    """Methods that select otherwise, each in the shape and at the rate of a GRPO or a D3S (arguments, rate)."""
    (grpo, grpo_rate), (d3s, rate) = grpo, d3s
    all_tokens = "schedule.k_init=1", "schedule.k_final=1"
    all_rollouts = "schedule.n_init=null", "schedule.n_final=null"
    constant = (*means(d3s), *all_tokens)
    return {
        RANDOM: ((*d3s, "selector.tokens=random"), rate),
        "tokens alone": ((*d3s, *all_rollouts), rate),
        "rollouts alone": ((*d3s, *all_tokens), rate),
        "D3S-I": (("configs/method/d3s_i.yaml", *d3s), rate),
        "PODS": (("configs/method/pods.yaml", *constant), rate),
        "D1S": (("configs/method/d1s.yaml", *constant), rate),
        "CPPO": (("configs/method/cppo.yaml", *constant), rate),
        "Dr. GRPO": (("configs/method/dr_grpo.yaml", *grpo[len(GRPO) :]), grpo_rate),
    }


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


def means(arguments: Iterable[str]) -> tuple[str, ...]:
    """The arguments with N and K constant at the means of their ends."""
    values = dict(argument.split("=") for argument in arguments)
    for name in ("n", "k"):
        ends = [float(values.pop(f"schedule.{name}_{end}")) for end in ("init", "final")]
        values |= {f"schedule.{name}_{end}": f"{statistics.mean(ends):g}" for end in ("init", "final")}
    return tuple(f"{key}={value}" for key, value in values.items())


def long() -> list[Run]:
    """The runs with long responses."""
    random_k = (*growing(*PAPER_K), "selector.tokens=random")
    rows = {"GRPO": GRPO, PAPER: growing(*PAPER_K), PAPER_RANDOM: random_k}
    return of_seeds("long", {row: (args, 1e-5) for row, args in rows.items()})


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
    waiting = [*searched(), *long(), *remedies(), *first(), *methods(), *budgets()]
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
    models = card_tasks.warm_up(output)
    parts = {part for part in args.parts if MODELS.get(part, "warmup") in models}
    train(output, parts, args.jobs, args.seconds, args.engine)


if __name__ == "__main__":
    sys.exit(exit_code(main))
