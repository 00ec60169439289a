"""Progress of an evaluation: responses, tokens per second, time left."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

EVERY_S = 10  # seconds between lines if the output is not a terminal


class EvaluationProgress:
    """Bars on a terminal, a line every EVERY_S seconds elsewhere.

    Args:
        totals: responses of each data set.
        at_once: responses that are generated at the same time.
    """

    def __init__(self, console: Console, totals: Mapping[str, int], at_once: int) -> None:
        self._at_once = at_once
        self._console, self._left, self._new, self._tokens = console, sum(totals.values()), 0, 0
        self._total = self._left
        self._started = self._shown = time.monotonic()
        text = "{task.description}", "{task.fields[rate]}"
        columns = TextColumn(text[0]), BarColumn(), TaskProgressColumn(), TextColumn(text[1]), TimeRemainingColumn()
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks = {name: self._bars.add_task(name, total=total, rate="") for name, total in totals.items()}

    def __enter__(self) -> "EvaluationProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def advance(self, name: str, responses: int) -> None:
        """Count responses that are there already."""
        self._left -= responses
        self._bars.advance(self._tasks[name], responses)

    def add(self, name: str, tokens: int) -> None:
        """Count a new response, of this many tokens."""
        self.advance(name, 1)
        now = time.monotonic()
        self._new, self._tokens = self._new + 1, self._tokens + tokens
        seconds = max(now - self._started, 1e-9)
        rate = f"{self._tokens / seconds:,.0f} tokens/s"
        self._bars.update(self._tasks[name], rate=rate)
        if not self._console.is_terminal and (now - self._shown >= EVERY_S or self._left == 0):
            self._shown = now
            halves = min(self._at_once, self._left) / 2  # those under way are taken as half done
            seconds *= (self._left - halves) / (self._new + halves)
            left = f", about {duration(seconds)} left" if self._left else ""
            done = f"{self._total - self._left:,} of {self._total:,} responses"
            self._console.print(f"{done}, {rate}{left}", highlight=False)


def duration(seconds: float) -> str:
    """Seconds in the largest fitting unit."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
