"""What makes D3S win at equal time? Its options one at a time, and GRPO's, in the seconds of GRPO's 48 steps.

    python -m benchmarks.search [--processes 2]      (make search)

Validation problems, one base model, seeds that benchmarks/ablation.py does not use: what is chosen here is compared
there, on test problems. The steps of each row were chosen so that its seconds come near GRPO's; the table says how
near. A second table has what was best in twice the time. They go between the marks in docs/results.md.
"""

import os

from benchmarks.ablation import BASES, D3S, DOCS, DROPPED, FIXED, GRPO, arguments, difference, show, write_between_marks
from benchmarks.experiments import Cell, curve, final, record, save, train_all
from benchmarks.measure import RESULTS, machine, markdown
from d3s.runs import Run, estimate
from d3s.tiny import ensure_base

FIRST_SEED = 100
COMMON = ("eval.every=0", "eval.limit=256")
RATE = "optim.learning_rate=2e-4"  # what the ablation chose for both


def d3s(name: str, steps: int, *words: str) -> Cell:
    return Cell(f"D3S: {name}", (D3S, RATE, f"train.steps={steps}", *words))


def grpo(name: str, steps: int, *words: str) -> Cell:
    return Cell(f"GRPO: {name}", (GRPO, RATE, f"train.steps={steps}", *words))


CELLS = [
    grpo("as it is", 48),
    grpo("token mean", 48, "loss.normalizer=selected"),
    grpo("zero advantages dropped", 50, DROPPED),
    grpo("two passes", 34, "optim.num_iterations=2"),
    grpo("four mini-batches", 47, "optim.num_minibatches=4"),
    grpo("half the problems a step", 80, "train.prompts_per_step=4"),
    grpo("learning rate 3e-4", 48, "optim.learning_rate=3e-4"),
    d3s("as it is", 65),
    d3s("learning rate 3e-4", 65, "optim.learning_rate=3e-4"),
    d3s("zero advantages dropped", 66, DROPPED),
    d3s("denominator: all tokens", 65, "loss.normalizer=all"),
    d3s("denominator: rollout by rollout", 65, "loss.normalizer=sequence"),
    d3s("denominator: constant", 65, "loss.normalizer=constant"),
    d3s("half across the batch, half within groups", 65, "selector.cross_share=0.5"),
    d3s("rewards divided by the batch's deviation", 65, "reward.scale_rewards=batch"),
    d3s("K from 10 to 40 %", 63, "schedule.k_init=0.1", "schedule.k_final=0.4"),
    d3s("K = 100 %", 60, "schedule.k_init=1", "schedule.k_final=1"),
    d3s("N from 4 to 8", 68, "schedule.n_final=8"),
    d3s("N from 8 to 16", 62, "schedule.n_init=8"),
    d3s("N = 8, K = 20 %", 66, *FIXED),
    d3s("two passes", 53, "optim.num_iterations=2"),
    d3s("four mini-batches", 62, "optim.num_minibatches=4"),
    d3s("half the problems a step", 105, "train.prompts_per_step=4"),
    d3s("N = 8, K = 10 %", 67, *FIXED, "schedule.k_init=0.1"),
    d3s("N = 8, K = 50 %", 64, *FIXED, "schedule.k_init=0.5"),
    d3s("N = 8, K = 100 %", 61, *FIXED, "schedule.k_init=1"),
    d3s("N = 6, K = 20 %", 69, *FIXED, "schedule.n_init=6"),
    d3s("N = 12, K = 20 %", 60, *FIXED, "schedule.n_init=12"),
    d3s("N = 8, K = 20 %, zero advantages dropped", 67, *FIXED, DROPPED),
    d3s("N = 8, K = 20 %, zeros dropped, four mini-batches", 64, *FIXED, DROPPED, "optim.num_minibatches=4"),
    d3s("G = 32, half the problems", 78, "rollout.num_generations=32", "train.prompts_per_step=4"),
    d3s("G = 32, the same N", 46, "rollout.num_generations=32"),
]


LONGER = [
    grpo("twice as long", 96),
    d3s("twice as long", 130),
    d3s("N = 8, K = 20 %, twice as long", 132, *FIXED),
    Cell("D2S: twice as long", ("configs/method/d2s.yaml", RATE, "train.steps=150")),
]
TABLES = [("In the seconds of GRPO's 48 steps", CELLS, 3), ("In twice the time", LONGER, 5)]  # rows and seeds


def table(of: dict[str, list[Run]]) -> str:
    """Ends and seconds of each row as Markdown; differences to the first, paired by seed."""
    reference, *_ = of.values()
    lines = []
    for name, own in of.items():
        seconds = sum(curve(run, "pass@1", "seconds")[0][-1] for run in own) / len(own)
        ends = [show(estimate([final(run, metric) for run in own])) for metric in ("pass@1", "pass@8")]
        less = "–" if own is reference else difference(own, reference, "pass@1")
        lines.append([name, str(own[0].last_step), f"{seconds:.0f}", *ends, less])
    return markdown(["", "steps", "seconds", "Pass@1", "Pass@8", "Pass@1 over the first row"], lines)


def main() -> None:
    args = arguments(__doc__, seeds=None).parse_args()
    os.chdir(DOCS.parent)
    ensure_base(BASES[0])
    runs, text = {}, f"On {machine()['cpu']}.\n"
    for title, cells, count in TABLES:
        seeds = range(FIRST_SEED, FIRST_SEED + count)
        tried = [cell.also(*COMMON) for cell in cells]
        wanted = [(cell, seed) for seed in seeds for cell in tried]
        runs |= train_all(wanted, args.folder / "search", args.processes)
        of = {cell.name: [runs[cell, seed] for seed in seeds] for cell in tried}
        text += f"\n**{title}** ({count} seeds a row)\n\n{table(of)}\n"
        write_between_marks(DOCS / "results.md", "search", text)
    save(RESULTS / "search.json", {"machine": machine(), "runs": record(runs)})


if __name__ == "__main__":
    main()
