"""Write the outcome of `make demo`, and of its two schedules, into README.md and research/results-tables.md.

    make demo && python -m research.demo_results

Reads runs/demo and docs/data/demo_schedules.csv. Writes between the `demo` marks of both pages, and copies the run's
picture to docs/demo.png.
"""

import csv
import shutil
from pathlib import Path

from benchmarks.harness import ROOT, machine, markdown, write_between_marks
from d3s.common import read_json_lines
from d3s.evaluation.intervals import Estimate, student_interval
from d3s.report.png import draw_demo_picture
from research.records import DATA, DOCS, RESEARCH
from research.statistics import show

TASKS = ("precedence", "countdown")
METRICS = {"pass@1": "Pass@1", "pass@8": "Pass@8", "maj@n": "maj@8"}
SCHEDULES = DATA.with_name("demo_schedules.csv")
PICTURE = "![Pass@1 and Pass@8, reward, entropy, N and K, tokens trained over the run](docs/demo.png)"


def describe(run: Path) -> tuple[str, str]:
    """A sentence and a section with a table, from the run directory of the demo."""
    before, *_, after = read_json_lines(run / "eval.jsonl")
    steps = read_json_lines(run / "metrics.jsonl")
    last, origin = steps[-1], machine()
    share = last["tokens_trained"] / last["tokens_generated"]
    rows = [
        [name, *(_with_interval(result, metric) for metric in METRICS), f"{result['mean_length']:.1f}"]
        for name, result in (("base model", before), ("after D3S", after))
    ]
    seconds = sum(step["time/step"] for step in steps)
    earlier = {task: show(growth(task, "pass@1", minibatches=4), signed=True) for task in TASKS}
    sentence = (
        f"Pass@1 goes from {before['pass@1']:.0%} to {after['pass@1']:.0%} on {after['problems']} test problems; "
        f"{share:.0%} of the sampled tokens were trained (one seed). N and K grow, which changes Pass@1 here by "
        f"{show(growth('precedence', 'pass@1'), signed=True)} points against constant ones.\n"
    )
    section = (
        f"Seed 0, {last['step']} steps, {seconds:.0f} s of training steps ({origin['cpu']}), code at "
        f"{origin['revision']}. Of {last['tokens_generated']:,} sampled tokens {last['tokens_trained']:,} "
        f"({share:.1%}) were trained. {after['problems']} test problems, {after['n']} samples each, in %, with 95 % "
        f"intervals over problems:\n\n{markdown(['', *METRICS.values(), 'tokens'], rows)}\n\n{schedule_table()}\n\n"
        "With K from 5 to 40 %, four mini-batches and 210 steps, growing changed Pass@1 by "
        f"{earlier['precedence']} points on precedence and {earlier['countdown']} on countdown.\n"
    )
    return sentence, section


def shares(task: str, schedule: str, metric: str, minibatches: int = 8) -> list[float]:
    """A share by seed, in the order of the seeds: pass@1, pass@8, or tokens (trained of generated)."""
    wanted = {"task": task, "schedule": schedule, "minibatches": str(minibatches)}
    with SCHEDULES.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    rows.sort(key=lambda row: int(row["seed"]))
    if metric == "tokens":
        return [int(row["tokens_trained"]) / int(row["tokens_generated"]) for row in rows]
    return [float(row[metric]) for row in rows]


def growth(task: str, metric: str, minibatches: int = 8) -> Estimate:
    """Growing minus constant N and K, paired by seed."""
    pairs = zip(*(shares(task, schedule, metric, minibatches) for schedule in ("growing", "constant")), strict=True)
    return student_interval([growing - constant for growing, constant in pairs])


def schedule_table() -> str:
    """Both schedules on both tasks, in %."""
    rows = []
    for task in TASKS:
        for metric, name in {"pass@1": "Pass@1", "pass@8": "Pass@8", "tokens": "tokens trained"}.items():
            means = (student_interval(shares(task, schedule, metric)) for schedule in ("growing", "constant"))
            rows.append([f"{task}, {name}", *(f"{100 * x.value:.1f}" for x in means), show(growth(task, metric), True)])
    return markdown(["N and K", "growing", "constant", "difference"], rows)


def _with_interval(result: dict, metric: str) -> str:
    return f"{100 * result[metric]:.1f} ({' to '.join(f'{100 * end:.1f}' for end in result[f'{metric}_ci'])})"


def main() -> None:
    run = ROOT / "runs" / "demo"
    sentence, section = describe(run)
    shutil.copy(draw_demo_picture(run), DOCS / "demo.png")
    write_between_marks(ROOT / "README.md", "demo", f"{sentence}\n{PICTURE}\n")
    write_between_marks(RESEARCH / "results-tables.md", "demo", section)


if __name__ == "__main__":
    main()
