"""The paper's ablation in miniature on the synthetic tasks, with several seeds and base models.

    python -m benchmarks.learning.ablation [--seeds 5] [--bases 2] [--processes 2]      (make ablation)
    python -m benchmarks.learning.ablation --only main --seeds 5 --bases 1              (no rate sweep, no studies)

Sweeps every method over the same learning rates on validation problems (one seed that is not compared, one base model),
and methods with a sequence ratio over the same clips. Then runs each method with its best settings and evaluates it on
test problems. Differences are paired: same seed (hence the same problems in the same order), same base model, same test
problems. A restart continues where the last one stopped; remove runs of older code by hand (runs/ablation).

Writes docs/results-tables.md, docs/results.md and README.md between their `ablation` marks, and docs/ablation.png.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import RESULTS, ROOT, markdown
from benchmarks.learning.methods import BASES, HALF_WARMUP, METHODS, RATES, STUDIES, equal_time, sweep_settings
from benchmarks.learning.runs import Cell, final, provenance, record, save, train_all
from benchmarks.learning.tables import (
    DOCS,
    Rows,
    claims_section,
    comparisons_table,
    draw,
    results_table,
    summary_table,
    training_table,
    write_between_marks,
)
from d3s.tiny import WARMUP, ensure_base

SWEEP_SEED = 100  # not one of the compared seeds


def sweep(
    methods: Sequence[Cell], root: Path, processes: int, rates: Sequence[float] = RATES, bases: Sequence[str] = BASES
) -> tuple[dict[str, tuple[str, ...]], list[list[str]]]:
    """Choose each method's settings by Pass@1 on validation problems. A method without a choice is not run.

    All base models are created first, by this process, so that parallel runs do not create them several times.

    Returns:
        the chosen overrides by method name, and the rows of a table of all tried settings
    """
    for name in bases:
        ensure_base(name)
    overrides = {(m, *key): values for m in methods for key, values in sweep_settings(m, rates).items()}
    candidates = [key for key in overrides if len(sweep_settings(key[0], rates)) > 1]
    cells = {key: key[0].extended(*overrides[key]) for key in candidates}
    runs = train_all([(cell, SWEEP_SEED) for cell in cells.values()], root / "sweep", processes)
    pass_at_1 = {key: final(runs[cell, SWEEP_SEED], "pass@1") for key, cell in cells.items()}
    chosen = {}
    for method in methods:
        keys = [key for key in overrides if key[0] is method]
        chosen[method] = max(keys, key=lambda key: pass_at_1.get(key, 0.0))
    rows = []
    for method, clip in dict.fromkeys(key[:2] for key in candidates):
        keys = [(method, clip, rate) for rate in rates]
        marks = [" chosen" * (chosen[method] == key) for key in keys]
        rows.append([method.name, clip, *(f"{100 * pass_at_1[key]:.1f}{mark}" for key, mark in zip(keys, marks))])
    return {m.name: overrides[key] for m, key in chosen.items()}, rows


def argument_parser(description: str, seeds: int | None = 5) -> argparse.ArgumentParser:
    """The command-line arguments that all learning experiments share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if seeds:
        parser.add_argument("--seeds", type=int, default=seeds, help="seeds per method and base model (default: 5)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time (default: all cores)")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablation", help="default: runs/ablation")
    return parser


def on_bases(cell: Cell, bases: Sequence[str | Path]) -> list[Cell]:
    """A cell as it is compared: evaluated on test problems, once for each base model."""
    return [cell.extended("eval.split=test", f"model.name={base}") for base in bases]


def run_rows(
    cells: Sequence[Cell], bases: Sequence[str | Path], seeds: int, folder: Path, processes: int
) -> tuple[Rows, list[dict]]:
    """Train the cells on all base models and seeds. Returns the runs by cell name, and their record."""
    copies = {cell.name: on_bases(cell, bases) for cell in cells}
    pairs = [(cell, seed) for seed in range(seeds) for cells_on_bases in copies.values() for cell in cells_on_bases]
    runs = train_all(pairs, folder, processes)
    rows = [
        (name, [[runs[cell, seed] for seed in range(seeds)] for cell in cells_on_bases])
        for name, cells_on_bases in copies.items()
    ]
    return rows, record(runs)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--bases", type=int, choices=range(1, len(BASES) + 1), default=len(BASES), help="number of base models"
    )
    parser.add_argument("--only", choices=["main"], help=f"main: no studies, every method at the rate {RATES[1]:g}")
    args = parser.parse_args()
    os.chdir(ROOT)
    rates, bases = RATES[1:2] if args.only else RATES, BASES[: args.bases]
    chosen, sweep_rows = sweep(METHODS, args.folder, args.processes, rates, bases)
    methods = [method.extended(*chosen[method.name]) for method in METHODS]
    rows, records = run_rows(methods, bases, args.seeds, args.folder, args.processes)
    origin = provenance(args.folder)
    setting = f"{len(bases)} base model{'s' * (len(bases) > 1)} x {args.seeds} seeds per row, "
    setting += f"code at {origin['revision']}, on {origin['cpu']}; "
    setting += ("learning rates swept" if len(rates) > 1 else f"learning rate {rates[0]:g}") + ".\n"
    text = setting + methods_section(rows) + sweep_section(rates, sweep_rows)
    draw(rows, DOCS / "ablation.png")
    write_between_marks(DOCS.parent / "README.md", "ablation", f"{setting}\n{summary_table(dict(rows))}\n")
    write_between_marks(DOCS / "results.md", "ablation", f"{claims_section(dict(rows))}\n{setting}")
    write_between_marks(DOCS / "results-tables.md", "ablation", text)
    for study in () if args.only else [equal_time(dict(rows)), *STUDIES]:
        cells = [cell.extended(*chosen[method]) for cell, method in study.cells]
        study_bases = [base_model(name) for name in study.bases]
        rows, study_records = run_rows(cells, study_bases, args.seeds, args.folder, args.processes)
        records += study_records
        text += f"\n### {study.title}\n\n{sum(map(len, rows[0][1]))} runs per row.\n\n{results_table(rows)}\n"
        write_between_marks(DOCS / "results-tables.md", "ablation", text)
    save(RESULTS / "ablation.json", {"machine": origin, "chosen": chosen, "runs": records})


def methods_section(rows: Rows) -> str:
    """The picture and the three tables over all methods."""
    picture = "![Differences of Pass@1 to GRPO at equal steps, and the share of trained tokens](ablation.png)"
    text = f"\n{picture}\n\n### Comparisons\n\nAt equal steps.\n\n{comparisons_table(dict(rows))}\n"
    return text + f"\n### Methods\n\n{results_table(rows)}\n\n### Training\n\n{training_table(rows)}\n"


def sweep_section(rates: Sequence[float], rows: list[list[str]]) -> str:
    """The table of the sweep on validation problems."""
    table = markdown(["", "clip", *(f"{rate:g}" for rate in rates)], rows)
    return f"\n### Sweep\n\nPass@1 on validation problems by learning rate, one run each.\n\n{table}\n"


def base_model(name: str) -> str | Path:
    """A base model, created if missing; HALF_WARMUP is the first one after half of its warm-up."""
    if name == HALF_WARMUP:
        return ensure_base(BASES[0], steps=WARMUP["steps"] // 2)
    ensure_base(name)
    return name


if __name__ == "__main__":
    main()
