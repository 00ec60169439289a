"""Score a file of responses: python -m d3s.verifier FILE.jsonl [--extraction lenient] [--show all]"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from d3s.common import UserError
from d3s.verifier.extraction import extract_answer
from d3s.verifier.verifier import Verifier


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m d3s.verifier FILE.jsonl`: a table of verdicts, failures and speed."""
    parser = argparse.ArgumentParser(
        prog="python -m d3s.verifier", description="Score a file of responses and answers."
    )
    parser.add_argument("file", type=Path, help="JSONL with response (or prediction) and answer (or gold)")
    parser.add_argument("--extraction", choices=("strict", "lenient"), default="strict")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds per answer")
    parser.add_argument("--show", choices=("all", "wrong", "none"), default="wrong", help="which rows to list")
    options = parser.parse_args(arguments)
    try:
        rows = read_rows(options.file, bare=options.extraction == "strict")
        with Verifier(options.workers, options.timeout, extraction=options.extraction) as verifier:
            verifier.score([r"\boxed{\sqrt{4}}"], ["2"])  # the speed shown is that of a warm worker
            verifier.take_stats()
            start = time.perf_counter()
            rewards = verifier.score([row[0] for row in rows], [row[1] for row in rows])
            seconds = time.perf_counter() - start
            stats = verifier.take_stats()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    _print_table(rows, rewards, stats, seconds, options.extraction, options.show)


def read_rows(path: Path, bare: bool = True) -> list[tuple[str, str]]:
    """(response, answer) of every line. With `bare`, a "prediction" without a box stands for the answer itself."""
    if not path.is_file():
        raise UserError(f"{path}: {'is not a regular file' if path.exists() else 'no such file'}")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
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
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f'{path} line {number} is not an object with "response" (or "prediction") and "answer" (or "gold").'
            ) from None
        rows.append((response, str(answer)))
    return rows


def _print_table(
    rows: list[tuple[str, str]], rewards: list[float], stats: dict[str, int], seconds: float, extraction: str, show: str
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from d3s.common import printable

    console = Console(width=None if sys.stdout.isatty() else 120)
    shown = [i for i, reward in enumerate(rewards) if show == "all" or (show == "wrong" and not reward)]
    if shown:
        table = Table("line", "verdict", "extracted", "answer", title=f"{extraction} extraction")
        for i in shown:
            extracted = extract_answer(rows[i][0], extraction)  # type: ignore[arg-type]
            cells = (
                "right" if rewards[i] else "wrong",
                "(none)" if extracted is None else printable(extracted[:80]),
                printable(rows[i][1][:80]),
            )
            table.add_row(str(i + 1), *(Text(cell) for cell in cells))
        console.print(table)
    right = sum(1 for reward in rewards if reward)
    summary = Table("answers", "right", "wrong", "no answer", "time-outs", "crashes", "unparsed", "answers/s")
    speed = len(rows) / seconds if seconds > 0 else 0.0
    failures = [str(stats[name]) for name in ("no_answer", "timeouts", "crashes", "parse_failures")]
    summary.add_row(str(len(rows)), str(right), str(len(rows) - right), *failures, f"{speed:.0f}")
    console.print(summary)


if __name__ == "__main__":
    main()
