"""Train and evaluate from Python: d3s.train and d3s.evaluate do what train.py and eval.py do.

import d3s

run = d3s.train("tiny:precedence", "synthetic:precedence", steps=20, engine="transformers")
print(run.metrics[-1]["reward/mean"], d3s.evaluate(run, "synthetic:precedence", k=(1, 4), n=4).results)

Mistakes raise d3s.UserError with the sentence that the commands print. Imports of torch wait until something runs.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any, NoReturn

from d3s.commands.command_line import LAUNCH, check_launch
from d3s.commands.train import start
from d3s.common import UserError, read_json_lines, silence_libraries, suggestion
from d3s.config.load import SHIPPED, load_config
from d3s.config.schema import SECTIONS, Config
from d3s.rewards.given import name_function

Problems = str | Path | Iterable[Mapping[str, Any]] | Sequence[str]
Reward = str | Mapping[str, Any] | Callable[..., Any]
PROBLEMS = Path("runs/problems")  # files of problems that were given as a list, by the hash of their content


@dataclass(frozen=True)
class Run:
    """A run of train.py in its directory. `code` is the exit code: 0, 3 if no token was trained, 128 and a signal."""

    path: Path
    code: int = 0

    @property
    def model(self) -> Path:
        """The directory of the trained model."""
        return self.path / "model"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A row for each step, as docs/metrics.md describes them."""
        return read_json_lines(self.path / "metrics.jsonl", warn=True)

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """A row for each evaluation and benchmark of eval.data."""
        return read_json_lines(self.path / "eval.jsonl", warn=True)

    @property
    def samples(self) -> list[dict[str, Any]]:
        """A row for each sample response, in the order of the steps."""
        files = sorted((self.path / "samples").glob("step_*.jsonl"))
        return [record for file in files for record in read_json_lines(file, warn=True)]


@dataclass(frozen=True)
class Evaluation:
    """What eval.py writes to its directory: `results` has a row for each data set."""

    path: Path
    results: list[dict[str, Any]]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """A row for each response to all data sets."""
        return [record for file in sorted(self.path.glob("*.jsonl")) for record in read_json_lines(file, warn=True)]


def train(
    model: str | Path,
    problems: Problems,
    reward: Reward | list[Reward | tuple[Reward, float]] | None = None,
    method: str = "d3s",
    *,
    resume: str | Path = "never",
    **options: Any,
) -> Run:
    """Train a model by a method of configs/method, as train.py does.

    Args:
        model: model.name.
        problems: data.path, or dictionaries with `problem` (or `messages`), `answer` and whatever the reward reads.
        reward: a function that takes, by name, what it needs of response, answer and row, or what an entry of
            reward.functions may be, or a list of these and of (reward, weight). None: verify.
        resume: as --resume of train.py, with the same train.output_dir.
        options: any option by its name (`steps=20`), by `**{"train.steps": 20}`, or by section (`train={"steps": 20}`).
            Without train.output_dir the run gets a directory of its own in runs/.

    Raises: UserError for whatever train.py refuses.
    """
    check_launch()
    if not isinstance(resume, str | Path):
        raise UserError(f"resume: got {resume!r}, expected 'auto', 'never' or the path of a checkpoint")
    if method not in (known := sorted(path.stem for path in (SHIPPED / "method").glob("*.yaml"))):
        near = suggestion(str(method), known) or f"; expected one of {', '.join(known)}"
        raise UserError(f"method: got {method!r}{near}")
    arguments = [("model.name", str(model)), ("data.path", _source(problems)), *options.items()]
    if reward is not None:
        rewards = reward if isinstance(reward, list) else [reward]
        arguments.append(("reward.functions", [_rule(entry) for entry in rewards]))
    merged = _by_section(arguments)
    if "output_dir" not in merged.setdefault("train", {}) and os.environ.get("WORLD_SIZE", "1") == "1":
        merged["train"]["output_dir"] = str(_new_folder(Path("runs"), method))
    config = load_config([f"method/{method}"], [merged])
    with _no_launcher_left():
        return Run(config.train.output_dir, start(config, str(resume), train=_run))


def evaluate(
    model_or_run: str | Path | Run,
    problems: Problems | None = None,
    k: int | Sequence[int] | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate a model, or that of a run by the settings of the run, as eval.py does.

    Args:
        problems: of one or several data sets, as --data or dictionaries; None: eval.data of the run.
        k: values of k for Pass@k; None: those of (1, 8), or of the run, up to n.
        options: those of eval.py by their names: n, max_tokens, engine, reward, which may be a function, and so on.
            Without `output` the evaluation gets a directory of its own in runs/eval/.

    Raises: UserError for whatever eval.py refuses.
    """
    from rich.console import Console

    from d3s.commands.eval import parse_arguments
    from d3s.data.problems import name_sources

    path = model_or_run.path if isinstance(model_or_run, Run) else model_or_run
    if not isinstance(path, str | Path):
        raise UserError(f"model_or_run: got {path!r:.60}, expected a model, a run or the path of either")
    if given := sorted({"model", "run", "data"} & options.keys()):
        raise UserError(f"{given[0]}: is another argument of d3s.evaluate; remove it from the options")
    is_run = isinstance(model_or_run, Run) or (Path(path) / "config.yaml").is_file()
    words = [f"--{'run' if is_run else 'model'}={path}"]
    sources = [] if problems is None else _source(problems)
    words += [f"--data={source}" for source in ([sources] if isinstance(sources, str) else sources)]
    ks = k if isinstance(k, Iterable) and not isinstance(k, str) else (k,)
    words += [] if k is None else [f"--k={','.join(map(str, ks))}"]
    for name, value in ({"output": _new_folder(Path("runs/eval"), "evaluation")} | options).items():
        words += [f"--{name.replace('_', '-')}={word}" for word in _words(value)]
    args = parse_arguments(words, _Parser)
    silence_libraries()
    from d3s.commands.evaluate import main

    with _no_launcher_left():
        output = main(args, Console())
    results = json.loads((output / "summary.json").read_text())["results"]
    return Evaluation(output, [record for record in results if record["data"] in name_sources(args.data)])


@contextmanager
def _no_launcher_left() -> Iterator[None]:
    """Remove the launcher's variables that vLLM sets: a next run or a child process would take itself for a rank."""
    before = set(os.environ)
    try:
        yield
    finally:
        for name in set(LAUNCH) - before:
            os.environ.pop(name, None)


class _Parser(argparse.ArgumentParser):
    """A parser that raises what a command line prints, and takes no abbreviations."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _run(config: Config, checkpoint: Path | None) -> int:
    """Train, and close what a process that goes on would keep."""
    from d3s.trainer import Trainer

    trainer = Trainer.__new__(Trainer)
    try:
        trainer.__init__(config, checkpoint)  # which may fail after it has started processes
        return trainer.train()
    finally:
        trainer.close()


def _source(problems: Problems) -> Any:
    """What data.path or --data takes. Dictionaries are written to a file."""
    if isinstance(problems, str | Path):
        return str(problems)
    if isinstance(problems, Mapping) or not isinstance(problems, Iterable):
        raise UserError(f"problems: got {problems!r:.60}, expected a source, or a list of dictionaries")
    rows = [str(row) if isinstance(row, Path) else row for row in problems]
    if not rows:
        raise UserError("problems: got none, expected a source, or a list of dictionaries")
    if all(isinstance(row, str) or (isinstance(row, Mapping) and set(row) == {"path", "weight"}) for row in rows):
        return [row if isinstance(row, str) else dict(row) for row in rows]
    lines = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise UserError(f"problems: number {number} is {row!r:.60}, expected a dictionary with problem and answer")
        try:
            lines.append(json.dumps(dict(row), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise UserError(f"problems: number {number} has a value that is not of JSON ({error})") from error
    text = "".join(f"{line}\n" for line in lines)
    path = PROBLEMS / sha256(text.encode()).hexdigest()[:12] / "problems.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(path)
    return str(path)


def _by_section(options: Iterable[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Options by name, section.name or section as {section: {name: value}}.

    Raises: UserError for a name of none, and for an option that is given twice.
    """
    given: list[tuple[str, Any]] = []
    for name, value in options:
        if name in SECTIONS and not isinstance(value, Mapping):
            raise UserError(f"{name}: got {value!r:.60}, expected {{option: value, ...}}")
        entries = {f"{name}.{leaf}": item for leaf, item in value.items()} if name in SECTIONS else {name: value}
        given += entries.items()
    merged: dict[str, dict[str, Any]] = {}
    for name, value in given:
        section, dot, leaf = name.partition(".")
        homes = [section] if dot else [home for home, fields in SECTIONS.items() if name in fields]
        if not homes:
            raise UserError(f"{name}: no such option{suggestion(name, sorted(chain(*SECTIONS.values())))}")
        if len(homes) > 1:
            raise UserError(f"{name}: got one of several options, expected {' or '.join(f'{h}.{name}' for h in homes)}")
        values = merged.setdefault(homes[0], {})
        if (leaf := leaf or name) in values:
            raise UserError(f"{homes[0]}.{leaf}: is given twice, also by another argument; remove one")
        values[leaf] = str(value) if isinstance(value, Path) else value
    return merged


def _rule(reward: Any) -> Any:
    """What reward.functions takes: a function, or (function, weight), by name."""
    if isinstance(reward, tuple):
        return [_rule(reward[0]), *reward[1:]]
    return name_function(reward) if callable(reward) else reward


def _words(value: Any) -> list[str]:
    """The words of an option on a command line."""
    if value is None:
        return []
    if callable(value):
        return [name_function(value)]
    if isinstance(value, Mapping):
        return [json.dumps(value)]
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def _new_folder(parent: Path, name: str) -> Path:
    """The first of name-1, name-2, … that does not exist."""
    return next(path for number in count(1) if not (path := parent / f"{name}-{number}").exists())
