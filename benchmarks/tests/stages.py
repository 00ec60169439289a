"""Rows of a stage of the GPU check."""

from collections.abc import Iterable

from benchmarks.gpu_check.rows import Row


def not_held(rows: Iterable[Row]) -> list[str]:
    """What did not hold; every stage must have measured something."""
    rows = list(rows)
    assert rows
    return [row.what for row in rows if not row.held]


def judged(rows: Iterable[Row]) -> list[Row]:
    """Rows with a limit."""
    return [row for row in rows if row.limit]
