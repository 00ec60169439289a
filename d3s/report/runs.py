"""Read run directories: curves of metrics and evaluations, groups of seeds, final values.

A run may still be training: an incomplete last line is skipped, and a missing file or metric gives an empty curve.
"""

import json
import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from d3s.common import UserError, printable, read_json_lines, scored_by
from d3s.config import yaml12
from d3s.evaluation.intervals import Estimate, student_interval

AXES = {"step": "step", "tokens": "tokens_trained", "time": "wall_time"}
BUDGETS = AXES | {"time": "process_time"}  # what runs may spend alike: wall time x processes, of the evaluations
LAST = 0.1  # final values of noisy metrics are means over this last share of the steps
OF_UPDATES = ("loss", "grad_norm")  # logged as 0 by a step that updates nothing
RUN_SPECIFIC = ("checkpoint", "tracker")  # configuration sections that do not affect what is learned

Curve = tuple[np.ndarray, np.ndarray]  # x and y of equal length, x non-decreasing, no NaN


@dataclass(frozen=True)
class Run:
    """The contents of one run directory. `config` is {} if config.yaml is missing or unreadable.

    `machine` has its processes and their hardware, `content` the hashes of its data and code, if it has a machine.json.
    """

    path: Path
    config: dict
    metrics: list[dict]
    evaluations: list[dict]
    warnings: list[dict]
    machine: dict[str, str] = field(default_factory=dict)
    content: dict[str, str] = field(default_factory=dict)
    changes: dict[int, dict] = field(default_factory=dict)  # step of a resumption -> option or content: old value

    @property
    def seed(self) -> int | None:
        seed = self.config.get("train", {}).get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def total_steps(self) -> int | None:
        """The planned steps, None without a configuration."""
        steps = self.config.get("train", {}).get("steps")
        return steps if isinstance(steps, int) else None

    @property
    def last_step(self) -> int:
        return max((line["step"] for line in self.metrics + self.evaluations), default=0)

    @property
    def is_finished(self) -> bool:
        """Whether it has no planned step left, or eval.stop_at has ended it."""
        reached = any(line.get("key") == "stop_at" and line["step"] >= self.last_step for line in self.warnings)
        return reached or self.last_step >= (self.total_steps or 0)

    @property
    def benchmarks(self) -> list[str]:
        """Names of the evaluated data sets with what scored them, in order of appearance."""
        return list(dict.fromkeys(map(benchmark_name, self.evaluations)))

    def curve(self, key: str, axis: str = "step", steps: Container[int] | None = None) -> Curve:
        """Return `key` against `axis`: a name of AXES, or a field of the lines; only at these `steps`, if given.

        The key "eval/DATA/pass@1" reads the evaluations of DATA. Lines without both numbers are skipped, so the curve
        may be empty. OF_UPDATES skip steps without an update.
        """
        lines = self.metrics
        if key.startswith("eval/"):
            data, key = _split_benchmark(key)
            lines = [record for record in self.evaluations if benchmark_name(record) == data]
        elif key in OF_UPDATES:
            lines = [line for line in lines if line.get("optimizer_steps", 1)]
        lines = lines if steps is None else [line for line in lines if line["step"] in steps]
        return _columns([(_number(line, AXES.get(axis, axis)), _number(line, key)) for line in lines], 2)

    def evaluated(self, key: str) -> int:
        """Return the last step at which the data set of "eval/DATA/METRIC" was evaluated, by whatever metrics."""
        data, _ = _split_benchmark(key)
        return max((record["step"] for record in self.evaluations if benchmark_name(record) == data), default=0)

    def interval(self, key: str, axis: str = "step") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return x, low and high of an evaluation's interval over problems, METRIC_ci; empty arrays without one."""
        data, metric = _split_benchmark(key)
        records = [r for r in self.evaluations if benchmark_name(r) == data and r.get(f"{metric}_ci")]
        bounds = [dict(enumerate(record[f"{metric}_ci"])) for record in records]
        return _columns([(_number(r, AXES[axis]), _number(b, 0), _number(b, 1)) for r, b in zip(records, bounds)], 3)


def benchmark_name(record: dict) -> str:
    """The data set of an evaluation and what scored it: values by other rewards are other metrics."""
    return record.get("data", "test") + scored_by(record)


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed."""

    name: str
    runs: list[Run]

    def curves(self, key: str, axis: str = "step", steps: Container[int] | None = None) -> list[Curve]:
        """Return the non-empty curves of `key`, one per run. Arguments are those of Run.curve."""
        return [curve for run in self.runs if len((curve := run.curve(key, axis, steps))[0])]


def is_single_run(groups: Sequence[Group]) -> bool:
    """Return whether `groups` hold one run, which gets a summary, rather than a comparison."""
    return len(groups) == 1 and len(groups[0].runs) == 1


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Read the runs at `paths`. A directory that is not a run is replaced by the runs in it.

    Raises: UserError if there is no run, no line of metrics yet, or a file that cannot be read.
    """
    runs = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise UserError(f"{path}: no such run directory")
        try:
            inner = [p for p in sorted(path.iterdir()) if _is_run(p)] if not _is_run(path) else [path]
            runs += [_load_run(p) for p in inner]
        except OSError as error:
            raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error
        if not inner:
            raise UserError(f"{path}: no metrics yet; expected lines in metrics.jsonl, there or in a subdirectory")
    unique = {run.path.resolve(): run for run in runs}
    return list(unique.values())


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group the runs whose configurations (without configurations: directory names) differ only in the seed.

    Runs with the same configuration and the same seed are not independent: directory names then separate them, and
    numbers where these are equal.
    """
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        config = _comparable(run)
        key = json.dumps(config, sort_keys=True, default=str) if config else _seedless_name(run.path)
        by_config.setdefault(key, []).append(run)
    members: list[list[Run]] = []
    for candidates in by_config.values():
        repeated = candidates[0].seed is not None and len({run.seed for run in candidates}) < len(candidates)
        by_name: dict[tuple[str, int], list[Run]] = {}
        seen: Counter[tuple[str, int]] = Counter()
        for run in candidates:
            name = _seedless_name(run.path) if repeated else ""
            by_name.setdefault((name, seen[name, run.seed] if repeated else 0), []).append(run)
            seen[name, run.seed] += 1
        members += by_name.values()
    return [Group(name, runs) for name, runs in zip(_distinct_names(members), members)]


def mean_and_spread(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, mean and sample standard deviation of `curves`, interpolated linearly at the union of their points.

    The result covers only the x that every curve reaches. The deviation of a single curve is 0.
    """
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= low) & (grid <= high)]
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    spread = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(grid))
    return grid, values.mean(axis=0), spread


def smooth(y: np.ndarray, window: int) -> np.ndarray:
    """Centered moving average. `window` is rounded up to an odd number and shrinks symmetrically at both ends."""
    reach = np.minimum(window // 2, np.minimum(np.arange(len(y)), np.arange(len(y))[::-1]))
    total, index = np.concatenate([[0.0], np.cumsum(y)]), np.arange(len(y))
    return (total[index + reach + 1] - total[index - reach]) / (2 * reach + 1)


def finals(group: Group, key: str) -> list[float]:
    """Return a final value per run: of its last evaluation, or the mean over the last tenth of its steps.

    A run has none if its last evaluation lacks the key, or is before the first step, or if it is not finished and
    others went further.
    """
    if key.startswith("eval/"):
        return [float(run.curve(key)[1][-1]) for run in _evaluated_last(group, key)]
    last = max(run.last_step for run in group.runs)
    ended = [run for run in group.runs if run.is_finished or run.last_step == last]
    curves = [y for run in ended if len(y := run.curve(key)[1])]
    return [float(y[-max(1, round(LAST * len(y))) :].mean()) for y in curves]


def _evaluated_last(group: Group, key: str) -> list[Run]:
    """The runs that have a final value of an evaluation, see finals."""
    last = max(run.evaluated(key) for run in group.runs)
    ends = [(run, run.evaluated(key) if run.is_finished else last) for run in group.runs]
    return [run for run, end in ends if len(x := run.curve(key)[0]) and x[-1] >= max(1, end)]


def final_estimate(group: Group, key: str) -> Estimate | None:
    """Return the final value with an interval over seeds; for the evaluation of a single run, over problems."""
    values = finals(group, key)
    if not values:
        return None
    if len(values) == 1 and key.startswith("eval/"):
        (run,) = _evaluated_last(group, key)
        last = (bounds for step, *bounds in zip(*run.interval(key)) if step == run.evaluated(key))
        return Estimate(values[0], *map(float, next(last, ())))
    return student_interval(values)


def common_steps(groups: Sequence[Group], key: str) -> set[int]:
    """Return the steps that every run with `key` has it for."""
    return set.intersection(*({int(step) for step in x} for group in groups for x, _ in group.curves(key)))


def common_budget(groups: Sequence[Group], key: str, axis: str, steps: Container[int]) -> float | None:
    """Return the largest x on `axis` that every run with `key` has reached at `steps`.

    None if no run has `key`, or if a run begins beyond that x, where it has no value.
    """
    curves = [x for group in groups for x, _ in group.curves(key, BUDGETS[axis], steps)]
    if not curves or max(x[0] for x in curves) > (budget := min(x[-1] for x in curves)):
        return None
    return float(budget)


def at_budget(group: Group, key: str, axis: str, budget: float, steps: Container[int]) -> list[float]:
    """Return `key` at x = `budget`, interpolated linearly between `steps`, for each run."""
    return [float(np.interp(budget, x, y)) for x, y in group.curves(key, BUDGETS[axis], steps)]


def differing_settings(groups: Sequence[Group]) -> dict[str, list[object]]:
    """Return the settings, data, code and machines that differ between groups: {"section.key": [value in each]}."""
    configs = [_comparable(group.runs[0]) | _machines(group) for group in groups]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    values = {key: [config.get(key, "–") for config in configs] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def _split_benchmark(key: str) -> tuple[str, str]:
    """Split "eval/DATA/METRIC" into (DATA, METRIC). DATA may contain slashes."""
    data, metric = key.removeprefix("eval/").rsplit("/", 1)
    return data, metric


def _is_run(path: Path) -> bool:
    return path.is_dir() and any(_read_lines(path / f"{name}.jsonl") for name in ("metrics", "eval"))


def _load_run(path: Path) -> Run:
    try:
        config = yaml12.load((path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        config = {}
    files = (path / f"{name}.jsonl" for name in ("metrics", "eval", "warnings"))
    metrics, evaluations, warnings = (_read_lines(file, warn=True) for file in files)
    for line in metrics:
        kept, total = _number(line, "selection/rollouts"), _number(line, "selection/rollouts_total")
        if kept is not None and total:
            line["selection/rollouts_share"] = kept / total
    walls = [_number(record, "wall_time") or 0.0 for record in evaluations]
    spent = np.diff(walls, prepend=0.0) * [record.get("processes", 1) for record in evaluations]
    for record, seconds in zip(evaluations, spent.cumsum()):
        if "wall_time" in record:
            record["process_time"] = float(seconds)
    sections = config.items() if isinstance(config, dict) else ()
    config = {str(name): values for name, values in sections if isinstance(values, dict)}
    machine = _read_machine(path / "machine.json")
    return Run(path, config, metrics, evaluations, warnings, *machine, _read_changes(path / "resumes.jsonl"))


def _read_changes(path: Path) -> dict[int, dict]:
    """What resumptions changed, by their step: {option or content: old value}, without what was computed again."""
    changes: dict[int, dict] = {}
    for line in read_json_lines(path):
        step, changed = line.get("step"), line.get("changed")
        if type(step) is int and isinstance(changed, dict):
            changes = {before: old for before, old in changes.items() if before <= step}
            old = {name: pair["old"] for name, pair in changed.items() if isinstance(pair, dict) and "old" in pair}
            changes[step] = changes.get(step, {}) | old
    return changes


def _read_machine(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read the processes and hardware of a run, and the hashes of its data and code; {} where they are unreadable."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        content = {str(name): str(value) for name, value in record["content"].items()}
        return {name: str(record[name]) for name in ("processes", "machine")}, content
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}, {}


def _read_lines(path: Path, warn: bool = False) -> list[dict]:
    """Read the lines that have a step, and of each the fields whose value has the type that a tracker writes.

    These are numbers, texts, intervals, and counts of right samples. Other values are dropped.
    """
    records = [line for line in read_json_lines(path, warn) if isinstance(line.get("data", ""), str)]
    lines = ({key: value for key, value in line.items() if _fits(key, value)} for line in records)
    return [line for line in lines if "step" in line]


def _fits(key: str, value: object) -> bool:
    if key.endswith("_ci"):
        return isinstance(value, list) and len(value) == 2 and all(_fits("", end) for end in value)
    if key == "right":
        return isinstance(value, list) and all(_fits("", count) for count in value)
    if key in ("data", "key", "message", "reward"):
        return isinstance(value, str)
    # excludes NaN, infinity, and integers too large for a float
    return isinstance(value, int | float) and abs(value) < 1e300


def _number(line: dict, key: str | int) -> float | None:
    value = line.get(key)
    return None if value is None else float(value)


def _columns(rows: list[tuple[float | None, ...]], width: int) -> tuple[np.ndarray, ...]:
    """Return the columns of the rows that have no None, as `width` arrays."""
    complete = [row for row in rows if None not in row]
    return tuple(np.array(complete, dtype=float).reshape(-1, width).T)


def _machines(group: Group) -> dict[str, str]:
    """Return the processes and the hardware of a group's runs, each once."""
    names = dict.fromkeys(name for run in group.runs for name in run.machine)
    return {name: ", ".join(sorted({run.machine.get(name, "–") for run in group.runs})) for name in names}


def _comparable(run: Run) -> dict:
    """Return what runs of one group share, flat: {"section.key": value}, and the hashes of data and code.

    Hashes of training problems that train.seed draws are left out. What a resumption changed has its old values too.
    """
    sections = ((name, values) for name, values in run.config.items() if name not in RUN_SPECIFIC)
    flat = {f"{section}.{key}": value for section, values in sections for key, value in values.items()}
    shared = {key: value for key, value in flat.items() if key not in ("train.seed", "train.output_dir")}
    trained = {name: name if " of " in name else str(flat.get(name)) for name in run.content if "data.path" in name}
    drawn = [name for name, source in trained.items() if "reasoning-gym:" in source]
    contents = {f"content of {name}": value for name, value in run.content.items() if name not in drawn}
    compared = shared and shared | contents
    for key in compared.keys() & {"train.steps", *contents}:
        name = key.removeprefix("content of ")
        values = [(step, old[name]) for step, old in sorted(run.changes.items()) if name in old]
        past = "".join(f"{old} until step {step}, then " for step, old in values)
        if past:
            compared[key] = f"{past}{compared[key]}"
    return compared


def _seedless_name(path: Path) -> str:
    """Return the directory name without the seed: d3s for `d3s_seed3`, `d3s-s3` and `d3s/seed3`."""
    path = path.resolve()
    name = re.sub(r"(^|[-_.])(seed|s)[-_=]?\d+(?=$|[-_.])", "", path.name).strip("-_.")
    return printable(name or path.parent.name)


def _distinct_names(members: list[list[Run]]) -> list[str]:
    """Name each group. Equal names get the settings in which the groups differ, or a number."""
    names = [_seedless_name(runs[0].path) for runs in members]
    distinct: list[str] = []
    for name, runs in zip(names, members):
        rivals = [_comparable(group[0]) for other, group in zip(names, members) if other == name]
        own = _comparable(runs[0])
        unlike = [key for key in own if any(rival.get(key) != own[key] for rival in rivals)]
        label = f"{name} ({', '.join(f'{key}={own[key]}' for key in unlike[:3])})" if unlike else name
        number = sum(other.startswith(label) for other in distinct) + 1
        distinct.append(f"{label} #{number}" if label in distinct else label)
    return distinct
