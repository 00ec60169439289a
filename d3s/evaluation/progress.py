"""Progress of an evaluation: responses, tokens per second, time left."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from d3s.pace import Pace

EVERY_S = 10  # seconds between lines if the output is not a terminal


class EvaluationProgress:
    """Bars on a terminal, a line every EVERY_S seconds elsewhere.

    Args:
        totals: responses of each data set.
        at_once: responses that are generated at the same time.
    """

    def __init__(self, console: Console, totals: Mapping[str, int], at_once: int) -> None:
        self._console, self._pace = console, Pace(sum(totals.values()), at_once, EVERY_S)
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
        """Count responses, new ones or those that are there already."""
        self._pace.advance(responses)
        self._bars.advance(self._tasks[name], responses)

    def add(self, name: str, tokens: int) -> None:
        """Count the tokens of a new response."""
        self._pace.add(tokens)
        self._bars.update(self._tasks[name], rate=self._pace.rate)
        if not self._console.is_terminal and (line := self._pace.line(last=True)):
            self._console.print(line, highlight=False)
