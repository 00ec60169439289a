"""Metrics to console, JSON lines and wandb. Knows how to write them down, not where they come from.

Everything in the run directory is readable after a kill at any moment: a JSON line is one write, a sample file is
renamed into place, and a resumed run first cuts off what lies beyond the checkpoint that it goes on from.
"""

import secrets
import time
from pathlib import Path
from typing import Any, Literal

from d3s.common import JsonLines, UserError, json_line, make_directory, read_json_lines, to_jsonable, write_atomically
from d3s.tracking.console import ConsoleView
from d3s.tracking.health import PATIENCE, health


class Tracker:
    """The writer of one run directory.

    output_dir: the run directory; made if missing. Files: metrics.jsonl, eval.jsonl, warnings.jsonl, samples/.
    total_steps: where the progress bar ends.
    config: the resolved configuration, shown by wandb; warnings are judged by its precision.
    wandb_project: None leaves wandb unimported. run_name: the run's name there; default: the directory's name.
    resume_step: the last step that the loaded checkpoint contains. Lines and samples of later steps are cut off, and
        the wall time goes on from the last line that is kept; 0 is a fresh start and empties the files.
    enabled: False on every rank but 0, where all methods do nothing.
    console: False prints nothing.

    A step must be logged before its checkpoint is saved, so that no kill loses the line of a step that is kept.
    Raises UserError when the disk does not take a line, or when wandb is asked for and missing.
    """

    def __init__(
        self,
        output_dir: Path,
        *,
        total_steps: int,
        config: dict,
        wandb_project: str | None = None,
        wandb_mode: Literal["online", "offline", "disabled"] = "offline",
        run_name: str | None = None,
        resume_step: int = 0,
        enabled: bool = True,
        console: bool = True,
    ) -> None:
        self.enabled = enabled
        self._started, self._offset = time.monotonic(), 0.0
        self._total_steps, self._patience = total_steps, min(PATIENCE, max(1, total_steps))
        self._samples: list[dict] = []
        self._config = config
        self._active: set[str] = set()  # keys of the warnings that have been said and not cleared
        self._console = ConsoleView(total_steps, resume_step) if enabled and console else None
        self._wandb = None
        if not enabled:
            return
        self._dir = Path(output_dir)
        make_directory(self._dir / "samples")
        self._history = self._cut_after(resume_step)
        self._findings = {finding.key for finding in health(self._history, self._samples, self._patience, config)}
        self._active |= self._findings
        self._files = {name: JsonLines(self._dir / f"{name}.jsonl") for name in ("metrics", "eval", "warnings")}
        if wandb_project is not None:
            self._wandb = _start_wandb(self._dir, wandb_project, wandb_mode, run_name, config, resume_step)
        if resume_step and resume_step >= total_steps:
            left = f"resumed at step {resume_step} of {total_steps}: this run takes no step and keeps its config.yaml"
            self.warn("no_steps_left", left)

    @property
    def wall_time(self) -> float:
        """Seconds since the start of the run, over all its resumptions, without the pauses between them."""
        return self._offset + time.monotonic() - self._started

    def log(self, metrics: dict[str, float]) -> None:
        """Write the line of one step (`step` must be in it), show it, and warn of what it reveals.

        `wall_time` is filled in where it is missing; numbers that are not finite are written as null.
        """
        if not self.enabled:
            return
        line = self._write("metrics", metrics)
        self._history = self._history[:1] + self._history[1:][-self._patience :] + [line]
        if self._console:
            self._console.step(line)
        if self._wandb:
            self._wandb.log({key: value for key, value in line.items() if value is not None})
        self._check()

    def log_eval(self, record: dict) -> None:
        """Write one evaluation (`step`, `data`, `pass@1`, ...) to eval.jsonl."""
        if not self.enabled:
            return
        line = self._write("eval", record)
        if self._console:
            self._console.evaluation(line)
        if self._wandb:
            prefix = f"eval/{line.get('data', 'test')}/"
            numbers = {prefix + key: v for key, v in line.items() if isinstance(v, int | float) and key != "step"}
            self._wandb.log({"step": line["step"]} | numbers)

    def log_samples(self, step: int, records: list[dict]) -> None:
        """Write the sample rollouts of one step to samples/step_XXXXXX.jsonl, which appears whole or not at all.

        Come before `log` of the same step, from step 1 on: a warning that `log` raises quotes the newest sample.
        """
        if not self.enabled:
            return
        self._samples = [to_jsonable({"step": step} | record) for record in records]
        text = "".join(json_line(record) for record in self._samples)
        write_atomically(self._dir / "samples" / f"step_{step:06d}.jsonl", text.encode())

    def warn(self, key: str, message: str) -> None:
        """Say `message` once; again only after `clear(key)`. Kept in warnings.jsonl."""
        if not self.enabled or key in self._active:
            return
        self._active.add(key)
        step = self._history[-1]["step"] if self._history else 0
        self._files["warnings"].append({"step": step, "key": key, "message": message})
        if self._console:
            self._console.warning(message)

    def say(self, text: str) -> None:
        """Show a line of text; it is not kept."""
        if self.enabled and self._console:
            self._console.say(text)

    def clear(self, key: str) -> None:
        """The condition behind `key` has ended: the next `warn` of it speaks again."""
        self._active.discard(key)

    def close(self) -> None:
        """Flush and let go of everything. Harmless when called twice."""
        if not self.enabled:
            return
        for file in self._files.values():
            file.close()
        if self._console:
            self._console.close()
        if self._wandb:
            self._wandb.finish()
            self._wandb = None

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, name: str, record: dict) -> dict:
        line = to_jsonable({"wall_time": round(self.wall_time, 3)} | record)
        self._files[name].append(line)
        return line

    def _check(self) -> None:
        found = {f.key: f.message for f in health(self._history, self._samples, self._patience, self._config)}
        for key in self._findings - found.keys():
            self.clear(key)
        for key, message in found.items():
            self.warn(key, message)
        self._findings = set(found)

    def _cut_after(self, step: int) -> list[dict]:
        """Drop what later steps have written, and any torn line. Returns the metrics lines that stay."""
        kept = {}
        for name in ("metrics", "eval", "warnings"):
            path = self._dir / f"{name}.jsonl"
            kept[name] = [line for line in read_json_lines(path) if step and line.get("step", 0) <= step]
            text = "".join(json_line(line) for line in kept[name]).encode()
            if path.exists() and path.read_bytes() != text:
                write_atomically(path, text)
        for path in sorted((self._dir / "samples").glob("step_*.jsonl")):
            if not step or int(path.stem.removeprefix("step_")) > step:
                path.unlink()
            else:
                self._samples = read_json_lines(path)
        self._offset = max((line.get("wall_time") or 0.0 for line in kept["metrics"] + kept["eval"]), default=0.0)
        return kept["metrics"]


def _start_wandb(directory: Path, project: str, mode: str, name: str | None, config: dict, resume_step: int) -> Any:
    """A wandb run that prints nothing; a resumed run keeps its id."""
    try:
        import wandb
    except ImportError:
        raise UserError(f"tracker.wandb is {mode}, but wandb is not installed; run pip install wandb") from None
    id_file = directory / "wandb_id"
    if not (resume_step and id_file.exists()):
        write_atomically(id_file, secrets.token_hex(4).encode())
    settings = wandb.Settings(silent=True, console="off", disable_git=True)
    run = wandb.init(
        project=project,
        name=name or directory.resolve().name,
        mode=mode,
        config=config,
        dir=str(directory),
        id=id_file.read_text(),
        resume="allow" if mode == "online" else None,
        settings=settings,
    )
    run.define_metric("*", step_metric="step")  # a resumed run repeats steps, which wandb's own counter refuses
    return run
