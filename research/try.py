"""Is an idea better? Train it beside GRPO and D3S with equal seeds and problems, and say what can be told.

    python -m research.try my_rules.py:my_tokens                   (a rule; its option follows from its arguments)
    python -m research.try loss.kind=my_rules:my_loss optim.max_grad_norm=0.5
    python -m research.try configs/method/pods.yaml --minutes 60

Rules and overrides change the row "D3S, G = 4"; files and options of the schedule change configs/ablation.yaml, with
G = 16. The idea has the learning rate that was searched for that row, or for the row with the same arguments;
optim.learning_rate=X sets another, --search searches. Both built-in tasks count alike, on validation problems.

Seed by seed is trained until the time, which includes everything, is over; the same command goes on, with more seeds.
Each look at more seeds spends a part of the error rate of 5 % for both controls. Runs are kept in runs/try, by CPU and
code, so controls run once. CPU seconds of a step are measured apart, the three taking turns in one process.
"""

import argparse
import inspect
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, machine, markdown, revision
from d3s.common import UserError, exit_code, silence_libraries
from d3s.config import yaml12
from d3s.config.checks import RULES, contract_of
from d3s.rules import Contract, load_object
from d3s.threads import choose_threads, usable_cores
from d3s.trials import attempt, attempt_rules
from research.ablation import Campaign
from research.jobs import BASE_FILES, FORKS, Job, config_of, setting_of
from research.records import Record, read
from research.row import COMMON, TASKS, Row
from research.rows import BY_NAME, D3S_SMALL, GRPO_BEST, ROWS
from research.statistics import Scores, detectable, interval, p_value, score_at, show, subtract
from research.step_costs import Chunk, measure

STEPS, EVERY = 48, 12
FIRST_SEED, SEEDS_APART = 3000, 1000  # of no other run; tasks share no seed
ERROR = 0.05  # of calling a difference where there is none, over all looks and both controls
SHOWN_EVERY_S, FINISH_S = 30, 20  # between lines of progress; for tables and picture
COST_STEPS, COST_WARM = 20, 4  # measured steps of each arm, of which the first do not count
FIXED = ("eval.", "model.", "train.steps", "train.seed", "train.output_dir", "train.checkpoint", "checkpoint.")
RATE = "optim.learning_rate="
CONTROLS = (GRPO_BEST, D3S_SMALL)
EQUAL = ("steps", "seconds")
Costs = dict[str, dict[str, float]]  # base model -> arm -> CPU seconds of a step
Runs = dict[str, dict[str, list[Record]]]  # arm -> base model -> runs, of the same seeds in every arm


# --- the idea ---------------------------------------------------------------------------------------------------------


def option_of(name: str) -> str:
    """The option that a bare `module:function` serves: the only one whose contract it fulfils.

    Raises: UserError if there is none or several.
    """
    load_object(name, "idea")
    problems: dict[str, str] = {}
    for contract in map(contract_of, RULES):
        option, tried = contract.option, contract.examples or getattr(contract, "trial", None)
        with suppress(UserError):  # a function without the arguments of this contract
            rule = contract.rule(name)
            if tried and (rule.takes or inspect.isclass(rule.function)):
                problems[option] = _problem(contract, name)
    fits = [option for option, problem in problems.items() if not problem]
    if len(fits) == 1:
        return fits[0]
    if len(problems) == 1:
        raise UserError(*problems.values())
    which = f"fits {' and '.join(fits)}" if fits else "fits no option by its arguments and what it returns"
    raise UserError(f"{name}: {which}; name the option, as in {(fits or ['selector.tokens'])[0]}={name}")


def _problem(contract: Contract, name: str) -> str:
    try:
        attempt(contract, name, config_of(COMMON))
    except UserError as error:
        return str(error)
    return ""


def arguments_of(words: Sequence[str]) -> tuple[str, ...]:
    """The files and overrides that an idea consists of. Raises UserError for anything else."""
    arguments = []
    for word in words:
        word = re.sub(r"([\w./]+)\.py:", lambda match: match[1].removeprefix("./").replace("/", ".") + ":", word)
        if "=" in word:
            if word.startswith(FIXED):
                raise UserError(f"{word.partition('=')[0]}: set by research.try, as for the controls; leave it out")
            arguments.append(word)
        elif word.endswith((".yaml", ".yml")):
            if not (ROOT / word).is_file():
                raise UserError(f"{word}: no such file, expected an overlay such as configs/method/pods.yaml")
            for key in keys_of(word):
                if key.startswith(FIXED):
                    raise UserError(f"{word}: {key} is set by research.try, as for the controls; leave it out")
            arguments.append(word)
        elif ":" in word:
            arguments.append(f"{option_of(word)}={word}")
        else:
            raise UserError(f"{word}: expected module:function, section.key=value or a file that ends in .yaml")
    return tuple(arguments)


def keys_of(file: str) -> list[str]:
    """The options that a configuration file sets, as section.key."""
    content = yaml12.load((ROOT / file).read_text(encoding="utf-8")) or {}
    sections = content.items() if isinstance(content, dict) else ()
    return [f"{section}.{key}" for section, values in sections if isinstance(values, dict) for key in values]


def idea_of(words: Sequence[str], search: bool = False) -> Row:
    """The row of an idea. Its name has a hash of the user's files, so that a changed file is another idea.

    Raises: UserError for an idea that no run accepts.
    """
    own = arguments_of(words)
    whole = any("=" not in argument or argument.startswith("schedule.") for argument in own)
    start = BY_NAME["D3S" if whole else D3S_SMALL]
    changed = () if any("=" not in argument for argument in own) else start.arguments
    config = config_of((*COMMON, *changed, *own))
    attempt_rules(config)
    arguments = (*changed, *(argument for argument in own if not argument.startswith(RATE)))
    set_here = any(a.startswith(RATE) if "=" in a else RATE.rstrip("=") in keys_of(a) for a in own)
    rate = config.optim.learning_rate if set_here else None
    if arguments == start.arguments and not rate:
        raise UserError(f"{' '.join(words)}: this is the control {start.name}; name what the idea changes")
    same = next((row.name for row in ROWS if row.arguments == arguments), start.name)
    names = [name for argument in own for name in re.findall(r"([\w.]+):[A-Za-z_]", argument)]
    files = [ROOT / argument for argument in own if "=" not in argument]
    files += [Path(spec.origin) for name in names if (spec := find_spec(name)) and spec.origin]
    content = sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:6]
    rate_of = None if rate or search else BY_NAME[same].rate_of or same
    return Row(f"{' '.join(words)} [{content}]", arguments, STEPS, EVERY, TASKS, rate_of=rate_of, rate=rate)


def file_name(idea: str) -> str:
    """What the files of an idea are called."""
    return re.sub(r"[^A-Za-z0-9]+", "-", idea).strip("-")


def code_hash() -> str:
    """A hash of the CPU's name, the code that trains, and the settings that all runs share."""
    files = [*sorted((ROOT / "d3s").rglob("*.py")), *(ROOT / name for name in (*BASE_FILES, "configs/countdown.yaml"))]
    return sha256(b"\0".join([machine()["cpu"].encode(), *(file.read_bytes() for file in files)])).hexdigest()[:8]


# --- running ----------------------------------------------------------------------------------------------------------


def train(idea: Row, folder: Path, processes: int, minutes: float, search: bool) -> tuple[Runs, Costs]:
    """Train the idea and the controls, seed by seed, until the time is over; the runs of each, and costs of a step.

    Raises: UserError if a run fails.
    """
    end = time.monotonic() + 60 * minutes
    campaign = Campaign(folder / "runs.csv", folder, processes, minutes, revision())
    if search and not campaign.sweep([idea]):
        raise UserError(
            f"--minutes: the search of the learning rate needs more than {minutes:.3g}; call again, it goes on"
        )
    known = {record.identity: record for record in read()} | campaign.records
    rows = [replace(BY_NAME[name], steps=STEPS, every=EVERY, bases=TASKS) for name in CONTROLS] + [idea]
    jobs = {row.name: Job("try", row, TASKS[0], 0, setting_of(row, known)) for row in rows}
    kept, started = folder / f"{file_name(idea.name)}-costs.json", time.monotonic()
    longest = 0.0  # seconds of a round
    if not kept.exists():
        kept.write_text(json.dumps(step_costs(list(jobs.values()), processes)))
        longest = (time.monotonic() - started) * STEPS / COST_STEPS  # as many runs, of fewer steps
    costs = json.loads(kept.read_text())
    for seed in count():
        started = time.monotonic()
        if seed and started + longest > end:
            break
        campaign.deadline = end - longest * processes / (len(jobs) * len(TASKS))  # for the start of a run
        round_of = [
            replace(job, base=base, seed=FIRST_SEED + SEEDS_APART * i + seed)
            for i, base in enumerate(TASKS)
            for job in jobs.values()
        ]
        try:
            campaign.run(round_of)
        except RuntimeError as error:
            first, *_, last = str(error).strip().splitlines()
            raise UserError(f"{first.removesuffix(':')}; {last}") from None
        longest = max(longest, time.monotonic() - started)
    runs = paired(campaign.records.values(), jobs)
    if set(runs[idea.name]) != set(TASKS):
        raise UserError(
            f"--minutes: {minutes:.3g} are too few for one run of each on both tasks, which takes about "
            f"{1 + longest / 60:.0f}; the same command goes on"
        )
    return runs, costs


def step_costs(jobs: Sequence[Job], processes: int) -> Costs:
    """CPU seconds of a step, the arms taking turns in one process for each task."""
    arms = [replace(job, row=replace(job.row, steps=COST_STEPS, every=COST_WARM)) for job in jobs]
    chunks = []
    for i, base in enumerate(TASKS):
        on_base = [replace(job, base=base) for job in arms]
        for job in on_base:
            job.arguments()  # creates base models before the processes need them
        chunks.append(Chunk(i, base, tuple((job, False) for job in on_base)))
    print("measuring the seconds of a step, in turns", flush=True)
    costs: Costs = {base: {} for base in TASKS}
    with ProcessPoolExecutor(processes, mp_context=FORKS) as pool:
        for part in pool.map(measure, chunks):
            for row, _, base, _, step, seconds in part:
                sign = {COST_WARM: -1, COST_STEPS: 1}.get(step, 0)
                costs[base][row] = costs[base].get(row, 0.0) + sign * float(seconds) / (COST_STEPS - COST_WARM)
    return costs


def paired(records: Iterable[Record], jobs: dict[str, Job]) -> Runs:
    """The runs of every arm at its present setting, by base model, on the seeds that all arms have."""
    wanted = {(name, job.identity()[-1]) for name, job in jobs.items()}
    by_seed: dict[tuple[str, int], dict[str, Record]] = {}
    for record in records:
        if record.part == "try" and (record.row, record.identity[-1]) in wanted:
            by_seed.setdefault((record.base, record.seed), {})[record.row] = record
    runs: Runs = {name: {} for name in jobs}
    for (base, _), of_seed in sorted(by_seed.items()):
        if len(of_seed) == len(jobs):
            for name, record in of_seed.items():
                runs[name].setdefault(base, []).append(record)
    return runs


# --- the answer -------------------------------------------------------------------------------------------------------


def scores(runs: dict[str, list[Record]], costs: Costs, axis: str) -> Scores:
    """Pass@1 of an arm's runs after STEPS steps, or in the CPU seconds that the cheapest arm takes for these."""
    found = {}
    for base, of_base in runs.items():
        cost = costs[base][of_base[0].row]
        budget = STEPS if axis == "steps" else STEPS * min(costs[base].values())
        timed = [replace(run, seconds=cost * run.steps) for run in of_base]
        found[base] = np.stack([score_at(run, axis, budget) for run in timed])
    return found


# sum over looks of 1 / (look (look + 1)) = 1, so all looks together err at most with ERROR, however many there are
def spent(look: int) -> float:
    """The error rate that the difference to each control may have in this look, the first of which is 1."""
    return ERROR / (look * (look + 1)) / len(CONTROLS)


def count_look(path: Path, runs: Runs) -> int:
    """The number of this look, kept in a file: looking again at the same number of runs is the same look."""
    looks = json.loads(path.read_text()) if path.exists() else []
    size = sum(len(of_one) for of_base in runs.values() for of_one in of_base.values())
    if size not in looks:
        looks.append(size)
        path.write_text(json.dumps(looks))
    return 1 + looks.index(size)


def verdict(idea: str, control: str, gaps: Scores, axis: str, look: int = 1) -> str:
    """What the runs say of a difference, in one sentence."""
    gap, count, p = interval(gaps), sum(map(len, gaps.values())), p_value(gaps)
    where = {"steps": "in as many steps", "seconds": "in as many CPU seconds"}[axis]
    if gap.low is None:
        return "Cannot tell yet: an interval needs two runs on each task; the same command adds some."
    tested = f"p = {p:.2g}; look {look} asks for at most {spent(look):.2g}."
    if p > spent(look):
        reason = "which includes 0" if gap.low <= 0 <= gap.high else "too little for this look"
        return (
            f"Cannot tell whether {idea} is better or worse than {control} {where}: the difference, from {count} pairs "
            f"of runs, is {show(gap, True)} points, {reason}; one of {100 * detectable(gaps):.1f} points would have "
            f"been seen four times in five. {tested}"
        )
    sign = "better" if gap.value > 0 else "worse"
    return f"{idea} is {sign} than {control} {where}, by {show(gap, True)} points. {tested}"


def differences(idea: str, runs: Runs, costs: Costs) -> dict[tuple[str, str], Scores]:
    """Pass@1 of the idea minus that of each control, paired, by control and axis."""
    of_arm = {(name, axis): scores(of_base, costs, axis) for name, of_base in runs.items() for axis in EQUAL}
    return {
        (control, axis): subtract(of_arm[idea, axis], of_arm[control, axis]) for control in CONTROLS for axis in EQUAL
    }


def answer(idea: str, label: str, runs: Runs, costs: Costs, look: int = 1) -> str:
    """Tables and sentences of what the runs say."""
    levels, gaps = [], differences(idea, runs, costs)
    for name, of_base in runs.items():
        records = [run for of_one in of_base.values() for run in of_one]
        share = sum(run.trained[-1] for run in records) / sum(run.generated[-1] for run in records)
        at = [show(interval(scores(of_base, costs, axis))) for axis in EQUAL]
        cost = np.mean([of_arm[name] for of_arm in costs.values()])
        levels.append([label if name == idea else name, *at, f"{cost:.3f}", f"{100 * share:.0f}"])
    over = [
        [f"over {control}, equal {axis}", show(interval(gap), True), f"{100 * detectable(gap):.1f}"]
        for (control, axis), gap in gaps.items()
    ]
    header = ["Pass@1, %", "equal steps", "equal CPU seconds", "CPU seconds a step", "tokens trained, %"]
    compared = markdown([label, "points of Pass@1 (95 %)", "could have seen"], over)
    sentences = [verdict(label, control, gap, axis, look) for (control, axis), gap in gaps.items() if axis == "seconds"]
    return "\n\n".join([markdown(header, levels), compared, *dict.fromkeys(sentences)])


def draw(idea: str, label: str, runs: Runs, costs: Costs, path: Path) -> None:
    """Draw Pass@1 against CPU seconds on each task, and the differences to the controls with their intervals."""
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import INK, MUTED, SERIES, style

    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(13, 4), dpi=120, facecolor="white", layout="constrained")
        *panels, ax = figure.subplots(1, len(TASKS) + 1)
        for panel, base in zip(panels, TASKS):
            for color, (name, of_base) in zip(SERIES, runs.items()):
                curve = 100 * np.mean([run.levels(1) for run in of_base[base]], axis=0)
                seconds = costs[base][name] * of_base[base][0].steps
                panel.plot(seconds, curve, "o-", color=color, markersize=3, label=label if name == idea else name)
            panel.axvline(STEPS * min(costs[base].values()), color=MUTED, linewidth=0.8, linestyle=":")
            panel.set_title(f"Pass@1, %, {base.removeprefix('tiny:')}", loc="left", fontsize=10, fontweight="bold")
            panel.set_xlabel("CPU seconds of training", color=MUTED)
        panels[0].legend(fontsize=7)
        gaps = differences(idea, runs, costs)
        for y, gap in enumerate(map(interval, gaps.values())):
            if gap.low is not None:
                ax.plot([100 * gap.low, 100 * gap.high], [-y, -y], color=SERIES[len(CONTROLS)], linewidth=2)
            ax.plot(100 * gap.value, -y, "o", color=SERIES[len(CONTROLS)], markersize=5)
        ax.axvline(0, color=INK, linewidth=0.8)
        labels = [f"over {control.partition(', N')[0]},\nequal {axis}" for control, axis in gaps]
        ax.set_yticks(range(0, -len(gaps), -1), labels, color=INK, fontsize=8)
        ax.set_title("points of Pass@1, 95 % interval", loc="left", fontsize=10, fontweight="bold")
        figure.savefig(path)


def since_start() -> float:
    """Seconds since this process began, its imports included."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def tell_time(end: float, over: threading.Event) -> None:
    """Say every SHOWN_EVERY_S seconds how much time is left, until `over`."""
    while not over.wait(SHOWN_EVERY_S):
        print(f"{max(0.0, end - time.monotonic()) / 60:5.1f} min left", flush=True)


def main(words: Sequence[str] | None = None, spent_s: float = 0.0) -> None:
    """Run the command line. Raises UserError for an idea that cannot be tried.

    Args:
        spent_s: seconds of --minutes that are over.
    """
    started = time.monotonic() - spent_s
    parser = argparse.ArgumentParser(
        prog="python -m research.try", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("idea", nargs="+", help="module:function, section.key=value, or a configuration file")
    parser.add_argument("--minutes", type=float, default=15, help="end within these, all included (default: 15)")
    cores = usable_cores()
    parser.add_argument("--processes", type=int, default=cores, help="runs at a time (default: all usable cores)")
    parser.add_argument(
        "--search", action="store_true", help="search the idea's learning rate first, as the controls' was"
    )
    args = parser.parse_args(words)
    silence_libraries()
    choose_threads(0)
    os.chdir(ROOT)
    idea, label = idea_of(args.idea, args.search), " ".join(args.idea)
    folder, over = ROOT / "runs" / "try" / code_hash(), threading.Event()
    end = started + 60 * args.minutes - FINISH_S
    threading.Thread(target=tell_time, args=(end, over), daemon=True).start()
    try:
        minutes = (end - time.monotonic()) / 60
        runs, costs = train(idea, folder, args.processes, minutes, args.search)
    except KeyboardInterrupt:
        raise UserError("stopped; the same command goes on") from None
    finally:
        over.set()
    name = file_name(idea.name)
    text = answer(idea.name, label, runs, costs, count_look(folder / f"{name}-looks.json", runs))
    draw(idea.name, label, runs, costs, folder / f"{name}.png")
    (folder / f"{name}.md").write_text(f"{text}\n")
    print(f"\n{text}\n\nwritten: {folder / name}.md and .png")


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(spent_s=since_start())))
