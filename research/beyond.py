"""Measure what goes beyond the paper: every section of research/beyond_rows.py at equal CPU seconds.

    python -m research.beyond [--processes 2]                     (make bench-beyond)
    python -m research.beyond --section small-groups --seeds 1    (one section, fewer seeds)

CPU seconds are those of all training steps, generation included. The steps of a row are set in the table of rows so
that the seconds of a section agree; the tables state what they were. Rows are evaluated on 256 test problems with seeds
that no search has seen; sections that search use validation problems and other seeds. A restart continues where the
last one stopped; remove runs of older code by hand (runs/beyond). Writes research/beyond-tables.md between the marks of
each section, and runs/benchmarks/beyond-SECTION.json.
"""

import os
from itertools import chain
from pathlib import Path

from benchmarks.harness import RESULTS, ROOT, markdown
from d3s.data.problems import load_problems
from d3s.tiny import ensure_base, parse_name
from research.beyond_rows import SECTIONS, Section
from research.runs import (
    Cell,
    Runs,
    argument_parser,
    mean_over_steps,
    provenance,
    record,
    save,
    scores,
    seconds,
    train_all,
)
from research.statistics import interval, subtract
from research.tables import RESEARCH, Rows, difference, level, show, write_between_marks

PRECEDENCE = "synthetic:precedence"
MEASURED = 5  # seeds; with fewer, differences of a section are hints
FIRST_SEEDS = {"test": 10, "validation": 100}  # of test problems: none that research/ablation.py uses
LOGGED = {  # column of the second table -> metric, mean over steps
    "kept with A ≠ 0": "selection/usefulness",
    "groups without signal": "reward/zero_std_groups",
    "effective groups": "selection/effective_groups",
    "gradient norm": "grad_norm",
    "largest abs. A": "advantage/max_abs",
    "tokens trained a step": "selection/tokens",
}
SAMPLED = {  # the same for sections about generation
    "distinct responses": "completion/distinct",
    "groups without signal": "reward/zero_std_groups",
    "reward": "reward/mean",
    "entropy": "policy/entropy",
    "tokens decoded a step": "selection/tokens_total",
}


def on_base(cell: Cell, base: str, split: str) -> Cell:
    """A row as it is run: on this base model with its task, evaluated on 256 problems. The row overrides the task."""
    task, _ = parse_name(base)
    files = () if task == "precedence" else (f"configs/{task}.yaml",)
    row = Cell(cell.name, (*files, *cell.arguments))
    return row.extended(f"model.name={base}", f"eval.split={split}", "eval.limit=256")


def run_section(section: Section, seeds: int, root: Path, processes: int) -> tuple[Rows, list[dict]]:
    """Train the rows of a section. Returns the runs by label, [bases][seeds], and their record."""
    for base in section.bases:
        ensure_base(base)
    first = FIRST_SEEDS[section.split]
    cells = {row.name: [on_base(row, base, section.split) for base in section.bases] for row in section.rows}
    pairs = [(cell, first + i) for i in range(seeds) for copies in cells.values() for cell in copies]
    runs = train_all(pairs, root, processes)
    rows = [
        (label, [[runs[cell, first + i] for i in range(seeds)] for cell in copies]) for label, copies in cells.items()
    ]
    return rows, record(runs)


def differences_table(rows: Rows, rivals: tuple[str, ...]) -> str:
    """Seconds and Pass@k of each row, and its differences of Pass@1 to the first row and to the rivals."""
    runs_of, references = dict(rows), [rows[0][0], *rivals]
    lines = []
    for label, runs in rows:
        cost = [f"{runs[0][0].last_step}", f"{seconds(runs):.1f}", *(show(level(runs, k)) for k in (1, 8))]
        gaps = ["–" if label == other else show(difference(runs, runs_of[other], 1), True) for other in references]
        lines.append([label, *cost, *gaps])
    header = ["", "steps", "seconds", "Pass@1", "Pass@8", *(f"over {other}" for other in references)]
    return markdown(header, lines)


def unmeasured(rows: Rows, rivals: tuple[str, ...], seeds: int) -> str:
    """What is said of a section of few seeds: nothing from MEASURED seeds on."""
    runs_of = dict(rows)
    gaps = [
        difference(runs, runs_of[other], 1) for other in (rows[0][0], *rivals) for name, runs in rows if name != other
    ]
    halves = [50 * (gap.high - gap.low) for gap in gaps if gap.low is not None]
    if seeds >= MEASURED or not halves:
        return ""
    return f" **Not measured:** {seeds} seeds, intervals of differences from ±{min(halves):.1f} to ±{max(halves):.1f}."


def bases_table(rows: Rows, bases: tuple[str, ...]) -> str:
    """Pass@1 of each row on each base, and the difference to the first row."""
    lines, (_, reference), *_ = [], rows[0]
    for label, runs in rows:
        cells = [show(level([runs[i]], 1)) for i in range(len(bases))]
        if runs is not reference:
            gaps = [show(difference([runs[i]], [reference[i]], 1), True) for i in range(len(bases))]
            cells = [f"{cell}; {gap}" for cell, gap in zip(cells, gaps)]
        lines.append([label, *cells])
    return markdown(["", *bases], lines)


def levels_table(rows: Rows, split: str) -> str:
    """Pass@1 of each row on the problems of each level of difficulty, and the difference to the first row."""
    levels = [problem.source.rpartition("/")[2] for problem in load_problems(PRECEDENCE, split=split, limit=256)]
    masks = {name: [level == name for level in levels] for name in sorted(set(levels))}
    first, reference = rows[0][0], scores(rows[0][1], 1)
    lines = []
    for label, runs in rows:
        values, cells = scores(runs, 1), []
        for mask in masks.values():
            ours, theirs = ({base: v[:, mask] for base, v in side.items()} for side in (values, reference))
            gap = show(interval(subtract(ours, theirs)), True)
            cells += [show(interval(ours)), "–" if label == first else gap]
        lines.append([label, *cells])
    return markdown(["", *chain.from_iterable((name, f"over {first}") for name in masks)], lines)


def logged_table(rows: Rows, columns: dict[str, str] = LOGGED) -> str:
    """What explains the differences: metrics of the training steps, mean over steps, seeds and bases."""
    logged = {name: key for name, key in columns.items() if all(_logs(runs, key) for _, runs in rows)}
    lines = [[label, *(_rounded(mean_over_steps(runs, key)) for key in logged.values())] for label, runs in rows]
    return markdown(["", *logged], lines)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _logs(runs: Runs, key: str) -> bool:
    return any(key in line for run in chain(*runs) for line in run.metrics)


def section_text(section: Section, rows: Rows, seeds: int, origin: dict) -> str:
    """The tables of a section with their heading."""
    bases = ", ".join(section.bases)
    text = f"\n## {section.title}\n\n{seeds} seeds on {bases}; 256 {section.split} problems x 8 samples; code at "
    text += f"{origin['revision']}, on {origin['cpu']}. Pass@k in % and differences of Pass@1 in points, with 95 % "
    text += f"intervals.{unmeasured(rows, section.rivals, seeds)}\n\n{differences_table(rows, section.rivals)}\n"
    if len(section.bases) > 1:
        text += f"\nPass@1 by base model, and the difference to the first row:\n\n{bases_table(rows, section.bases)}\n"
    if section.levels:
        text += f"\nPass@1 by level of difficulty:\n\n{levels_table(rows, section.split)}\n"
    if section.explain:
        text += f"\nMeans over all training steps:\n\n{logged_table(rows)}\n"
    if section.sampled:
        text += f"\nMeans over all training steps:\n\n{logged_table(rows, SAMPLED)}\n"
    return text


def main() -> None:
    parser = argument_parser(__doc__, "beyond")
    names = [section.name for section in SECTIONS]
    parser.add_argument("--section", choices=names, action="append", help="a section, repeatable (default: all)")
    parser.add_argument("--seeds", type=int, help="seeds per row and base model (default: those of the section)")
    args = parser.parse_args()
    os.chdir(ROOT)
    for section in SECTIONS:
        if args.section and section.name not in args.section:
            continue
        seeds = args.seeds or section.seeds
        rows, runs = run_section(section, seeds, args.folder, args.processes)
        origin = provenance(args.folder)
        text = section_text(section, rows, seeds, origin)
        write_between_marks(RESEARCH / "beyond-tables.md", section.name, text)
        save(RESULTS / f"beyond-{section.name}.json", {"machine": origin, "runs": runs})
        print(text)


if __name__ == "__main__":
    main()
