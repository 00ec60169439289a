"""The paper's ablation in miniature on the embedded tasks, with seeds, base models and intervals.

    python -m benchmarks.ablation [--seeds 5] [--processes 2]      (make ablation)

First every method is swept over the same learning rates on validation problems (one seed of its own, one base model);
then it is run with its best rate, evaluated on test problems. Differences are paired: the same seed (hence the same
problems in the same order) and the same base model as the method compared with. Started again, it goes on where it was
cut. The tables go between the marks in docs/results.md and README.md, the picture to docs/ablation.png.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drift import kl_to_base
from benchmarks.experiments import AXES, Cell, at_equal, curve, final, record, save, train_all
from benchmarks.measure import RESULTS, ROOT, machine, markdown
from d3s.runs import Estimate, Run, estimate
from d3s.tiny import WARMUP, ensure_base

DOCS = ROOT / "docs"
RATES = (1e-4, 2e-4, 4e-4)
SWEEP_SEED = 100  # not one of the seeds that are compared
BASES = ("tiny:precedence", "tiny:precedence@1")
D3S, GRPO = "configs/method/d3s.yaml", "configs/method/grpo.yaml"
ALL = ("schedule.n_init=null", "schedule.n_final=null")
SELECTED = (
    "schedule.n_init=4",
    "schedule.n_final=16",
    "schedule.k_init=0.05",
    "schedule.k_final=0.2",
    "loss.normalizer=selected",
)

METHODS = [
    Cell("GRPO", (GRPO,)),
    Cell("GSPO", ("configs/method/gspo.yaml",)),
    Cell("PODS", ("configs/method/pods.yaml",)),
    Cell("D1S", ("configs/method/d1s.yaml",)),
    Cell("D1S-Cross", ("configs/method/d1s_cross.yaml",)),
    Cell("D2S", ("configs/method/d2s.yaml",)),
    Cell("D3S", (D3S,)),
    Cell("D3S-I", ("configs/method/d3s_i.yaml",)),
    Cell("D3S on GSPO", ("configs/method/gspo.yaml", D3S, *SELECTED)),
    Cell("tokens only", (D3S, *ALL)),
    Cell("random rollouts", (D3S, "selector.rollouts=random")),
    Cell("random tokens", (D3S, "selector.tokens=random")),
]

PAIRS = [
    ("D1S-Cross", "D1S"),
    ("D2S", "D1S-Cross"),
    ("D3S", "D2S"),
    ("D3S", "D1S-Cross"),
    ("D3S", "PODS"),
    ("D3S", "D3S-I"),
    ("D3S", "random rollouts"),
    ("D3S", "random tokens"),
    ("D3S on GSPO", "GSPO"),
]


def fixed(name: str, *words: str) -> Cell:
    """D3S with these settings, which do not change over training."""
    return Cell(name, (D3S, "schedule.shape=constant", *words))


@dataclass(frozen=True)
class Study:
    """A further question: the first of its cells is what the others are compared with."""

    title: str
    bases: tuple[str, ...]
    cells: list[tuple[Cell, str]]  # each with the method whose learning rate it takes


NAMED = {method.name: method for method in METHODS}
WIDE = ("rollout.num_generations=32", "train.prompts_per_step=4")  # as many responses as in the other studies
COUNTDOWN = "configs/countdown.yaml"
FIXED = ("schedule.shape=constant", "schedule.n_init=8", "schedule.k_init=0.2")
POOR = "poor"  # stands for the first base model after half of its warm-up


def longer(name: str, steps: int, kind: str = "", *words: str) -> tuple[Cell, str]:
    """A method with more steps, over which its schedules of N, K and the learning rate stretch; settings that have
    changed are named by their kind."""
    called = ", ".join(filter(None, (name, kind, f"{steps} steps")))
    return NAMED[name].also(*words, f"train.steps={steps}").called(called), name


def on_countdown(cell: Cell, method: str) -> tuple[Cell, str]:
    """The same on the second task."""
    return cell.also(COUNTDOWN).called(f"{cell.name}, on countdown"), method


STUDIES = [
    Study(
        "As many steps as fit into GRPO's seconds, every schedule run to its end",
        BASES,
        [
            (NAMED["GRPO"], "GRPO"),
            longer("GRPO", 47, "four mini-batches", "optim.num_minibatches=4"),
            longer("PODS", 69),
            longer("D1S-Cross", 69),
            longer("D3S", 65),
            longer("D3S", 66, "N = 8 and K = 20 % throughout", *FIXED),
        ],
    ),
    Study(
        "Countdown, where many answers are right",
        ("tiny:countdown",),
        [
            *(on_countdown(NAMED[name], name) for name in ("GRPO", "PODS", "D3S", "random rollouts")),
            on_countdown(*longer("PODS", 62)),
            on_countdown(*longer("D3S", 62)),
            on_countdown(*longer("D3S", 62, "N = 8 and K = 20 % throughout", *FIXED)),
        ],
    ),
    Study(
        "The schedule",
        BASES[:1],
        [
            (NAMED["D3S"], "D3S"),
            (fixed("fixed: N = 8, K = 10 %", "schedule.n_init=8", "schedule.k_init=0.1"), "D3S"),
            (fixed("fixed, as many tokens: N = 10, K = 14 %", "schedule.n_init=10", "schedule.k_init=0.14"), "D3S"),
            (Cell("two phases", (D3S, "schedule.shape=step")), "D3S"),
        ],
    ),
    Study(
        "A poorer base model: half of the warm-up",
        (POOR,),
        [(NAMED[name].called(f"{name} on a poor base"), name) for name in ("GRPO", "D3S", "D3S-I")],
    ),
    Study(
        "N of G = 32 responses, K = 10 %",
        BASES[:1],
        [(fixed(f"N = {n}", *WIDE, f"schedule.n_init={n}", "schedule.k_init=0.1"), "D3S") for n in (32, 16, 8, 4)],
    ),
    Study(
        "K at N = G = 16",
        BASES[:1],
        [(fixed(f"K = {k:.0%}", *ALL, f"schedule.k_init={k}"), "tokens only") for k in (1.0, 0.5, 0.2, 0.05)],
    ),
]


def sweep(methods: Sequence[Cell], root: Path, processes: int) -> tuple[dict[str, float], list[list[str]]]:
    """The best rate of every method by Pass@1 on validation problems, and the rows of a table of all.

    The base models are made first: by one process, not by every run that needs them.
    """
    for name in BASES:
        ensure_base(name)
    tries = {(m.name, rate): m.also(f"optim.learning_rate={rate}") for rate in RATES for m in methods}
    runs = train_all([(cell, SWEEP_SEED) for cell in tries.values()], root / "sweep", processes)
    reached = {key: final(runs[cell, SWEEP_SEED], "pass@1") for key, cell in tries.items()}
    best = {m.name: max(RATES, key=lambda rate: reached[m.name, rate]) for m in methods}
    rows = [[m.name, *(f"{100 * reached[m.name, rate]:.1f}" for rate in RATES), f"{best[m.name]:g}"] for m in methods]
    return best, rows


def show(value: Estimate, signed: bool = False, scale: float = 100, digits: int = 1) -> str:
    """With the 95 % interval; in per cent if not told otherwise."""
    mean, *interval = [
        f"{scale * x:{'+' if signed else ''}.{digits}f}" for x in (value.mean, value.low, value.high) if x is not None
    ]
    return f"{mean} ({' to '.join(interval)})" if interval else mean


def compare(own: Sequence[Run], reference: Sequence[Run]) -> list[str]:
    """The columns of a table: Pass@k at the end, cost, and paired differences at equal budgets."""
    seconds, tokens = (sum(curve(r, "pass@1", axis)[0][-1] for r in own) / len(own) for axis in ("seconds", "tokens"))
    generated = sum(run.metrics[-1]["tokens_generated"] for run in own) / len(own)
    cells = [show(estimate([final(run, metric) for run in own])) for metric in ("pass@1", "pass@8")]
    cells += [f"{100 * tokens / generated:.1f}", f"{seconds / own[0].last_step:.2f}"]
    if own is reference:
        return [*cells, *("–" for _ in AXES)]
    return cells + [show(estimate([at_equal(a, b, axis) for a, b in zip(own, reference)]), True) for axis in AXES]


def table(rows: list[tuple[str, Sequence[Run]]]) -> str:
    """A Markdown table whose first row is what the others are compared with; ends are told where steps differ."""
    header = ["", "Pass@1", "Pass@8", "trained", "s/step", *(f"at equal {a}" for a in ("steps", "tokens", "seconds"))]
    lines = [[name, *compare(runs, rows[0][1])] for name, runs in rows]
    if len({runs[0].last_step for _, runs in rows}) > 1:
        header += ["Pass@1 at the end", "Pass@8 at the end"]
        lines[0] += ["–", "–"]
        for line, (_, runs) in zip(lines[1:], rows[1:]):
            line += [difference(runs, rows[0][1], metric) for metric in ("pass@1", "pass@8")]
    return markdown(header, lines)


def difference(own: Sequence[Run], reference: Sequence[Run], metric: str) -> str:
    """Of the last evaluations, paired."""
    return show(estimate([final(a, metric) - final(b, metric) for a, b in zip(own, reference)]), True)


def pairs(rows: dict[str, Sequence[Run]]) -> str:
    """The steps from one method to the next, as a table."""
    lines = []
    for method, other in PAIRS:
        own, reference = rows[method], rows[other]
        seconds = show(estimate([at_equal(a, b, "seconds") for a, b in zip(own, reference)]), True)
        ends = [difference(own, reference, metric) for metric in ("pass@1", "pass@8")]
        lines.append([f"{method} over {other}", ends[0], seconds, ends[1]])
    return markdown(["", "Pass@1 at equal steps", "Pass@1 at equal seconds", "Pass@8 at equal steps"], lines)


def drifts(rows: list[tuple[str, Sequence[Run]]]) -> str:
    """KL to the base model at the end in nats per token, and paired differences to the first row, as a table."""
    values = [(name, [kl_to_base(run.path) for run in runs]) for name, runs in rows]
    reference = values[0][1]
    lines = [
        [
            name,
            show(estimate(own), False, 1, 3),
            show(estimate([a - b for a, b in zip(own, reference)]), True, 1, 3) if own is not reference else "–",
        ]
        for name, own in values
    ]
    return markdown(["", "KL to the base model", f"over {rows[0][0]}"], lines)


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replaces what stands between <!-- NAME --> and <!-- /NAME --> in a Markdown file."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text().partition(begin)
    path.write_text(before + begin + text + end + rest.partition(end)[2])


def draw(rows: list[tuple[str, Sequence[Run]]], path: Path) -> None:
    """Left: differences to the first row at equal steps and seconds. Right: curves against seconds of the steps."""
    import matplotlib
    import numpy as np
    from matplotlib.figure import Figure

    from d3s.figures import INK, MUTED, SERIES, style

    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(11, 4.4), dpi=160, facecolor="white")
        ax = figure.add_axes((0.13, 0.13, 0.36, 0.7))
        others = rows[1:]
        for place, (_, runs) in enumerate(others):
            for axis, colour, shift in (("step", SERIES[0], -0.15), ("seconds", SERIES[1], 0.15)):
                value = estimate([100 * at_equal(a, b, axis) for a, b in zip(runs, rows[0][1])])
                ax.plot([value.low, value.high], [place + shift] * 2, color=colour, linewidth=2)
                ax.plot(value.mean, place + shift, "o", color=colour, markersize=5)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_yticks(range(len(others)), [name for name, _ in others], color=INK)
        ax.invert_yaxis()
        ax.set_xlabel(f"points of Pass@1 above {rows[0][0]}, 95 % interval")
        _title(ax, f"Against {rows[0][0]}", [("at equal steps", SERIES[0]), ("at equal seconds", SERIES[1])])
        ax = figure.add_axes((0.57, 0.13, 0.41, 0.7))
        shown = [row for row in rows if row[0] in ("GRPO", "PODS", "D3S", "random rollouts", "random tokens")]
        for (_, runs), colour in zip(shown, SERIES):
            curves = [curve(run, "pass@1", "seconds") for run in runs]
            grid = np.linspace(0, min(x[-1] for x, _ in curves), 40)
            values = 100 * np.stack([np.interp(grid, x, y) for x, y in curves])
            middle, half = values.mean(0), 1.96 * values.std(0, ddof=1) / len(curves) ** 0.5
            ax.plot(grid, middle, color=colour, linewidth=1.8)
            ax.fill_between(grid, middle - half, middle + half, color=colour, alpha=0.12, linewidth=0)
        ax.set_xlabel("CPU seconds of training steps", color=MUTED)
        _title(ax, "Pass@1 on test problems, %", [(name, colour) for (name, _), colour in zip(shown, SERIES)])
        figure.savefig(path)


def _title(ax, title: str, words: list[tuple[str, str]]) -> None:
    from matplotlib.lines import Line2D

    ax.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=22)
    handles = [Line2D([], [], color=colour, marker="o", linewidth=2, label=word) for word, colour in words]
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=len(words), borderaxespad=0.2)


def arguments(description: str, seeds: int | None = 5) -> argparse.ArgumentParser:
    """The arguments that all experiments on learning share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if seeds:
        parser.add_argument("--seeds", type=int, default=seeds, help="of every method on every base model")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablation")
    return parser


def with_rate(cell: Cell, rate: float) -> Cell:
    """A cell as it is compared: with its rate, on test problems."""
    return cell.also(f"optim.learning_rate={rate}", "eval.split=test")


def main() -> None:
    args = arguments(__doc__).parse_args()
    os.chdir(ROOT)
    rates, swept = sweep(METHODS, args.folder, args.processes)
    ensure_base("tiny:countdown")
    poor = ensure_base(BASES[0], steps=WARMUP["steps"] // 2)
    seeds = range(args.seeds)
    methods = {m.name: [with_rate(m, rates[m.name]).also(f"model.name={base}") for base in BASES] for m in METHODS}
    main_runs = [(cell, seed) for seed in seeds for cells in methods.values() for cell in cells]
    runs = train_all(main_runs, args.folder, args.processes)
    rows = [(name, [runs[cell, seed] for cell in cells for seed in seeds]) for name, cells in methods.items()]
    draw(rows, DOCS / "ablation.png")
    write_between_marks(DOCS.parent / "README.md", "ablation", table(rows) + "\n")
    text = f"{len(BASES)} base models x {args.seeds} seeds a row, on {machine()['cpu']}.\n\n{table(rows)}\n"
    text += f"\nOne method over another:\n\n{pairs(dict(rows))}\n"
    text += f"\nKL to the base model at the end, nats per token (benchmarks/drift.py):\n\n{drifts(rows)}\n"
    header = ["", *(f"{rate:g}" for rate in RATES), "taken"]
    text += f"\nPass@1 on validation problems by learning rate, one run each:\n\n{markdown(header, swept)}\n"
    write_between_marks(DOCS / "results.md", "ablation", text)
    for study in STUDIES:
        bases = [poor if base == POOR else base for base in study.bases]
        cells = {
            cell.name: [with_rate(cell, rates[of]).also(f"model.name={base}") for base in bases]
            for cell, of in study.cells
        }
        wanted = [(cell, seed) for seed in seeds for on_bases in cells.values() for cell in on_bases]
        runs |= train_all(wanted, args.folder, args.processes)
        rows = [(name, [runs[cell, seed] for cell in on_bases for seed in seeds]) for name, on_bases in cells.items()]
        text += f"\n**{study.title}** ({len(rows[0][1])} runs a row)\n\n{table(rows)}\n"
        write_between_marks(DOCS / "results.md", "ablation", text)
    save(RESULTS / "ablation.json", {"machine": machine(), "rates": rates, "runs": record(runs)})


if __name__ == "__main__":
    main()
