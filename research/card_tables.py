"""Tables and the picture of the runs on one card; research/card.py makes the runs."""

import csv
import statistics
from pathlib import Path

from benchmarks.harness import ROOT, markdown

METHODS = ("GRPO", "D3S", "D3S, random tokens")
COLUMNS = {
    "steps.csv": {
        "seconds": "time/step",
        "generate": "time/generate",
        "update": "time/update",
        "reward": "reward/mean",
        "entropy": "policy/entropy",
        "distinct": "completion/distinct",
        "length": "completion/length",
        "tokens_trained": "tokens_trained",
        "flops_share": "selection/flops_share",
    },
    "evaluations.csv": {"pass@1": "pass@1", "pass@8": "pass@8"},
}
MEASURED = ROOT / "docs" / "data" / "h200"  # the runs of docs/results.md
KEYS = ["part", "method", "rate", "seed", "step"]


def read(output: Path, name: str, part: str) -> list[dict]:
    """Rows of one part, with numbers as numbers."""
    with open(output / name, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == part]
    return [{key: value if key in KEYS[:2] else float(value) for key, value in row.items()} for row in rows]


def learning_table(output: Path, part: str, k: int) -> str:
    """Pass@k by step: the mean over seeds, in brackets the lowest and the highest one."""
    rows = read(output, "evaluations.csv", part)
    steps = sorted({row["step"] for row in rows})
    cells = []
    for method, rate in dict.fromkeys((row["method"], row["rate"]) for row in rows):
        line = [f"{method}, {rate:g}" if part == "search" else method]
        for step in steps:
            own = [row for row in rows if (row["method"], row["rate"], row["step"]) == (method, rate, step)]
            values = [100 * row[f"pass@{k}"] for row in own]
            spread = f" ({min(values):.1f}-{max(values):.1f})" if len(values) > 1 else ""
            line.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
        cells.append(line)
    return markdown([f"Pass@{k}, {part}", *(f"step {step:.0f}" for step in steps)], cells)


def summary_table(output: Path, part: str) -> str:
    """The means over seeds for the README: Pass@1 a quarter through and at the end, Pass@8 at the end, tokens."""
    evaluated, steps = read(output, "evaluations.csv", part), read(output, "steps.csv", part)
    _, early, *_, last = sorted({row["step"] for row in evaluated})

    def mean(rows: list[dict], method: str, step: float, column: str) -> float:
        return statistics.mean(row[column] for row in rows if (row["method"], row["step"]) == (method, step))

    cells = []
    for method in dict.fromkeys(row["method"] for row in evaluated):
        levels = [mean(evaluated, method, *at) for at in ((early, "pass@1"), (last, "pass@1"), (last, "pass@8"))]
        tokens = mean(steps, method, last, "tokens_trained")
        cells.append([method, *(f"{100 * level:.1f}" for level in levels), f"{tokens:,.0f}"])
    names = [
        f"Pass@1 after {early:.0f} steps, %",
        f"after {last:.0f}, %",
        f"Pass@8 after {last:.0f}, %",
        "tokens trained",
    ]
    return markdown(["SmolLM2-135M, word problems", *names], cells)


def step_table(output: Path, part: str) -> str:
    """Medians over the steps of all seeds but the first, which loads kernels; the state at the end."""
    rows = [row for row in read(output, "steps.csv", part) if row["step"] > 1]
    cells = []
    for method, rate in dict.fromkeys((row["method"], row["rate"]) for row in rows):
        own = [row for row in rows if (row["method"], row["rate"]) == (method, rate)]
        last = [row for row in own if row["step"] == max(row["step"] for row in own)]
        medians = [statistics.median(row[name] for row in own) for name in ("seconds", "generate", "update")]
        ends = [statistics.mean(row[name] for row in last) for name in ("entropy", "distinct", "tokens_trained")]
        share = statistics.mean(row["flops_share"] for row in own)
        line = [*(f"{value:.2f}" for value in (*medians, *ends[:2])), f"{ends[2]:,.0f}", f"{share:.0%}"]
        cells.append([method, f"{rate:g}", *line])
    names = ["rate", "s a step", "generate", "update", "entropy at the end", "distinct", "tokens trained", "FLOPs"]
    return markdown([part, *names], cells)


def curves(output: Path, part: str, k: int) -> dict[tuple[str, float], list[tuple[float, float]]]:
    """(seconds of all steps before, Pass@k) of each evaluation, by method and seed."""
    clock: dict[tuple, float] = {}
    for row in read(output, "steps.csv", part):
        run = row["method"], row["rate"], row["seed"]
        clock[(*run, row["step"])] = clock.get((*run, row["step"] - 1), 0.0) + row["seconds"]
    points: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for row in read(output, "evaluations.csv", part):
        seconds = clock.get((row["method"], row["rate"], row["seed"], row["step"]), 0.0)
        points.setdefault((row["method"], row["seed"]), []).append((seconds, row[f"pass@{k}"]))
    return points


def draw(output: Path, part: str, path: Path) -> None:
    """Draw Pass@1 and Pass@8 against seconds, a line for each seed."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import MUTED, SERIES, style

    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9, 3.4), dpi=160, facecolor="white")
        for ax, k in zip(figure.subplots(1, 2), (1, 8), strict=True):
            for (method, _), points in curves(output, part, k).items():
                color = SERIES[METHODS.index(method)]
                seconds, values = zip(*points, strict=True)
                label = method if method not in ax.get_legend_handles_labels()[1] else None
                ax.plot(seconds, [100 * value for value in values], "o-", color=color, markersize=3, label=label)
            ax.set_title(f"Pass@{k}, %", loc="left", fontsize=10, fontweight="bold")
            ax.set_xlabel("seconds of training", color=MUTED)
        ax.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path)
