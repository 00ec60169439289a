"""Write every table and picture of the results from docs/data.

    python -m research.results      (make results)

Reads runs.csv, beyond.csv, shapes.csv and the costs of steps in docs/data. Writes README.md, docs/results.md and
results-tables.md between their `results` marks, the sections of beyond-tables.md whose runs are all recorded,
docs/results.png, docs/update-share.png and docs/card.png.
"""

import math
from collections import Counter
from pathlib import Path

from benchmarks.harness import ROOT, markdown, write_between_marks
from d3s.evaluation.intervals import Estimate
from research import card_rows, card_tables, lengths, result_tables, teacher, update_share
from research.beyond import SECTIONS
from research.claims import CLAIMS, HEAVY, PAPER_SHAPE
from research.comparisons import NotComparable, Results, is_planned
from research.jobs import Known
from research.records import BEYOND_DATA, DOCS, RESEARCH, Record, read
from research.result_tables import TASK_NAMES, escaped, verdicts
from research.row import TASKS
from research.rows import (
    AGAIN,
    ALL,
    BY_NAME,
    D3S_FIXED,
    D3S_SHAPED,
    D3S_SMALL,
    GRPO_BEST,
    GRPO_SHAPED,
    RANDOM_REWARD,
    ROWS,
    SECOND_RATE,
)
from research.speedups import speedup_table
from research.statistics import interval, show
from research.step_costs import Costs, read_costs
from research.step_shapes import SHAPES_DATA, shapes_section
from research.study_tables import TABLES, curve_table, order_table, section_text, study_table

SUMMARY = {  # row -> its name in the summary, and whether its rollouts with A = 0 are computed
    AGAIN + PAPER_SHAPE: ("GRPO, G = 16, every rollout computed", True),
    AGAIN + GRPO_BEST: ("GRPO, G = 4", False),
    AGAIN + GRPO_SHAPED: ("GRPO, G = 4, best shape of a step", False),
    AGAIN + D3S_SHAPED: ("D3S, G = 4, best shape of a step", False),
}
DRAWN = (  # in the picture of update shares: GRPO, then methods without a schedule
    *(PAPER_SHAPE, GRPO_BEST, "GRPO, G = 8"),
    *(D3S_SMALL, D3S_FIXED, "D1S-Cross", "PODS", f"CPPO, N = 2 of 4, {SECOND_RATE}"),
    *("80/20: all rollouts, K = 20 % by H", "all rollouts, K = 20 % by |A| x H"),
)
SHARE_STEPS = 30  # of plain GRPO, whose time every row of the picture of update shares gets
SHOWN_CLAIMS = 8  # the project's own questions, and whether D3S beats GRPO of its shape


def progress(records: list[Record]) -> str:
    """How many of the planned runs on test problems there are."""
    planned = sum(row.seeds * len(row.bases) for row in ALL)
    done = sum(record.part == "compare" and record.row in BY_NAME and is_planned(record) for record in records)
    missing = "" if done == planned else f" of {planned:,} planned ones; intervals need two seeds"
    return f"{done:,} runs on test problems{missing}."


def setting(records: list[Record]) -> str:
    """How many runs there are, of which code, on which machine."""
    codes = ", ".join(revision for revision, _ in Counter(record.revision for record in records).most_common())
    cpus = ", ".join(cpu for cpu, _ in Counter(record.cpu for record in records).most_common())
    searched = sum(record.part == "sweep" for record in records)
    return f"{progress(records)} {searched:,} runs searched the settings. Code at {codes}, on {cpus}."


def claims_section(results: Results) -> str:
    """The first claims with a verdict and one figure each, for docs/results.md: those that do not hold first.

    All of them are about Pass@1 at equal seconds. Their p-values are adjusted for all claims.
    """
    first = [verdict for verdict in verdicts(results) if verdict.claim in CLAIMS[:SHOWN_CLAIMS]]
    lines = []
    for verdict in sorted(first, key=lambda verdict: verdict.holds == "yes"):
        claim = verdict.claim
        figure = seen = "–"
        if verdict.scores is not None:
            figure, seen = show(verdict.gap, True), f"{100 * verdict.seen:.1f}"
        p = "–" if math.isnan(verdict.p) else f"{verdict.p:.3f}"
        lines.append([escaped(claim.text), verdict.holds, figure, seen, p])
    return markdown(["claim", "here", "points of Pass@1", "could see", "p (Holm)"], lines)


def summary_table(results: Results) -> str:
    """At most four rows of new seeds, each with its paired difference to the best GRPO of all shapes."""
    lines, best = [], AGAIN + GRPO_SHAPED
    for name, (label, zeros) in SUMMARY.items():
        try:
            levels = [f"{100 * interval(results.scores(name, 'seconds', k, zeros)).value:.1f}" for k in (1, 8)]
            gap = "–" if name == best else _below(results.gap(best, name, "seconds", zeros_computed=zeros))
        except NotComparable:
            continue
        runs = results.all_runs(name)
        trained = 100 * sum(run.trained[-1] for run in runs) / sum(run.generated[-1] for run in runs)
        lines.append([label, levels[0], gap, levels[1], "100" if zeros else f"{trained:.0f}"])
    return markdown(
        ["in equal seconds", "Pass@1, %", "points over GRPO's best shape, 95 %", "Pass@8, %", "tokens trained, %"],
        lines,
    )


def _below(gap: Estimate) -> str:
    half = "" if gap.low is None else f" ± {50 * (gap.high - gap.low):.1f}"
    return f"{-100 * gap.value:+.1f}{half}"


def heavy_sentence(results: Results) -> str:
    """What the README says of the rows with the padded vocabulary; nothing without their runs."""
    found = {v.claim.task: v for v in verdicts(results) if v.claim.row == HEAVY + D3S_SMALL and v.scores}
    if len(found) < len(TASKS):
        return ""
    gaps = [
        f"{name} {show(found[task].gap, True)} points ({_held(found[task].holds)})"
        for task, name in zip(TASKS, TASK_NAMES, strict=True)
    ]
    what = "Where the output head is 90 % of the compute, D3S over GRPO, both with G = 4"
    return f"{what}: {'; '.join(gaps)}. "


def _held(holds: str) -> str:
    """What became of a claim, in words that stand alone."""
    return {"yes": "the claim holds", "no": "the claim fails"}.get(holds, holds)


def again_sentence(results: Results) -> str:
    """What the README says of the best steps on new seeds; nothing without their runs."""
    found = [v for v in verdicts(results) if v.claim.row == AGAIN + D3S_SHAPED and v.scores]
    return "".join(
        f"On new seeds D3S's best shape is {show(v.gap, True)} points over GRPO's ({_held(v.holds)}). " for v in found
    )


def tables(results: Results, known: Known) -> str:
    """All tables of research/results-tables.md."""
    parts = {
        "Claims": result_tables.claims_table(results),
        "Rows at equal seconds": result_tables.rows_table(results),
        "GRPO by group size, at equal seconds": result_tables.groups_table(results),
        "Rows at equal steps and at equal generated tokens": result_tables.axes_table(results),
        "Where the head is most of the work": result_tables.heavy_table(results),
        "Where the head is most of the work: the claim by runs": result_tables.added_table(results),
        "Claims before and after runs were added": result_tables.look_table(results),
        "Claims on new seeds, Pass@1": result_tables.again_table(results),
        "Time to the accuracy of GRPO": speedup_table(results),
        "Rows by base model, Pass@1 at equal seconds": result_tables.bases_table(results),
        "What the rows trained on": result_tables.training_table(results, results.measured(ALL)),
        "128 problems, each asked several times": order_table(results),
    }
    for study in TABLES:
        parts[study.title] = study_table(results, study)
    parts["G = 32: Pass@1 by step"] = curve_table(results, "G = 32: ", lambda run: run.levels(1))
    parts["Twice the time: Pass@1 by step"] = curve_table(results, "twice the time: ", lambda run: run.levels(1))
    poor = "poor base: "
    parts["A poor base model: KL to the base by step"] = curve_table(results, poor, lambda run: run.kl_to_base, 1, 3)
    parts["Learning rates"] = result_tables.sweep_table(known)
    parts["Rivals at their second-best rate, at equal seconds"] = result_tables.controls_table(results)
    return "".join(f"\n### {title}\n\n{text}\n" for title, text in parts.items())


def drawn_rows(results: Results) -> dict[str, dict[str, list[Record]]]:
    """The rows of the picture of update shares, each with the runs whose base model and seed all of them have."""
    names = [name for name in DRAWN if name in results.runs]
    pairs = [{(base, r.seed) for base, runs in results.runs[name].items() for r in runs} for name in names]
    common = set.intersection(*pairs)
    return {
        name: {
            base: [run for run in results.runs[name][base] if (base, run.seed) in common]
            for base in sorted({base for base, _ in common})
        }
        for name in names
    }


def draw(results: Results, path: Path) -> None:
    """Draw the differences of Pass@1 of all rows to the best GRPO at equal seconds."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import INK, MUTED, SERIES, style

    gaps = {}
    for name in results.measured(row for row in ROWS if RANDOM_REWARD not in row.arguments):  # far below all others
        try:
            gaps[name] = results.gap(name, GRPO_BEST, "seconds")
        except NotComparable:
            continue
    gaps.pop(GRPO_BEST, None)
    order = sorted(gaps, key=lambda name: gaps[name].value)
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9, 0.24 * len(order) + 1.2), dpi=160, facecolor="white")
        ax = figure.add_axes((0.36, 0.09, 0.6, 0.86))
        for y, name in enumerate(order):
            gap = gaps[name]
            low, high = (gap.value if end is None else end for end in (gap.low, gap.high))
            color = SERIES[1] if "D3S" in name else SERIES[0]
            ax.plot([100 * low, 100 * high], [y, y], color=color, linewidth=2)
            ax.plot(100 * gap.value, y, "o", color=color, markersize=4.5)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_yticks(range(len(order)), order, color=INK, fontsize=8)
        ax.set_xlabel("points of Pass@1, 95 % interval", color=MUTED)
        title = f"Pass@1 over {GRPO_BEST} (A = 0 left out), in equal seconds"
        ax.set_title(title, loc="left", fontsize=10, fontweight="bold")
        figure.savefig(path)


def write_sections(records: list[Record]) -> None:
    """Write the sections beyond the paper whose planned runs are all there."""
    results = Results(records, Costs([]))
    for name, section in SECTIONS.items():
        runs = sum(len(results.all_runs(row)) for row in results.measured(section.rows))
        if runs == sum(row.seeds * len(row.bases) for row in section.rows):
            write_between_marks(RESEARCH / "beyond-tables.md", name, section_text(results, name, section))


def card_section() -> str:
    """The claims about real models."""
    data = card_tables.MEASURED
    return "\n\n".join([card_tables.claims_table(data), card_tables.survivors(data)])


def card_search() -> str:
    """Pass@1 and Pass@8 of the real models by step, every run of the searches, entropies, and the tests before."""
    data, first = card_tables.MEASURED, card_tables.learning_table(card_tables.FIRST, "test", 1)
    tests = *card_tables.TASKS.values(), "adapters K", "long", *card_rows.SMALL_STEPS, "methods", "budgets"
    tests = [part for part in tests if card_tables.rows_of(data, part)]
    levels = (card_tables.learning_table(data, part, k) for part in tests for k in (1, 8))
    searches = (card_tables.search_table(data, part) for part in card_rows.SEARCH_OF)
    others = [card_tables.levels_table(data, part) for part in ("test", "adapters")]
    others += [card_tables.entropy_table(data), card_tables.remedy_table(data)]
    steps = (card_tables.step_table(data, part) for part in tests)
    earlier = card_tables.learning_table(data, "earlier", 1)
    return "\n\n".join([*levels, *searches, *steps, card_tables.survivors_computed(data), *others, earlier, first])


def main() -> None:
    records = read()
    known = {record.identity: record for record in records}
    results = Results(records, read_costs())
    write_between_marks(RESEARCH / "results-tables.md", "results", f"{setting(records)}\n{tables(results, known)}")
    summary = f"{summary_table(results)}\n\n{claims_section(results)}\n\n{progress(records)}\n"
    write_between_marks(DOCS / "results.md", "results", summary)
    below = f"{again_sentence(results)}{heavy_sentence(results)}{progress(records)}"
    write_between_marks(
        ROOT / "README.md", "results", f"{card_tables.summary_table(card_tables.MEASURED)}\n\n{below}\n"
    )
    draw(results, DOCS / "results.png")
    measured: dict[str, list[Record]] = {}
    for record in records:  # with their own seconds, which were measured together with those of the update
        if record.part == "compare" and record.row in (PAPER_SHAPE, HEAVY + GRPO_BEST):
            measured.setdefault(record.base, []).append(record)
    update_share.draw(drawn_rows(results), DOCS / "update-share.png", SHARE_STEPS, measured)
    write_sections(read(BEYOND_DATA))
    if shapes := {record.identity: record for record in read(SHAPES_DATA)}:
        write_between_marks(RESEARCH / "beyond-tables.md", "shapes", shapes_section(shapes))
    write_between_marks(RESEARCH / "results-tables.md", "marks", f"{update_share.marks_table(measured)}\n")
    write_between_marks(DOCS / "results.md", "card", f"{card_section()}\n")
    write_between_marks(RESEARCH / "results-tables.md", "card-search", f"{card_search()}\n")
    write_between_marks(RESEARCH / "results-tables.md", "lengths", f"{lengths.table()}\n\n{lengths.claim()}\n")
    write_between_marks(DOCS / "beyond.md", "teacher", f"{teacher.table()}\n")
    card_tables.draw(card_tables.MEASURED, DOCS / "card.png")


if __name__ == "__main__":
    main()
