"""Tables, claims and the picture of the runs on one card; research/card.py makes the runs.

Seconds are those of two CPU cores with vLLM, estimated from what each step generated and computed
(card_records.COST): the runs shared the card, whose own seconds say little. Those with adapters are measured.
"""

import statistics
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.harness import markdown
from d3s.data.problems import load_problems
from research import card_records, card_rows
from research.records import DOCS, SAMPLES, TABLES
from research.statistics import Scores, detectable, holm, interval, p_value, show, subtract

MEASURED = DOCS / "data" / "card"
FIRST = DOCS / "data" / "card-first"  # the runs of commit d2bc5ed, of a harder task
# Model and task -> the part of their tests
TASKS = {"SmolLM2, word problems": "test", "SmolLM2, sorting": "sort", "Gemma 3 270M, sorting": "gemma"}
TASKS |= {"SmolLM2 with adapters": "adapters"}  # the same test problems


def seeds_of(output: Path, part: str, row: str) -> list[float]:
    """The seeds whose runs of a row have ended."""
    return sorted({line["seed"] for line in card_records.read(output, "evaluations.csv", part) if line["row"] == row})


def rows_of(output: Path, part: str) -> list[str]:
    """The rows of a part: GRPO first, then in the order of their names, rows of one seed last."""
    rows = {line["row"] for line in card_records.read(output, "evaluations.csv", part)}
    return sorted(rows, key=lambda row: (len(seeds_of(output, part, row)) < 2, not row.startswith("GRPO"), row))


def learning_table(output: Path, part: str, k: int) -> str:
    """Pass@k by step: the mean over seeds, in brackets the lowest and the highest one."""
    rows = card_records.read(output, "evaluations.csv", part)
    steps = sorted({row["step"] for row in rows})
    cells = []
    for name in rows_of(output, part):
        line = [name, str(len(seeds_of(output, part, name)))]
        for step in steps:
            values = [100 * row[f"pass@{k}"] for row in rows if (row["row"], row["step"]) == (name, step)]
            line.append(spread(values, 1))
        cells.append(line)
    return markdown([f"Pass@{k}, {part}", "seeds", *(f"step {step:.0f}" for step in steps)], cells)


def levels_table(output: Path, part: str) -> str:
    """Pass@1 at the first and the last step by the number of operations that a problem requires."""
    rows = card_records.read(output, "evaluations.csv", part)
    ends = min(row["step"] for row in rows), max(row["step"] for row in rows)
    problems = load_problems("synthetic:words", split=card_rows.PARTS[part][2], limit=len(rows[0]["right"]))
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
    if card_rows.RANDOM in row:
        return f"D3S, {card_rows.RANDOM}"
    return "GRPO" if row.startswith("GRPO") else ",".join(row.split(",")[:2])


def runs_of(output: Path, part: str) -> dict[tuple[str, float, float], list[dict]]:
    """The steps of each run (row, rate, seed) of a part."""
    runs: dict[tuple[str, float, float], list[dict]] = {}
    for step in card_records.read(output, "steps.csv", part):
        runs.setdefault((step["row"], step["rate"], step["seed"]), []).append(step)
    return runs


def entropies(steps: list[dict], levels: Iterable[float]) -> list[float]:
    """The policy entropy of a run when the mean reward of three steps first reaches each level; NaN if it does not."""
    reward, entropy = (
        np.convolve([step[key] for step in steps], np.ones(3) / 3, "valid") for key in ("reward", "entropy")
    )
    return [float(entropy[np.argmax(reward >= level)]) if max(reward) >= level else np.nan for level in levels]


def spread(values: list[float], digits: int, count: bool = False) -> str:
    """Mean of the values that are numbers, of several their extremes in brackets; and how many there are."""
    values = [value for value in values if value == value]
    if not values:
        return ""
    low, mean, high = (f"{value:.{digits}f}" for value in (min(values), statistics.mean(values), max(values)))
    return mean + f" ({low}-{high})" * (len(values) > 1) + f", {len(values)}" * count


def entropy_table(output: Path) -> str:
    """Policy entropy, in nats, at levels of the reward: of what is selected, by rate; of the word problems' runs."""
    levels, found = (0.3, 0.4, 0.5), {}
    for part in ("search", "test", "earlier"):
        for (row, rate, _), steps in runs_of(output, part).items():
            for name in (kind_of(row), f"rate {rate:g}"):
                found.setdefault(name, []).append(entropies(steps, levels))
    names = sorted(found, key=lambda name: (name.startswith("rate"), name))
    cells = [[name, *(spread(column, 2, count=True) for column in zip(*found[name], strict=True))] for name in names]
    return markdown(["entropy, runs", *(f"at a reward of {level:.0%}" for level in levels)], cells)


def remedy_table(output: Path) -> str:
    """The rows of the part `remedy`: accuracies, entropy at a reward of 40 % and at the end."""
    curves, runs, cells = card_records.curve(output, "remedy"), runs_of(output, "remedy"), []
    for name in card_rows.REMEDIES:
        own = [run for run in runs if run[0] == name]
        evaluated = [(at, key) for at, key in ((1, "pass@1"), (2, "pass@1"), (2, "pass@8"))]
        line = [spread([100 * curves[run][at][2][key] for run in own], 1) for at, key in evaluated]
        line += [spread([entropies(runs[run], (0.4,))[0] for run in own], 2)]
        line += [spread([runs[run][-1][key] for run in own], 2) for key in ("entropy", "distinct")]
        cells.append([name, str(len(own)), *line])
    middle, end = (f"{points[0]:.0f}" for points in next(iter(curves.values()))[1:])
    names = [f"Pass@1, step {middle}", f"step {end}", f"Pass@8, step {end}", "entropy at a reward of 40%"]
    return markdown(["remedy", "seeds", *names, "at the end", "distinct at the end"], cells)


def step_table(output: Path, part: str) -> str:
    """Medians of the seconds over the steps but the first, which loads kernels; what a run cost; its end.

    Seconds are those of the card; of runs that continued on CPU cores they are NaN, with adapters CPU seconds.
    """
    curves, cells = card_records.curve(output, part), []
    for name in rows_of(output, part):
        own = [row for row in card_records.read(output, "steps.csv", part) if row["row"] == name]
        last = [row for row in own if row["step"] == max(row["step"] for row in own)]
        medians = [
            np.nanmedian([row[key] for row in own if row["step"] > 1]) for key in ("seconds", "generate", "update")
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


def shown(output: Path, part: str) -> list[str]:
    """The rows of a part for the README and the picture: the chosen GRPO and D3S, and D3S with the paper's K."""
    chosen = [actual(output, card_rows.BEST + family, part) for family in card_rows.FAMILIES]
    return [row for row in dict.fromkeys((*chosen, card_rows.PAPER)) if len(seeds_of(output, part, row)) > 1]


def summary_table(output: Path) -> str:
    """Means over seeds: Pass@1 early and at the end, Pass@8, cost."""
    cells = []
    for task, part in TASKS.items():
        curves, steps = card_records.curve(output, part), runs_of(output, part)
        for name in shown(output, part):
            runs = [run for run in curves if run[0] == name]
            ends = [curves[run][-1] for run in runs]
            levels = (
                [curves[run][1][2]["pass@1"] for run in runs],
                *([end[2][f"pass@{k}"] for end in ends] for k in (1, 8)),
            )
            costs = [steps[run][-1]["tokens_trained"] for run in runs], [end[1] for end in ends]
            line = [f"{100 * statistics.mean(values):.1f}" for values in levels]
            line += [f"{statistics.mean(values):,.0f}" for values in costs]
            cells.append([f"{task}, {ends[0][0]:.0f} steps", name, str(len(runs)), *line])
    names = [f"Pass@1 after {curves[runs[0]][1][0]:.0f} steps, %", "at the end", "Pass@8"]
    return markdown(["test", "method", "seeds", *names, "tokens trained", "seconds of two cores"], cells)


def search_table(output: Path, part: str) -> str:
    """Every run of the search of a part: Pass@1 by step, and at the budget by which its family was chosen."""
    search, cells = card_rows.SEARCH_OF[part], []
    curves, tested = card_records.curve(output, search), {run[:2] for run in card_records.curve(output, part)}
    for family in (name for name in card_rows.FAMILIES if any(run[0].startswith(name) for run in curves)):
        for run, score in sorted(card_records.scores(output, family, search).items(), key=lambda item: -item[1]):
            points = curves[run]
            levels = [f"{100 * row['pass@1']:.1f}" for *_, row in points[1:]]
            mark = "**" * (run[:2] in tested)
            cells.append(
                [f"{mark}{run[0]}{mark}", f"{run[1]:g}", *levels, f"{100 * score:.1f}", f"{points[-1][1]:,.0f}"]
            )
    steps = [f"step {step:.0f}" for step, *_ in points[1:]]
    return markdown([f"{search}, Pass@1", "rate", *steps, "at the budget", "two cores, s"], cells)


def actual(output: Path, name: str, part: str) -> str:
    """The row that a claim names: `best FAMILY` is what the search of a part chose."""
    for family in card_rows.FAMILIES:
        if card_rows.BEST + family in name:
            chosen, _ = card_records.choose(output, family, card_rows.SEARCH_OF[part])
            name = name.replace(card_rows.BEST + family, chosen)
    return name


def scores_at(output: Path, claim: card_rows.Claim, row: str, budget: float, seeds: Iterable[float]) -> Scores:
    """Pass@1 of every problem at a budget of the claim's axis: [runs, problems]; a run that ended has its last one."""
    curves, runs = card_records.curve(output, claim.part), []
    for seed in seeds:
        points = next(points for run, points in curves.items() if run[0] == row and run[2] == seed)
        spent = [point[0] if claim.axis == "steps" else point[1] for point in points]
        levels = TABLES[1][[[int(digit) for digit in point[2]["right"]] for point in points]]
        place = np.interp(budget, spent, np.arange(len(spent)))
        before = min(int(place), len(spent) - 2)
        runs.append(levels[before] + (place - before) * (levels[before + 1] - levels[before]))
    return {"words": np.array(runs)}


def difference(output: Path, claim: card_rows.Claim, collapsed: bool = True) -> Scores | None:
    """Paired by seed and problem; None with fewer than two common seeds.

    Runs that answer otherwise before training began with other weights, of another machine's warm-up: they are no pair.

    Args:
        collapsed: with the seeds of which a run ended without a right answer.
    """
    curves = card_records.curve(output, claim.part)
    if not curves:
        return None
    rows = [actual(output, name, claim.part) for name in (claim.row, claim.reference)]
    found = [
        {
            (run[2], points[0][2]["right"])
            for run, points in curves.items()
            if run[0] == row and (collapsed or points[-1][2]["pass@1"] > 0)
        }
        for row in rows
    ]
    seeds = sorted(seed for seed, _ in set.intersection(*found))
    if len(seeds) < 2:
        return None
    ends = [
        statistics.mean(points[-1][claim.axis != "steps"] for run, points in curves.items() if run[0] == row)
        for row in rows
    ]
    budget = min(ends)
    return subtract(*(scores_at(output, claim, row, budget, seeds) for row in rows))


def claims_table(output: Path) -> str:
    """Each claim: the difference of Pass@1 with its interval, what as many runs could see, and Holm's p-value."""
    found = [difference(output, claim) for claim in card_rows.CLAIMS]
    adjusted = holm([float("nan") if scores is None else p_value(scores) for scores in found])
    cells = []
    for claim, scores, p in zip(card_rows.CLAIMS, found, adjusted, strict=True):
        text = claim.text.replace("|", "\\|")
        if scores is None:
            cells.append([text, "not measured", *[""] * 5])
            continue
        mean, seeds, planned = float(scores["words"].mean()), len(scores["words"]), len(card_rows.PARTS[claim.part][3])
        verdict = "undecided" if p >= 0.05 else "yes" if mean > 0 else "no"
        if seeds < planned:  # each look at a part of the seeds could end it by chance
            verdict = "open"
        runs = str(seeds) + f" of {planned}" * (seeds < planned)
        cells.append(
            [
                text,
                verdict,
                show(interval(scores), signed=True),
                f"{100 * detectable(scores):.1f}",
                f"{p:.3f}" if p >= 0.0005 else "< 0.001",
                runs,
                str(scores["words"].shape[1]),
            ]
        )
    return markdown(["claim", "here", "points of Pass@1", "could see", "p (Holm)", "seeds", "problems"], cells)


def survivors(output: Path) -> str:
    """A sentence: the best rows of sorting without the seeds of a collapsed run."""
    found = []
    for axis, where in (("seconds", "in equal seconds"), ("steps", "in as many steps")):
        claim = card_rows.Claim("", f"{card_rows.BEST}D3S", f"{card_rows.BEST}GRPO", axis, TASKS["SmolLM2, sorting"])
        scores = difference(output, claim, collapsed=False)
        found.append(f"{show(interval(scores), signed=True)} points {where}")
    left, seeds = len(scores["words"]), len(card_rows.PARTS[claim.part][3])
    points = " and ".join(found)
    return f"Not planned: over the {left} of {seeds} seeds whose runs did not end at 0 %, sorting differs by {points}."


def survivors_computed(output: Path) -> str:
    """A sentence: what the updates of the best rows of sorting computed, without the runs that collapsed."""
    part, tokens, shares = TASKS["SmolLM2, sorting"], [], []
    curves, steps = card_records.curve(output, part), runs_of(output, part)
    for family in card_rows.FAMILIES:
        row = actual(output, card_rows.BEST + family, part)
        own = [run for run in curves if run[0] == row and curves[run][-1][2]["pass@1"] > 0]
        tokens.append(statistics.mean(steps[run][-1]["tokens_trained"] for run in own))
        shares.append(100 * statistics.mean(step["flops_share"] for run in own for step in steps[run]))
    return (
        f"Of the runs of `sort` that did not end at 0 %, D3S trains {tokens[0] / tokens[1]:.1f} times fewer tokens, "
        f"with {shares[1]:.0f} % of the FLOPs of a dense update, GRPO with {shares[0]:.0f} %."
    )


def draw(output: Path, path: Path) -> None:
    """Draw Pass@1 of every test against estimated seconds, a line for each seed."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import MUTED, SERIES, style

    rows = list(dict.fromkeys(row for part in TASKS.values() for row in shown(output, part)))
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(14, 3.6), dpi=160, facecolor="white")
        handles = {}
        for ax, (task, part) in zip(figure.subplots(1, len(TASKS)), TASKS.items(), strict=True):
            for (row, *_), points in card_records.curve(output, part).items():
                if row in shown(output, part):
                    values = [100 * point["pass@1"] for *_, point in points]
                    color = SERIES[rows.index(row)]
                    (handles[row],) = ax.plot(
                        [spent for _, spent, _ in points], values, "o-", color=color, markersize=3
                    )
            ax.set_title(f"{task}: Pass@1, %", loc="left", fontsize=10, fontweight="bold")
        lines = [handles[row] for row in rows]
        figure.legend(lines, rows, frameon=False, loc="lower center", ncols=len(rows), fontsize=7)
        figure.supxlabel(
            "seconds of training on two cores, estimated; with adapters measured", color=MUTED, fontsize=9, y=0.08
        )
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        figure.savefig(path)
