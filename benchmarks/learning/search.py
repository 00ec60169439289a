"""Vary the options of D3S and of GRPO one at a time, within the CPU seconds of GRPO's 48 steps.

    python -m benchmarks.learning.search [--processes 2]      (make search)

Uses validation problems, one base model and seeds that benchmarks/learning/ablation.py does not compare: what is chosen
here is compared there, on test problems. The steps of each row are set to bring its seconds within 5 % of GRPO's; where
they miss, the table has the excess instead of a comparison. A second table has twice the time. A restart continues
where the last one stopped. Writes docs/results-tables.md between its `search` marks.
"""

import os

from benchmarks.harness import RESULTS, ROOT
from benchmarks.learning.ablation import argument_parser
from benchmarks.learning.methods import BASES, BY_NAME, CONSTANT
from benchmarks.learning.runs import Cell, provenance, record, save, train_all
from benchmarks.learning.tables import DOCS, results_table, write_between_marks
from d3s.tiny import ensure_base

FIRST_SEED = 100  # the compared seeds start at 0
NO_ZEROS = "selector.drop_zero_advantage=true"
SHARED_OVERRIDES = ("eval.limit=256",)
RATE = "optim.learning_rate=2e-4"


def row(method: str, name: str, steps: int, *overrides: str) -> Cell:
    """A method of the ablation with other settings."""
    return BY_NAME[method].extended(RATE, f"train.steps={steps}", *overrides).renamed(f"{method}: {name}")


CELLS = [
    row("GRPO", "as it is", 48),
    row("GRPO", "token mean", 48, "loss.normalizer=selected"),
    row("GRPO", "zero advantages dropped", 50, NO_ZEROS),
    row("GRPO", "two passes", 34, "optim.num_iterations=2"),
    row("GRPO", "four mini-batches", 47, "optim.num_minibatches=4"),
    row("GRPO", "half the problems a step", 80, "train.prompts_per_step=4"),
    row("GRPO", "learning rate 3e-4", 48, "optim.learning_rate=3e-4"),
    row("D3S", "as it is", 65),
    row("D3S", "learning rate 3e-4", 65, "optim.learning_rate=3e-4"),
    row("D3S", "zero advantages dropped", 66, NO_ZEROS),
    row("D3S", "denominator: all tokens", 65, "loss.normalizer=all"),
    row("D3S", "denominator: rollout by rollout", 65, "loss.normalizer=sequence"),
    row("D3S", "denominator: constant", 65, "loss.normalizer=constant"),
    row("D3S", "half across the batch, half within groups", 65, "selector.cross_share=0.5"),
    row("D3S", "rewards divided by the batch's deviation", 65, "reward.scale_rewards=batch"),
    row("D3S", "K from 10 to 40 %", 63, "schedule.k_init=0.1", "schedule.k_final=0.4"),
    row("D3S", "K = 100 %", 60, "schedule.k_init=1", "schedule.k_final=1"),
    row("D3S", "N from 4 to 8", 68, "schedule.n_final=8"),
    row("D3S", "N from 8 to 16", 62, "schedule.n_init=8"),
    row("D3S", "N = 8, K = 20 %", 66, *CONSTANT),
    row("D3S", "two passes", 53, "optim.num_iterations=2"),
    row("D3S", "four mini-batches", 62, "optim.num_minibatches=4"),
    row("D3S", "half the problems a step", 105, "train.prompts_per_step=4"),
    row("D3S", "N = 8, K = 10 %", 67, *CONSTANT, "schedule.k_init=0.1"),
    row("D3S", "N = 8, K = 50 %", 64, *CONSTANT, "schedule.k_init=0.5"),
    row("D3S", "N = 8, K = 100 %", 61, *CONSTANT, "schedule.k_init=1"),
    row("D3S", "N = 6, K = 20 %", 69, *CONSTANT, "schedule.n_init=6"),
    row("D3S", "N = 12, K = 20 %", 60, *CONSTANT, "schedule.n_init=12"),
    row("D3S", "N = 8, K = 20 %, zero advantages dropped", 67, *CONSTANT, NO_ZEROS),
    row("D3S", "N = 8, K = 20 %, zeros dropped, four mini-batches", 64, *CONSTANT, NO_ZEROS, "optim.num_minibatches=4"),
    row("D3S", "G = 32, half the problems", 78, "rollout.num_generations=32", "train.prompts_per_step=4"),
    row("D3S", "G = 32, the same N", 46, "rollout.num_generations=32"),
]

LONGER = [
    row("GRPO", "twice as long", 96),
    row("D3S", "twice as long", 130),
    row("D3S", "N = 8, K = 20 %, twice as long", 132, *CONSTANT),
    row("D2S", "twice as long", 150),
]
TABLES = [("In the seconds of GRPO's 48 steps", CELLS, 3), ("In twice the time", LONGER, 5)]  # title, rows, seeds


def main() -> None:
    args = argument_parser(__doc__, seeds=None).parse_args()
    os.chdir(ROOT)
    ensure_base(BASES[0])
    runs, folder, text = {}, args.folder / "search", ""
    for title, cells, count in TABLES:
        seeds = range(FIRST_SEED, FIRST_SEED + count)
        cells = [cell.extended(*SHARED_OVERRIDES) for cell in cells]
        runs |= train_all([(cell, seed) for seed in seeds for cell in cells], folder, args.processes)
        rows = [(cell.name, [[runs[cell, seed] for seed in seeds]]) for cell in cells]
        origin = provenance(folder)
        text = text or f"Code at {origin['revision']}, on {origin['cpu']}.\n"
        text += f"\n### {title}\n\n{count} seeds per row.\n\n{results_table(rows)}\n"
        write_between_marks(DOCS / "results-tables.md", "search", text)
    save(RESULTS / "search.json", {"machine": provenance(folder), "runs": record(runs)})


if __name__ == "__main__":
    main()
