"""Responses so far, tokens per second and time left, of a step or an evaluation."""

import time


class Pace:
    """Counts responses of which `at_once` are generated at the same time.

    Args:
        total: responses to count.
        every: seconds between two lines.
    """

    def __init__(self, total: int, at_once: int, every: float) -> None:
        self._total = self._left = total
        self._at_once, self._every = at_once, every
        self._new = self._tokens = 0
        self._started = self._shown = self._now = time.monotonic()

    def advance(self, responses: int = 1) -> None:
        """Count responses, new ones or those that are there already."""
        self._left -= responses

    def add(self, tokens: int) -> None:
        """Count the tokens of a new response."""
        self._now = time.monotonic()
        self._new, self._tokens = self._new + 1, self._tokens + tokens

    @property
    def rate(self) -> str:
        """Tokens per second of the new responses."""
        return f"{self._tokens / max(self._now - self._started, 1e-9):,.0f} tokens/s"

    def line(self, last: bool = False) -> str | None:
        """What is done and left, if the last line is old enough, or with `last` if nothing is left."""
        if self._now - self._shown < self._every and not (last and self._left == 0):
            return None
        self._shown = self._now
        halves = min(self._at_once, max(self._left, 0)) / 2  # those under way are taken as half done
        seconds = (self._now - self._started) * (self._left - halves) / (self._new + halves)
        left = f", about {duration(seconds)} left" if self._left > 0 else ""
        return f"{self._total - self._left:,} of {self._total:,} responses, {self.rate}{left}"


def duration(seconds: float) -> str:
    """Seconds in the largest fitting unit."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
