"""The paper's ablation in miniature on the embedded tasks, with seeds, base models and intervals.

    python -m benchmarks.learning.ablation [--seeds 5] [--bases 2] [--processes 2]      (make ablation)
    python -m benchmarks.learning.ablation --only main --seeds 5 --bases 1      without the sweep of rates, without
    studies

First every method is swept over the same learning rates on validation problems (one seed that is not compared, one base
model), the two with a ratio of sequences over the same clips as well; then it is run with what was best, evaluated on
test problems. Differences are paired: the same seed (hence the same problems in the same order), the same base model,
the same test problems. Started again, it continues where it was interrupted; remove runs of older code by hand
(runs/ablation). Tables go between the marks in docs/results.md and README.md, the picture to docs/ablation.png.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks.harness import RESULTS, ROOT, machine, markdown
from benchmarks.learning.intervals import crossed_interval
from benchmarks.learning.kl_to_base import kl_to_base
from benchmarks.learning.runs import Cell, Runs, final, mean_over_steps, record, save, scores, seconds, train_all
from d3s.evaluate.intervals import Estimate, student_interval
from d3s.tiny import WARMUP, ensure_base

DOCS = ROOT / "docs"
RATES = (1e-4, 2e-4, 4e-4)
CLIPS = ((0.01, 0.013), (0.03, 0.04), (0.1, 0.13))  # GSPO's 3e-4 and 4e-4 are for thousands of tokens, not for 35
SWEEP_SEED = 100  # not one of the seeds that are compared
BASES = ("tiny:precedence", "tiny:precedence@1")
D3S, GRPO, GSPO = (f"configs/method/{name}.yaml" for name in ("d3s", "grpo", "gspo"))
ALL = ("schedule.n_init=null", "schedule.n_final=null")
SELECTED = ("schedule.n_init=4", "schedule.n_final=16", "schedule.k_init=0.05", "schedule.k_final=0.2")
FIXED = ("schedule.shape=constant", "schedule.n_init=8", "schedule.k_init=0.2")
FEW = "GRPO, G = 4"
EQUAL_TIME = 0.05  # rows of other numbers of steps are compared if their seconds differ by no more than this

Rows = Sequence[tuple[str, Runs]]

METHODS = [
    Cell("GRPO", (GRPO,)),
    Cell(FEW, (GRPO, "rollout.num_generations=4")),
    Cell("GSPO", (GSPO,)),
    Cell("PODS", ("configs/method/pods.yaml",)),
    Cell("D1S", ("configs/method/d1s.yaml",)),
    Cell("D1S-Cross", ("configs/method/d1s_cross.yaml",)),
    Cell("D2S", ("configs/method/d2s.yaml",)),
    Cell("D3S", (D3S,)),
    Cell("D3S-I", ("configs/method/d3s_i.yaml",)),
    Cell("D3S on GSPO", (GSPO, D3S, *SELECTED)),
    Cell("D3S, fixed", (D3S, *FIXED)),
    Cell("tokens by H alone", (D3S, "selector.tokens=entropy")),
    Cell("tokens of each rollout", (D3S, "selector.token_scope=sample")),
    Cell("random rollouts", (D3S, "selector.rollouts=random")),
    Cell("random tokens", (D3S, "selector.tokens=random")),
]

PAIRS = [  # the question, the method, what it is compared with
    ("both selections and the schedule, against none", "D3S", "GRPO"),
    ("rollouts across the batch, not in each group", "D1S-Cross", "D1S"),
    ("the same, with tokens chosen and a schedule", "D3S", "D3S-I"),
    ("tokens by \\|A\\| x H at a fixed K, not all", "D2S", "D1S-Cross"),
    ("N and K that grow, not fixed at their first values", "D3S", "D2S"),
    ("N and K that grow, not N = 8 and K = 20 % throughout", "D3S", "D3S, fixed"),
    ("both selections and the schedule on GSPO, with GSPO's denominator", "D3S on GSPO", "GSPO"),
    ("D3S's N from 4 to 16 of 16, PODS's N = 4; other denominators", "D3S", "PODS"),
    ("PODS's own question: the best 4 of 16 responses, not 4 responses", "PODS", FEW),
    ("rollouts of largest variance, not at random", "D3S", "random rollouts"),
    ("tokens by \\|A\\| x H, not at random", "D3S", "random tokens"),
    ("tokens by \\|A\\| x H, not by H alone", "D3S", "tokens by H alone"),
    ("K % of the batch's tokens, not of each rollout's", "D3S", "tokens of each rollout"),
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
POOR = "poor"  # stands for the first base model after half of its warm-up


def equal_time(rows: dict[str, Runs]) -> Study:
    """Each method with as many steps as fit into GRPO's seconds, by the seconds of its rows so far; its schedules of N,
    K and the learning rate stretch over them."""
    cells = [(NAMED["GRPO"], "GRPO")]
    for name in (FEW, "PODS", "D1S-Cross", "D3S", "D3S, fixed"):
        steps = round(rows[name][0][0].last_step * seconds(rows["GRPO"]) / seconds(rows[name]))
        cells.append((NAMED[name].also(f"train.steps={steps}").called(f"{name}, {steps} steps"), name))
    return Study("As many steps as fit into GRPO's seconds, every schedule run to its end", BASES, cells)


def on_countdown(name: str) -> tuple[Cell, str]:
    """A method on the second task."""
    return NAMED[name].also(COUNTDOWN).called(f"{name}, on countdown"), name


STUDIES = [
    Study(
        "Countdown, where many answers are right",
        ("tiny:countdown",),
        [on_countdown(name) for name in ("GRPO", "PODS", "D3S", "D3S, fixed", "random rollouts")],
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
        [(fixed(f"K = {k:.0%}", *ALL, f"schedule.k_init={k}"), "D3S") for k in (1.0, 0.5, 0.2, 0.05)],
    ),
]


def candidates(method: Cell, rates: Sequence[float]) -> dict[tuple[str, float], tuple[str, ...]]:
    """Settings by clip and rate from which a method's are chosen; clips only where a ratio of sequences is clipped."""
    clips = {"–": ()}
    if GSPO in method.words:
        clips = {f"{low} / {high}": (f"loss.epsilon={low}", f"loss.epsilon_high={high}") for low, high in CLIPS}
    return {(clip, rate): (f"optim.learning_rate={rate}", *clips[clip]) for rate in rates for clip in clips}


def sweep(
    methods: Sequence[Cell], root: Path, processes: int, rates: Sequence[float] = RATES, bases: Sequence[str] = BASES
) -> tuple[dict[str, tuple[str, ...]], list[list[str]]]:
    """The settings of each method with the best Pass@1 on validation problems, and the rows of a table of all.

    Where there is no choice nothing is run. The base models are made first: by one process, not by every run.
    """
    for name in bases:
        ensure_base(name)
    tries = {(m, *key): words for m in methods for key, words in candidates(m, rates).items()}
    choices = [key for key in tries if len(candidates(key[0], rates)) > 1]
    cells = {key: key[0].also(*tries[key]) for key in choices}
    runs = train_all([(cell, SWEEP_SEED) for cell in cells.values()], root / "sweep", processes)
    reached = {key: final(runs[cell, SWEEP_SEED], "pass@1") for key, cell in cells.items()}
    taken = {m: max((key for key in tries if key[0] is m), key=lambda key: reached.get(key, 0.0)) for m in methods}
    rows = []
    for method, clip in dict.fromkeys(key[:2] for key in choices):
        keys = [(method, clip, rate) for rate in rates]
        rows.append([method.name, clip, *(f"{100 * reached[k]:.1f}{' taken' * (taken[method] == k)}" for k in keys)])
    return {m.name: tries[key] for m, key in taken.items()}, rows


def show(value: Estimate, signed: bool = False, scale: float = 100, digits: int = 1) -> str:
    """With the 95 % interval; in per cent if not told otherwise."""
    mean, *interval = [
        f"{scale * x:{'+' if signed else ''}.{digits}f}" for x in (value.value, value.low, value.high) if x is not None
    ]
    return f"{mean} ({' to '.join(interval)})" if interval else mean


def level(own: Runs, k: int) -> str:
    """Pass@k of the last evaluations."""
    return show(crossed_interval(scores(own, k)))


def difference(own: Runs, reference: Runs, k: int) -> str:
    """Of the last evaluations' Pass@k, paired by base model, seed and problem."""
    return show(crossed_interval(scores(own, k) - scores(reference, k)), True)


def comparison(own: Runs, reference: Runs) -> list[str]:
    """Differences of Pass@1 and Pass@8, if both had as many steps or, to 5 %, as many seconds."""
    if own is reference:
        return ["–", "–"]
    off = seconds(own) / seconds(reference) - 1
    if own[0][0].last_step != reference[0][0].last_step and abs(off) > EQUAL_TIME:
        return [f"not compared: {off:+.0%} seconds", "–"]
    return [difference(own, reference, k) for k in (1, 8)]


def learned(rows: Rows) -> str:
    """What each row reached, over its first; seconds are CPU seconds of all training steps."""
    (first, reference), *_ = rows
    header = ["", "steps", "seconds", "Pass@1", "Pass@8", f"Pass@1 over {first}", f"Pass@8 over {first}"]
    lines = []
    for name, runs in rows:
        cost = [f"{runs[0][0].last_step}", f"{seconds(runs):.1f}"]
        lines.append([name, *cost, level(runs, 1), level(runs, 8), *comparison(runs, reference)])
    return markdown(header, lines)


def share_trained(runs: Runs) -> float:
    """Trained tokens of sampled ones."""
    last = [run.metrics[-1] for run in chain(*runs)]
    return sum(line["tokens_trained"] for line in last) / sum(line["tokens_generated"] for line in last)


def trained(rows: Rows) -> str:
    """What each row trained on: shares in %, the norm of the gradient, the distance to the base model."""
    lines = []
    for name, runs in rows:
        clipped = mean_over_steps(runs, "policy/clip_low", "policy/clip_high")
        cells = [
            f"{100 * x:.1f}" for x in (share_trained(runs), mean_over_steps(runs, "selection/usefulness"), clipped)
        ]
        moved = student_interval([kl_to_base(run.path) for run in chain(*runs)])
        lines.append([name, *cells, f"{mean_over_steps(runs, 'grad_norm'):.2f}", show(moved, False, 1, 3)])
    header = ["", "tokens trained", "kept with A ≠ 0", "tokens clipped", "gradient norm", "KL to the base model"]
    return markdown(header, lines)


def pairs(rows: dict[str, Runs]) -> str:
    """The questions, each with the two methods that answer it."""
    lines = [
        [question, f"{method} over {other}", *(difference(rows[method], rows[other], k) for k in (1, 8))]
        for question, method, other in PAIRS
    ]
    return markdown(["", "compared", "Pass@1", "Pass@8"], lines)


def summary(rows: Rows) -> str:
    """The README's table."""
    (first, reference), *_ = rows
    lines = [
        [name, level(runs, 1), level(runs, 8), f"{100 * share_trained(runs):.1f}", comparison(runs, reference)[0]]
        for name, runs in rows
    ]
    return markdown(["", "Pass@1", "Pass@8", "tokens trained", f"Pass@1 over {first}"], lines)


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replaces what stands between <!-- NAME --> and <!-- /NAME --> in a Markdown file."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text().partition(begin)
    path.write_text(before + begin + text + end + rest.partition(end)[2])


def draw(rows: Rows, path: Path) -> None:
    """Left: differences of Pass@1 to the first row. Right: the share of tokens that was trained."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import INK, MUTED, SERIES, style

    (first, reference), *others = rows
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(11, 5), dpi=160, facecolor="white")
        ax = figure.add_axes((0.16, 0.12, 0.34, 0.78))
        for place, (_, runs) in enumerate(others):
            value = crossed_interval(100 * (scores(runs, 1) - scores(reference, 1)))
            ax.errorbar(value.value, place, xerr=_error(value), fmt="o", color=SERIES[0], linewidth=2, markersize=5)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_yticks(range(len(others)), [name for name, _ in others], color=INK)
        ax.invert_yaxis()
        ax.set_xlabel("points, 95 % interval", color=MUTED)
        ax.set_title(f"Pass@1 over {first}, at equal steps", loc="left", fontsize=10, fontweight="bold")
        ax = figure.add_axes((0.56, 0.12, 0.38, 0.78), sharey=ax)
        bars = ax.barh(range(len(others)), [100 * share_trained(runs) for _, runs in others], 0.5, color=SERIES[1])
        ax.bar_label(bars, fmt="%.1f", padding=3, fontsize=8, color=INK)
        ax.tick_params(labelleft=False)
        ax.set_xlim(0, 112)
        ax.set_xlabel("% of the sampled tokens", color=MUTED)
        ax.set_title("Trained", loc="left", fontsize=10, fontweight="bold")
        figure.savefig(path)


def _error(value: Estimate) -> list[list[float]] | None:
    return None if value.low is None else [[value.value - value.low], [value.high - value.value]]


def arguments(description: str, seeds: int | None = 5) -> argparse.ArgumentParser:
    """The arguments that all experiments on learning share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if seeds:
        parser.add_argument("--seeds", type=int, default=seeds, help="of every method on every base model")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablation")
    return parser


def on_bases(cell: Cell, bases: Sequence[str | Path]) -> list[Cell]:
    """A cell as it is compared: on test problems, once for each base model."""
    return [cell.also("eval.split=test", f"model.name={base}") for base in bases]


def run_rows(
    cells: Sequence[Cell], bases: Sequence[str | Path], seeds: int, folder: Path, processes: int
) -> tuple[Rows, list[dict]]:
    """The runs of these cells by name, and their record."""
    of = {cell.name: on_bases(cell, bases) for cell in cells}
    wanted = [(cell, seed) for seed in range(seeds) for copies in of.values() for cell in copies]
    runs = train_all(wanted, folder, processes)
    rows = [(name, [[runs[cell, seed] for seed in range(seeds)] for cell in copies]) for name, copies in of.items()]
    return rows, record(runs)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--bases", type=int, choices=range(1, len(BASES) + 1), default=len(BASES), help="base models")
    parser.add_argument("--only", choices=["main"], help=f"main: no studies, every method at the rate {RATES[1]:g}")
    args = parser.parse_args()
    os.chdir(ROOT)
    rates, bases = RATES[1:2] if args.only else RATES, BASES[: args.bases]
    best, swept = sweep(METHODS, args.folder, args.processes, rates, bases)
    rows, kept = run_rows([m.also(*best[m.name]) for m in METHODS], bases, args.seeds, args.folder, args.processes)
    draw(rows, DOCS / "ablation.png")
    about = machine()
    text = f"{len(bases)} base model{'s' * (len(bases) > 1)} x {args.seeds} seeds a row, code at {about['revision']}, "
    text += (
        f"on {about['cpu']}; " + ("learning rates swept" if len(rates) > 1 else f"learning rate {rates[0]:g}") + ".\n"
    )
    write_between_marks(DOCS.parent / "README.md", "ablation", f"{text}\n{summary(rows)}\n")
    text += "\n![Differences of Pass@1 to GRPO at equal steps, and the share of trained tokens](ablation.png)\n"
    text += f"\nQuestions, at equal steps:\n\n{pairs(dict(rows))}\n\n{learned(rows)}\n\n{trained(rows)}\n"
    header = ["", "clip", *(f"{rate:g}" for rate in rates)]
    text += f"\nPass@1 on validation problems by learning rate, one run each:\n\n{markdown(header, swept)}\n"
    write_between_marks(DOCS / "results.md", "ablation", text)
    for study in () if args.only else [equal_time(dict(rows)), *STUDIES]:
        cells = [cell.also(*best[of]) for cell, of in study.cells]
        rows, more = run_rows(cells, list(map(base_model, study.bases)), args.seeds, args.folder, args.processes)
        kept += more
        text += f"\n**{study.title}** ({sum(map(len, rows[0][1]))} runs a row)\n\n{learned(rows)}\n"
        write_between_marks(DOCS / "results.md", "ablation", text)
    save(RESULTS / "ablation.json", {"machine": about, "taken": best, "runs": kept})


def base_model(name: str) -> str | Path:
    """A base model, made if it is not there; POOR is the first one after half of its warm-up."""
    return ensure_base(BASES[0], steps=WARMUP["steps"] // 2) if name == POOR else ensure_base(name) and name


if __name__ == "__main__":
    main()
