"""Score a file of responses and show the verdicts.

    python -m d3s.verifier FILE.jsonl [--extraction lenient] [--show all]

Each line is a JSON object with "response" (or "prediction") and "answer" (or "gold"). Under strict extraction a
"prediction" without a box is itself the answer.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from d3s.common import UserError, exit_code, printable
from d3s.verifier.extraction import Extraction, extract_answer
from d3s.verifier.verifier import Verifier


def main(arguments: Sequence[str] | None = None) -> None:
    """Score the file that the command line names and print verdicts, failures and speed. Raises UserError."""
    parser = argparse.ArgumentParser(prog="python -m d3s.verifier", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="JSONL with response (or prediction) and answer (or gold)")
    parser.add_argument(
        "--extraction", choices=("strict", "lenient"), default="strict", help="strict (default): answers must be boxed"
    )
    parser.add_argument("--workers", type=int, default=2, help="worker processes for formulas (default: 2)")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds per formula comparison (default: 5)")
    parser.add_argument(
        "--show", choices=("all", "wrong", "none"), default="wrong", help="responses to list (default: wrong)"
    )
    options = parser.parse_args(arguments)
    rows = read_rows(options.file, bare=options.extraction == "strict")
    with Verifier(options.workers, options.timeout, extraction=options.extraction) as verifier:
        verifier.score([r"\boxed{\sqrt{4}}"], ["2"])  # warm up a worker before the timing
        verifier.take_stats()
        start = time.perf_counter()
        scores = verifier.score([response for response, _ in rows], [answer for _, answer in rows])
        seconds = time.perf_counter() - start
        stats = verifier.take_stats()
    console = Console(width=None if sys.stdout.isatty() else 120)
    shown = [i for i, score in enumerate(scores) if options.show == "all" or (options.show == "wrong" and not score)]
    if shown:
        console.print(_rows_table(rows, scores, shown, options.extraction))
    console.print(_summary_table(scores, stats, seconds))


def read_rows(path: Path, bare: bool = True) -> list[tuple[str, str]]:
    """Return (response, answer) of every line. With `bare`, a "prediction" without a box is itself the answer."""
    if not path.is_file():
        problem = "not a regular file" if path.exists() else "no such file"
        raise UserError(f"{path}: {problem}; give a JSONL file of responses and answers")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            response = str(row["response"] if "response" in row else row["prediction"])
            if bare and "response" not in row and "\\boxed" not in response and "\\fbox" not in response:
                response = f"\\boxed{{{response}}}"
            answer = row["answer"] if "answer" in row else row["gold"]
            if not isinstance(answer, str | int | float):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f'{path} line {number}: expected an object with "response" (or "prediction") and "answer" (or "gold")'
            ) from None
        rows.append((response, str(answer)))
    if not rows:
        raise UserError(f"{path}: no responses found; give a JSONL file of responses and answers")
    return rows


def _rows_table(rows: list[tuple[str, str]], scores: list[float], shown: list[int], extraction: Extraction) -> Table:
    table = Table("line", "verdict", "extracted", "answer", title=f"{extraction} extraction")
    for i in shown:
        response, answer = rows[i]
        extracted = extract_answer(response, extraction)
        cells = (
            "right" if scores[i] else "wrong",
            "(none)" if extracted is None else printable(extracted[:80]),
            printable(answer[:80]),
        )
        table.add_row(str(i + 1), *(Text(cell) for cell in cells))
    return table


def _summary_table(scores: list[float], stats: dict[str, int], seconds: float) -> Table:
    table = Table("answers", "right", "wrong", "no answer", "timeouts", "crashes", "unparsed", "answers/s")
    right = sum(1 for score in scores if score)
    failures = [str(stats[name]) for name in ("no_answer", "timeouts", "crashes", "parse_failures")]
    speed = len(scores) / seconds if seconds > 0 else 0.0
    table.add_row(str(len(scores)), str(right), str(len(scores) - right), *failures, f"{speed:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(exit_code(main))
