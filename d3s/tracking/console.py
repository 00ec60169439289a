"""Console view of a run: a progress bar on a terminal, sparse plain rows elsewhere."""

import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from d3s.common import printable, scored_by

ROWS = 20  # plain rows per run if the output is not a terminal
MANY_CUT = 0.1  # share of cut responses from which the row of a step shows it


class LastingOutput:
    """A text stream that outlives its reader, `head` or a terminal that is closed: later output is discarded."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> None:
        self._outlive(self._file.write, text)

    def flush(self) -> None:
        self._outlive(self._file.flush)

    def _outlive(self, action: Callable[..., object], *arguments: str) -> None:
        try:
            action(*arguments)
        except OSError as error:
            with open(os.devnull, "w") as null:  # also for what the stream holds back, and for other writers
                os.dup2(null.fileno(), self._file.fileno())
            with suppress(OSError):
                print(f"warning: the output is closed ({error.strerror}); the run goes on", file=sys.stderr, flush=True)


class ConsoleView:
    """Show training steps as a progress bar or as plain rows, evaluations and warnings as separate lines.

    total_steps: where the progress bar ends; it starts at `first_step`.
    """

    def __init__(self, total_steps: int, first_step: int) -> None:
        self._console = Console(file=LastingOutput(sys.stdout), highlight=False, soft_wrap=True)
        self._total, self._every = total_steps, max(1, math.ceil(total_steps / ROWS))
        self._bar, self._evaluated, self._pass_at_1 = None, None, None
        if self._console.is_terminal:
            columns = (BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, redirect_stderr=False)
            self._task = self._bar.add_task("starting", total=total_steps, completed=first_step)
            self._bar.start()
            self._console.show_cursor(True)  # hidden, it would remain so where the process ends at once

    def step(self, line: dict) -> None:
        """Show the metrics line of one step."""
        number, row = line["step"], self._row(line)
        if self._bar:
            self._bar.update(self._task, completed=number, description=row)
        elif number == 1 or number == self._total or number % self._every == 0:
            self._print(Text(row))

    def evaluation(self, line: dict) -> None:
        """Show the Pass@k values of one evaluation with their intervals, smallest k first."""
        if line["step"] != self._evaluated:  # of several data sets the first, as for eval.keep_best
            self._evaluated, self._pass_at_1 = line["step"], line.get("pass@1")
        parts = [f"evaluation at step {line['step']}"]
        parts += [printable(f"{line['data']}{scored_by(line)}")] if "data" in line else []
        ks = sorted(int(key[5:]) for key in line if key.startswith("pass@") and key[5:].isdigit())
        for key in (f"pass@{k}" for k in ks):
            low, high = line.get(f"{key}_ci") or (None, None)
            interval = "" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"
            parts.append(f"{key} {_number(line[key], '.3f')}{interval}")
        self._print(Text("  ".join(parts), style="bold"))

    def warning(self, message: str) -> None:
        self._print(Text.assemble(("warning: ", "bold yellow"), printable(message)))

    def say(self, text: str) -> None:
        self._print(Text(printable(text)))

    def close(self) -> None:
        if self._bar:
            self._bar.stop()

    def _row(self, line: dict) -> str:
        step = f"step {line['step']:>{len(str(self._total))}}/{self._total}"
        rate = f"{_number(line.get('throughput/tokens_per_s'), ',.0f')} tok/s"
        if "loss" in line and "reward/mean" not in line:  # of train_sft.py
            return f"{step}  loss {_number(line['loss'], '.4f')}  {rate}"
        reward, n, k = (line.get(key) for key in ("reward/mean", "schedule/n", "schedule/k"))
        pass_at_1 = "" if self._pass_at_1 is None else f"  pass@1 {self._pass_at_1:.3f}"
        truncated = line.get("completion/truncated", 0.0)
        cut = f" ({truncated:.0%} cut)" if truncated >= MANY_CUT else ""
        selected = f"N {_number(n, '.0f')} K {_number(k, '.0%')}"
        return f"{step}  reward {_number(reward, '.3f')}{cut}{pass_at_1}  {selected}  {rate}"

    def _print(self, text: Text) -> None:
        self._console.print(text)
        self._console.file.flush()


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
