"""Write the metrics, evaluations, warnings and samples of a run to files, the console and mirrors.

Every file is readable after a kill at any moment: one write per JSON line, an atomic rename per sample file. A resumed
run first removes the lines and samples of steps after its checkpoint.
"""

import time
from pathlib import Path

from d3s.common import JsonLines, json_line, make_directory, read_json_lines, to_jsonable, write_atomically
from d3s.config.schema import Config
from d3s.tracking.console import ConsoleView
from d3s.tracking.health import OPENING, PATIENCE, WINDOW, health
from d3s.tracking.mirrors import Numbers, TensorBoardMirror, WandbMirror, eval_numbers, metric_numbers


class Tracker:
    """The writer of one run directory. A step must be logged before its checkpoint is saved.

    That order ensures that a kill never loses the line of a step that a checkpoint contains.

    Files in train.output_dir: metrics.jsonl, eval.jsonl, warnings.jsonl, samples/, and tensorboard/ if it is on.

    Args:
        resume_step: the last step that the loaded checkpoint contains. Later lines and samples are removed, and the
            wall time continues from the last remaining line. 0 starts a new run and empties the files.
        enabled: False on every rank but 0; all methods then do nothing.
        evaluation_due: whether the evaluation after `resume_step` is to be made again; its lines are removed.
        checkpoint: the loaded one; if it is of another run, the wall time continues from that run's line.

    Raises: UserError if the disk is full.
    """

    def __init__(
        self,
        config: Config,
        resume_step: int = 0,
        *,
        enabled: bool = True,
        evaluation_due: bool = False,
        checkpoint: Path | None = None,
    ) -> None:
        total_steps = config.train.steps
        self.enabled = enabled
        self._started = time.monotonic()
        if not enabled:
            return
        self._console = ConsoleView(total_steps, resume_step)
        self._dir, self._config = config.train.output_dir, config.model_dump(mode="json")
        self._patience, self._resume_step = min(PATIENCE, total_steps), resume_step
        self._samples: list[dict] = []
        self._mirrors: list[WandbMirror | TensorBoardMirror] = []
        make_directory(self._dir / "samples")
        self._history, self._evaluations = self._cut_after(resume_step, evaluation_due)
        begun = read_json_lines(checkpoint.resolve().parent.parent / "metrics.jsonl") if checkpoint else []
        begun = [line for line in begun if line.get("step", 0) <= resume_step]
        lines = self._history + self._evaluations + begun
        self._offset = max((line.get("wall_time") or 0.0 for line in lines), default=0.0)
        self._findings = set(self._symptoms())
        self._active = set(self._findings)  # keys of the warnings that were given and not cleared
        if "wandb" in config.tracker.mirrors:
            self._mirrors.append(WandbMirror(self._dir, self._config, resume_step > 0))
        if "tensorboard" in config.tracker.mirrors:
            first_step = resume_step + 1 if resume_step else 0  # a new run evaluates at step 0
            self._mirrors.append(TensorBoardMirror(self._dir / "tensorboard", first_step))
        # after the mirrors, which can fail: a directory with metrics.jsonl counts as a run
        self._files = {name: JsonLines(self._dir / f"{name}.jsonl") for name in ("metrics", "eval", "warnings")}
        if resume_step and resume_step >= total_steps and not evaluation_due:
            problem = f"resumed at step {resume_step} of {total_steps}: the run takes no step and keeps its config.yaml"
            self.warn("no_steps_left", f"train.steps: {problem}; raise train.steps to train further")

    @property
    def wall_time(self) -> float:
        """Seconds since the start of the run, summed over all resumptions, without the pauses between them."""
        return self._offset + time.monotonic() - self._started

    def log(self, metrics: dict[str, float]) -> None:
        """Write and show the metrics of one step, which must include `step`, and check the health rules.

        `wall_time` is added if missing; NaN and infinity are written as null.
        """
        if not self.enabled:
            return
        line = self._write("metrics", metrics)
        self._history = self._history[:OPENING] + self._history[OPENING:][-WINDOW:] + [line]
        self._console.step(line)
        self._follow(metric_numbers(line))

    def log_eval(self, record: dict) -> None:
        """Write one evaluation (`step`, `data`, `pass@1`, ...) to eval.jsonl, and check the health rules."""
        if not self.enabled:
            return
        line = self._write("eval", record)
        self._evaluations.append(line)
        self._console.evaluation(line)
        self._follow(eval_numbers(line))

    def log_samples(self, step: int, records: list[dict]) -> None:
        """Write the sample rollouts of one step to samples/step_XXXXXX.jsonl, atomically.

        Steps count from 1. Call it before `log` of the same step: a warning from `log` quotes the newest sample.
        """
        if not self.enabled:
            return
        self._samples = [to_jsonable({"step": step} | record) for record in records]
        text = "".join(json_line(record) for record in self._samples)
        write_atomically(self._dir / "samples" / f"step_{step:06d}.jsonl", text.encode())

    def warn(self, key: str, message: str) -> None:
        """Write `message` to warnings.jsonl and show it, once; that of a health rule again after it has ended.

        A resumed run does not repeat what was written before the first step, or by an earlier start from this step.
        """
        if not self.enabled or key in self._active or (key, message) in self._notes:
            return
        self._active.add(key)
        step = self._history[-1]["step"] if self._history else self._resume_step
        self._files["warnings"].append({"step": step, "key": key, "message": message})
        self._console.warning(message)

    def decide(self, step: int, key: str, message: str) -> None:
        """Write the decision of a controller in this step, with its reason, to warnings.jsonl and show it."""
        if self.enabled:
            self._files["warnings"].append({"step": step, "key": key, "message": message})
            self.say(message)

    def say(self, text: str) -> None:
        """Show a line of text on the console only."""
        if self.enabled:
            self._console.say(text)

    def close(self) -> None:
        """Flush and close all files. A second call does nothing."""
        if not self.enabled:
            return
        for file in self._files.values():
            file.close()
        self._console.close()
        while self._mirrors:
            self._mirrors.pop().close()

    def _write(self, name: str, record: dict) -> dict:
        line = to_jsonable({"wall_time": round(self.wall_time, 3)} | record)
        self._files[name].append(line)
        return line

    def _symptoms(self) -> dict[str, str]:
        """The messages of the health rules by key."""
        return health(self._history, self._samples, self._patience, self._config, self._evaluations)

    def _follow(self, numbers: Numbers) -> None:
        """Pass a line on to the mirrors, and check the health rules."""
        for mirror in self._mirrors:
            mirror.log(numbers)
        messages = self._symptoms()
        self._active -= self._findings - messages.keys()
        for key, message in messages.items():
            self.warn(key, message)
        self._findings = set(messages)

    def _cut_after(self, step: int, evaluation_due: bool) -> tuple[list[dict], list[dict]]:
        """Remove the lines and samples of later steps, and incomplete lines. Return the other metrics, evaluations."""
        kept = {}
        for name in ("metrics", "eval", "warnings"):
            path = self._dir / f"{name}.jsonl"
            last = step - 1 if name == "eval" and evaluation_due else step
            kept[name] = [line for line in read_json_lines(path) if step and line.get("step", 0) <= last]
            text = "".join(json_line(line) for line in kept[name]).encode()
            if path.exists() and path.read_bytes() != text:
                write_atomically(path, text)
        notes = [line for line in kept["warnings"] if line.get("step", 0) in (0, step)]
        self._notes = {(line.get("key"), line.get("message")) for line in notes}
        for path in sorted((self._dir / "samples").glob("step_*.jsonl")):
            number = path.stem.removeprefix("step_")
            if number.isdecimal() and int(number) > step:
                path.unlink()
            elif number.isdecimal():  # else a copy of a user's
                self._samples = read_json_lines(path)
        return kept["metrics"], kept["eval"]
