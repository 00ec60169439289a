"""Tables, picture and marked page sections of the learning experiments."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from benchmarks.harness import ROOT, markdown
from benchmarks.learning.intervals import crossed_interval
from benchmarks.learning.kl_to_base import kl_to_base
from benchmarks.learning.methods import COMPARISONS
from benchmarks.learning.runs import Runs, mean_over_steps, scores, seconds, share_trained
from d3s.evaluate.intervals import Estimate, student_interval

DOCS = ROOT / "docs"
SECONDS_TOLERANCE = 0.05  # rows with different numbers of steps are compared if their seconds differ by at most this
SUMMARY = {"GRPO": "GRPO", "PODS": "PODS", "D3S": "D3S", "random tokens": "D3S with random tokens"}

Rows = Sequence[tuple[str, Runs]]


def show(estimate: Estimate, signed: bool = False, scale: float = 100, digits: int = 1) -> str:
    """Format a value with its 95 % interval, by default in percent."""
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    value, *interval = [f"{scale * x:{'+' if signed else ''}.{digits}f}" for x in (estimate.value, *ends)]
    return f"{value} ({' to '.join(interval)})" if interval else value


def level(runs: Runs, k: int) -> Estimate:
    """Pass@k of the last evaluations."""
    return crossed_interval(scores(runs, k))


def difference(runs: Runs, reference: Runs, k: int) -> Estimate:
    """Difference of Pass@k in the last evaluations, paired by base model, seed and problem."""
    return crossed_interval(scores(runs, k) - scores(reference, k))


def comparison(runs: Runs, reference: Runs) -> list[str]:
    """Differences of Pass@1 and Pass@8, if the steps are equal or the seconds agree within SECONDS_TOLERANCE."""
    if runs is reference:
        return ["–", "–"]
    excess = seconds(runs) / seconds(reference) - 1
    if runs[0][0].last_step != reference[0][0].last_step and abs(excess) > SECONDS_TOLERANCE:
        return [f"not compared: {excess:+.0%} seconds", "–"]
    return [show(difference(runs, reference, k), True) for k in (1, 8)]


def results_table(rows: Rows) -> str:
    """Steps, CPU seconds of all training steps, and Pass@k of each row, with differences to the first row."""
    (first, reference), *_ = rows
    header = ["", "steps", "seconds", "Pass@1", "Pass@8", f"Pass@1 over {first}", f"Pass@8 over {first}"]
    lines = []
    for name, runs in rows:
        cost = [f"{runs[0][0].last_step}", f"{seconds(runs):.1f}"]
        lines.append([name, *cost, *(show(level(runs, k)) for k in (1, 8)), *comparison(runs, reference)])
    return markdown(header, lines)


def training_table(rows: Rows) -> str:
    """What each row trained on: shares in %, the gradient norm, the KL divergence from the base model."""
    lines = []
    for name, runs in rows:
        clipped = mean_over_steps(runs, "policy/clip_low", "policy/clip_high")
        shares = (share_trained(runs), mean_over_steps(runs, "selection/usefulness"), clipped)
        kl = student_interval([kl_to_base(run.path) for run in chain(*runs)])
        norm = f"{mean_over_steps(runs, 'grad_norm'):.2f}"
        lines.append([name, *(f"{100 * share:.1f}" for share in shares), norm, show(kl, False, 1, 3)])
    header = ["", "tokens trained", "kept with A ≠ 0", "tokens clipped", "gradient norm", "KL to the base model"]
    return markdown(header, lines)


def comparisons_table(rows: dict[str, Runs]) -> str:
    """Every claim with its paired differences of Pass@1 and Pass@8."""
    lines = []
    for item in COMPARISONS:
        pair = rows[item.method], rows[item.reference]
        differences = [show(difference(*pair, k), True) for k in (1, 8)]
        lines.append([item.claim, f"{item.method} over {item.reference}", *differences])
    return markdown(["claim", "compared", "Pass@1", "Pass@8"], lines)


def claims_section(rows: dict[str, Runs]) -> str:
    """The answer in two sentences, and every claim with a verdict and one figure, for docs/results.md."""
    d3s, grpo = rows["D3S"], rows["GRPO"]
    tokens, cost = share_trained(d3s) / share_trained(grpo), seconds(d3s) / seconds(grpo)
    gap = 100 * difference(d3s, grpo, 1).value
    answer = (
        f"D3S trains {100 * tokens:.1f} % of GRPO's tokens in {100 * cost:.0f} % of its CPU seconds.\n"
        f"After as many steps its Pass@1 is {abs(gap):.1f} points {'higher' if gap > 0 else 'lower'} than GRPO's."
    )
    lines = [
        ["D3S trains fewer tokens than GRPO", _yes(tokens < 1), f"{100 * tokens:.1f} % of GRPO's", _link("training")],
        ["D3S takes less time for as many steps", _yes(cost < 1), f"{100 * cost:.0f} % of GRPO's", _link("methods")],
    ]
    for item in COMPARISONS:
        gap = difference(rows[item.method], rows[item.reference], 1)
        lines.append([item.claim, verdict(gap), f"{100 * gap.value:+.1f} points", _link("comparisons")])
    return f"{answer}\n\n{markdown(['claim', 'here', 'figure', 'table'], lines)}\n"


def verdict(gap: Estimate) -> str:
    """Whether a difference is above 0, below 0, or not distinguishable from 0 by its 95 % interval."""
    if gap.low is None or gap.low <= 0 <= gap.high:
        return "undecided"
    return _yes(gap.value > 0)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _link(section: str) -> str:
    return f"[{section}](results-tables.md#{section})"


def summary_table(rows: dict[str, Runs]) -> str:
    """The README's table: a few methods, one number per cell."""
    lines = []
    for name, label in SUMMARY.items():
        if name in rows:
            runs = rows[name]
            shares = (level(runs, 1).value, level(runs, 8).value, share_trained(runs))
            lines.append([label, *(f"{100 * share:.1f}" for share in shares), f"{seconds(runs):.1f}"])
    return markdown(["", "Pass@1, %", "Pass@8, %", "tokens trained, %", "CPU seconds"], lines)


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replace the text between <!-- NAME --> and <!-- /NAME --> in a Markdown file."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = path.read_text().partition(begin)
    path.write_text(before + begin + text + end + rest.partition(end)[2])


def draw(rows: Rows, path: Path) -> None:
    """Draw differences of Pass@1 to the first row (left) and the share of trained tokens (right)."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import INK, MUTED, SERIES, style

    (first, reference), *compared = rows
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(11, 5), dpi=160, facecolor="white")
        ax = figure.add_axes((0.16, 0.12, 0.34, 0.78))
        for y, (_, runs) in enumerate(compared):
            gap = crossed_interval(100 * (scores(runs, 1) - scores(reference, 1)))
            ax.errorbar(gap.value, y, xerr=_error_bar(gap), fmt="o", color=SERIES[0], linewidth=2, markersize=5)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_yticks(range(len(compared)), [name for name, _ in compared], color=INK)
        ax.invert_yaxis()
        ax.set_xlabel("points, 95 % interval", color=MUTED)
        ax.set_title(f"Pass@1 over {first}, at equal steps", loc="left", fontsize=10, fontweight="bold")
        ax = figure.add_axes((0.56, 0.12, 0.38, 0.78), sharey=ax)
        bars = ax.barh(range(len(compared)), [100 * share_trained(runs) for _, runs in compared], 0.5, color=SERIES[1])
        ax.bar_label(bars, fmt="%.1f", padding=3, fontsize=8, color=INK)
        ax.tick_params(labelleft=False)
        ax.set_xlim(0, 112)
        ax.set_xlabel("% of the sampled tokens", color=MUTED)
        ax.set_title("Trained", loc="left", fontsize=10, fontweight="bold")
        figure.savefig(path)


def _error_bar(estimate: Estimate) -> list[list[float]] | None:
    if estimate.low is None:
        return None
    return [[estimate.value - estimate.low], [estimate.high - estimate.value]]
