"""The tables of the studies in results-tables.md, and of the sections of beyond-tables.md."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import markdown
from d3s.evaluation.intervals import student_interval
from research.beyond import Section
from research.comparisons import END, Results
from research.records import Record
from research.result_tables import cell, escaped, mean_of, training_table
from research.rows import AGAIN, GRPO_SHAPED, ROWS, STATIC, STUDIES
from research.statistics import detectable, show


@dataclass(frozen=True)
class Study:
    """Rows of STUDIES that are compared with one of them."""

    title: str
    part: str  # of the rows' names, left out where they begin with it
    reference: str


TABLES = (
    Study("Rollouts kept, N of 32", " of 32, ", "N = 32 of 32, K = 10 %"),
    Study("Tokens kept, K", "N = 16 of 16, ", "N = 16 of 16, K = 100%"),
    Study("Schedules", "schedule: ", "schedule: linear"),
    Study("The paper's growth of N and K, G = 32", "G = 32: ", STATIC),
    Study("A poor base model: half of the warm-up", "poor base: ", "poor base: D3S-I"),
    Study("Claims on new seeds", AGAIN, AGAIN + GRPO_SHAPED),
    Study("Twice the time", "twice the time: ", "twice the time: GRPO, G = 16"),
)


def study_names(results: Results, part: str) -> list[str]:
    """The measured rows of STUDIES that have `part` in their names."""
    return results.measured(row for row in STUDIES if part in row.name)


def study_table(results: Results, study: Study) -> str:
    """The rows of a study, without the part of their names that all have."""
    return end_table(results, study_names(results, study.part), study.part, study.reference)


def section_text(results: Results, name: str, section: Section) -> str:
    """A section of beyond-tables.md: what was run, the table of its rows, and what they trained on."""
    names = [row.name for row in section.rows]
    runs = [run for row in names for run in results.all_runs(row)]
    bases, codes, cpus = (sorted({getattr(r, field) for r in runs}) for field in ("base", "revision", "cpu"))
    about = f"{section.rows[0].seeds} seeds on {', '.join(bases)}; 256 test problems x 8 samples; code at "
    about += f"{', '.join(codes)}, on {', '.join(cpus)}. Pass@k in %, differences of Pass@1 in points."
    others = [(row, reference) for reference in section.references for row in names if row != reference]
    seen = [100 * detectable(results.difference(*pair, END)) for pair in others]
    ends = " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(seen), max(seen))))
    about += f" As many runs would find true differences of {ends} with a probability of 80 %."
    table, trained = (
        end_table(results, names, f"{name}: ", *section.references),
        training_table(results, names, f"{name}: "),
    )
    return f"\n## {section.title}\n\n{about}\n\n{table}\n\nMeans over all steps:\n\n{trained}\n"


def end_table(results: Results, names: Sequence[str], part: str, *references: str) -> str:
    """Rows at the end of their runs: cost, accuracy, gradient norm, entropy, KL.

    Differences are to `references`; the labels leave out `part` where names begin with it.
    """
    lines = []
    for name in names:
        runs = results.all_runs(name)
        cost = np.mean([run.seconds[-1] / run.steps[-1] for run in runs])
        accuracies = [show(results.at_end(name, k)) for k in (1, 8)]
        norms = [f"{mean_of(runs, 'grad_norm'):.2f}", f"{max(np.nanmax(r.logged['grad_norm_peak']) for r in runs):.1f}"]
        kl = student_interval([run.kl_to_base[-1] for run in runs])
        rest = [f"{mean_of(runs, 'entropy'):.3f}", show(kl, False, 1, 3)]
        over = [
            "–" if name == reference else cell(results.difference, name, reference, END, signed=True)
            for reference in references
        ]
        label, costs = escaped(name.removeprefix(part)), [f"{runs[0].steps[-1]:.0f}", f"{cost:.2f}"]
        lines.append([label, *costs, *accuracies, *over, *norms, *rest])
    compared = [f"over {escaped(reference.removeprefix(part))}" for reference in references]
    header = ["", "steps", "seconds a step", "Pass@1", "Pass@8", *compared, "gradient norm", "largest"]
    return markdown([*header, "entropy", "KL to the base"], lines)


def curve_table(
    results: Results, part: str, values: Callable[[Record], np.ndarray], scale: float = 100, digits: int = 1
) -> str:
    """A curve [E] of every run of a study against steps, mean over runs."""
    names = study_names(results, part)
    steps = sorted({int(step) for name in names for run in results.all_runs(name) for step in run.steps})
    lines = []
    for name in names:
        found: dict[int, list[float]] = {}
        for run in results.all_runs(name):
            for step, value in zip(run.steps.astype(int).tolist(), values(run)):
                found.setdefault(step, []).append(value)
        cells = [f"{scale * np.mean(found[step]):.{digits}f}" if step in found else "" for step in steps]
        lines.append([escaped(name.removeprefix(part)), *cells])
    return markdown(["step", *map(str, steps)], lines)


def order_table(results: Results) -> str:
    """Rows on 128 problems, each asked several times: how far training in the last interval is above the test."""
    lines = []
    for name in results.measured(row for row in ROWS if row.name.startswith("128 problems")):
        runs = results.all_runs(name)
        gap = student_interval([run.logged["reward"][-1] - run.levels(1)[-1] for run in runs])
        dead = f"{100 * mean_of(runs, 'zero_std_groups'):.0f}"
        useful = f"{100 * mean_of(runs, 'usefulness'):.0f}"
        lines.append([name.removeprefix("128 problems, "), dead, useful, show(results.at_end(name)), show(gap, True)])
    header = [
        "",
        "groups without signal, %",
        "kept with A ≠ 0, %",
        "Pass@1 at the end",
        "training in the last 12 steps − test",
    ]
    return markdown(header, lines)
