"""Tables, claims and the picture of the runs on one card; research/card.py makes the runs.

Seconds are those of two CPU cores with vLLM, estimated from what each step generated and computed (card.COST): the runs
shared the card, whose own seconds say little.
"""

import statistics
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.harness import markdown
from d3s.data.problems import load_problems
from research import card
from research.records import DOCS, SAMPLES, TABLES
from research.statistics import Scores, detectable, holm, interval, p_value, show, subtract

MEASURED = DOCS / "data" / "card"
FIRST = DOCS / "data" / "card-first"  # the runs of commit d2bc5ed, of a harder task


def seeds_of(output: Path, part: str, row: str) -> list[float]:
    """The seeds whose runs of a row have ended."""
    return sorted({line["seed"] for line in card.read(output, "evaluations.csv", part) if line["row"] == row})


def rows_of(output: Path, part: str) -> list[str]:
    """The rows of a part: GRPO first, then in the order of their names, rows of one seed last."""
    rows = {line["row"] for line in card.read(output, "evaluations.csv", part)}
    return sorted(rows, key=lambda row: (len(seeds_of(output, part, row)) < 2, not row.startswith("GRPO"), row))


def learning_table(output: Path, part: str, k: int) -> str:
    """Pass@k by step: the mean over seeds, in brackets the lowest and the highest one."""
    rows = card.read(output, "evaluations.csv", part)
    steps = sorted({row["step"] for row in rows})
    cells = []
    for name in rows_of(output, part):
        line = [name, str(len(seeds_of(output, part, name)))]
        for step in steps:
            values = [100 * row[f"pass@{k}"] for row in rows if (row["row"], row["step"]) == (name, step)]
            spread = f" ({min(values):.1f}-{max(values):.1f})" if len(values) > 1 else ""
            line.append(f"{statistics.mean(values):.1f}{spread}")
        cells.append(line)
    return markdown([f"Pass@{k}, {part}", "seeds", *(f"step {step:.0f}" for step in steps)], cells)


def levels_table(output: Path, part: str) -> str:
    """Pass@1 at the first and the last step by the number of operations that a problem requires."""
    rows = card.read(output, "evaluations.csv", part)
    ends = min(row["step"] for row in rows), max(row["step"] for row in rows)
    problems = load_problems("synthetic:words", split=card.PARTS[part][2], limit=len(rows[0]["right"]))
    places: dict[str, list[int]] = {}
    for i, problem in enumerate(problems):
        places.setdefault(problem.source.rpartition("/")[2], []).append(i)
    levels, cells = sorted(places), []
    for name in rows_of(output, part):
        line = [name]
        for step in ends:
            right = [row["right"] for row in rows if (row["row"], row["step"]) == (name, step)]
            means = [statistics.mean(int(run[i]) for run in right for i in places[level]) for level in levels]
            line += [f"{100 * mean / SAMPLES:.0f}" for mean in means]
        cells.append(line)
    names = [f"{level}, step {step:.0f}" for step in ends for level in levels]
    return markdown([f"Pass@1, {part}", *names], cells)


def kind_of(row: str) -> str:
    """What a row selects, whatever the shape of its steps."""
    if card.RANDOM in row:
        return f"D3S, {card.RANDOM}"
    return "GRPO" if row.startswith("GRPO") else ",".join(row.split(",")[:2])


def entropy_table(output: Path) -> str:
    """Policy entropy, in nats, when the mean reward of three steps first reaches a level: of what is selected, by rate.

    Of all runs with short responses; the mean over runs, in brackets the lowest and the highest.
    """
    levels, runs = (0.3, 0.4, 0.5), {}
    for part in ("search", "test", "earlier"):
        for row in card.read(output, "steps.csv", part):
            runs.setdefault((part, row["row"], row["rate"], row["seed"]), []).append(row)
    found: dict[str, list[list[float]]] = {}
    for (_, row, rate, _), steps in runs.items():
        reward, entropy = (
            np.convolve([step[key] for step in steps], np.ones(3) / 3, "valid") for key in ("reward", "entropy")
        )
        at = [float(entropy[np.argmax(reward >= level)]) if max(reward) >= level else np.nan for level in levels]
        for name in (kind_of(row), f"rate {rate:g}"):
            found.setdefault(name, []).append(at)
    cells = []
    for name in sorted(found, key=lambda name: (name.startswith("rate"), name)):
        columns = [[value for value in column if value == value] for column in zip(*found[name], strict=True)]
        texts = [f"{statistics.mean(c):.2f} ({min(c):.2f}-{max(c):.2f}), {len(c)}" if c else "" for c in columns]
        cells.append([name, *texts])
    return markdown(["entropy, runs", *(f"at a reward of {level:.0%}" for level in levels)], cells)


def step_table(output: Path, part: str) -> str:
    """Medians of the seconds over the steps but the first, which loads kernels; what a run cost; its end."""
    curves, cells = card.curve(output, part), []
    for name in rows_of(output, part):
        own = [row for row in card.read(output, "steps.csv", part) if row["row"] == name]
        last = [row for row in own if row["step"] == max(row["step"] for row in own)]
        medians = [
            statistics.median(row[key] for row in own if row["step"] > 1) for key in ("seconds", "generate", "update")
        ]
        ends = [statistics.mean(row[key] for row in last) for key in ("entropy", "distinct")]
        share = statistics.mean(row["flops_share"] for row in own)
        cost = statistics.mean(points[-1][1] for run, points in curves.items() if run[0] == name)
        trained = statistics.mean(row["tokens_trained"] for row in last)
        line = [*(f"{value:.2f}" for value in (*medians, *ends)), f"{trained:,.0f}", f"{share:.0%}", f"{cost:,.0f}"]
        cells.append([name, *line])
    names = [
        "s a step",
        "generate",
        "update",
        "entropy at the end",
        "distinct",
        "tokens trained",
        "FLOPs",
        "two cores, s",
    ]
    return markdown([part, *names], cells)


def summary_table(output: Path, part: str) -> str:
    """The means over seeds for the README, of rows with several: Pass@1 early and at the end, Pass@8, cost."""
    curves, cells = card.curve(output, part), []
    for name in rows_of(output, part):
        runs = [points for run, points in curves.items() if run[0] == name]
        if len(runs) < 2:
            continue
        levels = [
            statistics.mean(points[at][2][key] for points in runs)
            for at, key in ((1, "pass@1"), (-1, "pass@1"), (-1, "pass@8"))
        ]
        own = [row for row in card.read(output, "steps.csv", part) if row["row"] == name]
        trained = statistics.mean(row["tokens_trained"] for row in own if row["step"] == runs[0][-1][0])
        cost = statistics.mean(points[-1][1] for points in runs)
        cells.append([name, *(f"{100 * level:.1f}" for level in levels), f"{trained:,.0f}", f"{cost:,.0f}"])
    early, late = (f"{runs[0][at][0]:.0f}" for at in (1, -1))
    names = [f"Pass@1 after {early} steps, %", f"after {late}, %", f"Pass@8 after {late}, %", "tokens trained"]
    return markdown(["SmolLM2-135M, word problems", *names, "seconds of two cores"], cells)


def search_table(output: Path) -> str:
    """Every searched run: Pass@1 by step, and at the budget by which its family was chosen."""
    cells = []
    for family in card.FAMILIES:
        chosen = card.choose(output, family)
        for run, score in sorted(card.scores(output, family).items(), key=lambda item: -item[1]):
            points = card.curve(output, "search")[run]
            levels = [f"{100 * row['pass@1']:.1f}" for *_, row in points[1:]]
            mark = "**" * (run[:2] == chosen)
            cells.append(
                [f"{mark}{run[0]}{mark}", f"{run[1]:g}", *levels, f"{100 * score:.1f}", f"{points[-1][1]:,.0f}"]
            )
    steps = [f"step {step:.0f}" for step, *_ in points[1:]]
    return markdown(["search, Pass@1", "rate", *steps, "at the budget", "two cores, s"], cells)


def actual(output: Path, name: str) -> str:
    """The row that a claim names: `best FAMILY` is what the search chose."""
    for family in card.FAMILIES:
        name = name.replace(card.BEST + family, card.choose(output, family)[0])
    return name


def scores_at(output: Path, claim: card.Claim, row: str, budget: float, seeds: Iterable[float]) -> Scores:
    """Pass@1 of every problem at a budget of the claim's axis: [runs, problems]; a run that ended has its last one."""
    curves, runs = card.curve(output, claim.part), []
    for seed in seeds:
        points = next(points for run, points in curves.items() if run[0] == row and run[2] == seed)
        spent = [point[0] if claim.axis == "steps" else point[1] for point in points]
        levels = TABLES[1][[[int(digit) for digit in point[2]["right"]] for point in points]]
        place = np.interp(budget, spent, np.arange(len(spent)))
        before = min(int(place), len(spent) - 2)
        runs.append(levels[before] + (place - before) * (levels[before + 1] - levels[before]))
    return {"words": np.array(runs)}


def difference(output: Path, claim: card.Claim) -> Scores | None:
    """Paired by seed and problem; None with fewer than two common seeds."""
    rows = [actual(output, name) for name in (claim.row, claim.reference)]
    seeds = sorted(set.intersection(*(set(seeds_of(output, claim.part, row)) for row in rows)))
    if len(seeds) < 2:
        return None
    curves = card.curve(output, claim.part)
    ends = [
        statistics.mean(points[-1][claim.axis != "steps"] for run, points in curves.items() if run[0] == row)
        for row in rows
    ]
    budget = min(ends)
    return subtract(*(scores_at(output, claim, row, budget, seeds) for row in rows))


def claims_table(output: Path) -> str:
    """Each claim: the difference of Pass@1 with its interval, what as many runs could see, and Holm's p-value."""
    found = [difference(output, claim) for claim in card.CLAIMS]
    adjusted = holm([float("nan") if scores is None else p_value(scores) for scores in found])
    cells = []
    for claim, scores, p in zip(card.CLAIMS, found, adjusted, strict=True):
        text = claim.text.replace("|", "\\|")
        if scores is None:
            cells.append([text, "not measured", "", "", "", ""])
            continue
        mean = float(scores["words"].mean())
        verdict = "undecided" if p >= 0.05 else "yes" if mean > 0 else "no"
        runs = str(len(scores["words"]))
        cells.append(
            [
                text,
                verdict,
                show(interval(scores), signed=True),
                f"{100 * detectable(scores):.1f}",
                f"{p:.3f}",
                runs,
            ]
        )
    return markdown(["claim", "here", "points of Pass@1", "could see", "p (Holm)", "seeds"], cells)


def draw(output: Path, part: str, path: Path) -> None:
    """Draw Pass@1 and Pass@8 against estimated seconds, a line for each seed."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import MUTED, SERIES, style

    rows = rows_of(output, part)
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9, 3.6), dpi=160, facecolor="white")
        for ax, k in zip(figure.subplots(1, 2), (1, 8), strict=True):
            for run, points in sorted(card.curve(output, part).items(), key=lambda item: rows.index(item[0][0])):
                label = run[0] if run[0] not in ax.get_legend_handles_labels()[1] else None
                values = [100 * row[f"pass@{k}"] for *_, row in points]
                seconds = [spent for _, spent, _ in points]
                ax.plot(seconds, values, "o-", color=SERIES[rows.index(run[0])], markersize=3, label=label)
            ax.set_title(f"Pass@{k}, %", loc="left", fontsize=10, fontweight="bold")
            ax.set_xlabel("seconds of training on two cores, estimated", color=MUTED)
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="lower center", ncols=len(labels), fontsize=7)
        figure.tight_layout(rect=(0, 0.06, 1, 1))
        figure.savefig(path)
