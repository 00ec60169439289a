r"""Rewards for final answers in mathematics: right or wrong, decided without trusting the response.

    verify(r"... so \boxed{\frac12}", "0.5")          -> True
    with Verifier(workers=2) as verifier:
        verifier.score(responses, answers)            -> [1.0, 0.0, ...]

What counts as the answer: d3s/verifier/extraction.py. What counts as equal: d3s/verifier/equivalence.py. Both are
described in docs/verifier.md. `python -m d3s.verifier FILE.jsonl` scores a file of {"response" or "prediction",
"answer" or "gold"} lines.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from d3s.common import UserError
from d3s.verifier.equivalence import all_of, equivalent
from d3s.verifier.extraction import Extraction, extract
from d3s.verifier.pool import FormulaPool

COUNTS = ("decided", "timeouts", "crashes", "parse_failures", "no_answer")
REMEMBERED = 8_192  # verdicts kept, so that equal answers of a group are decided once


class Verifier:
    """Scores responses against gold answers; formulas are compared in worker processes that can be killed.

    Args:
        workers: processes for the comparisons that spelling and numbers do not settle.
        timeout_s: wall-clock limit of one comparison; past it the worker is killed and the response scores 0.
        memory_mb: address space of one worker.
        extraction: "strict" (boxes only, for training) or "lenient".
    """

    def __init__(
        self, workers: int = 2, timeout_s: float = 5.0, memory_mb: int = 1024, extraction: Extraction = "strict"
    ) -> None:
        if extraction not in ("strict", "lenient"):
            raise UserError(f"extraction is {extraction!r}; allowed are 'strict' and 'lenient'.")
        if workers < 1 or timeout_s <= 0 or memory_mb < 256:
            raise UserError("A Verifier needs workers >= 1, timeout_s > 0 and memory_mb >= 256.")
        self._extraction: Extraction = extraction
        self._pool = FormulaPool(workers, timeout_s, memory_mb)
        self._lock = threading.Lock()
        self._stats: Counter[str] = Counter()
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._under_way: dict[tuple[str, str], Future[str]] = {}

    def submit(self, response: str, answer: str) -> Future[float]:
        """1.0 or 0.0 for one response; the Future never raises. Returns at once, also while the main thread
        generates."""
        result: Future[float] = Future()
        try:
            found = extract(response, self._extraction)
            verdicts = [equivalent(answer, text) for text in found.texts] if found else []
        except Exception:  # never the end of a run; the tests look for what could raise here
            self._count("parse_failures")
            return self._finish(result, False)
        if found is None:
            self._count("no_answer")
            return self._finish(result, False)
        verdict = all_of(verdicts)  # boxes that were stated together must all be right
        if verdict is not None:
            return self._finish(result, verdict)
        self._compare(answer, [text for text, known in zip(found.texts, verdicts) if known is None], result)
        return result

    def score(self, responses: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Rewards of a batch, in its order."""
        if len(responses) != len(answers):
            raise UserError(f"score() got {len(responses)} responses but {len(answers)} answers.")
        futures = [self.submit(response, answer) for response, answer in zip(responses, answers)]
        return [future.result() for future in futures]

    def take_stats(self) -> dict[str, int]:
        """Counts since the last call: decided, timeouts, crashes, parse_failures, no_answer."""
        with self._lock:
            taken, self._stats = self._stats, Counter()
        return {name: taken[name] for name in COUNTS}

    def close(self) -> None:
        """Wait for what was submitted and end the workers."""
        self._pool.close()

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compare(self, answer: str, texts: list[str], result: Future[float]) -> None:
        """Ask the workers about the first text; go on to the next, where boxes were stated together, once it is
        right."""
        key = (answer, texts[0])
        with self._lock:
            known = self._known.get(key)
            job = self._under_way.get(key)
            new = known is None and job is None
            if new:
                job = self._under_way[key] = self._pool.submit(*key)
        if new:  # outside of the lock: a job that is done already calls back at once, in this thread
            job.add_done_callback(lambda done: self._remember(key, done.result()))

        def settle(outcome: str) -> None:  # counted per response, so that counts do not depend on what is remembered
            self._count_outcome(outcome)
            if outcome == "equal" and len(texts) > 1:
                self._compare(answer, texts[1:], result)
            else:
                self._finish(result, outcome == "equal")

        if known is not None:
            settle(known)
        else:
            assert job is not None
            job.add_done_callback(lambda done: settle(done.result()))

    def _remember(self, key: tuple[str, str], outcome: str) -> None:
        """Keep a verdict; a time-out or a crash is not one, the pair may fare better next time."""
        with self._lock:
            self._under_way.pop(key, None)
            if outcome in ("equal", "unequal", "unparsed"):
                self._known[key] = outcome
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)

    def _count_outcome(self, outcome: str) -> None:
        name = {"timeout": "timeouts", "crash": "crashes", "unparsed": "parse_failures"}.get(outcome)
        if name:
            self._count(name)

    def _count(self, name: str) -> None:
        with self._lock:
            self._stats[name] += 1

    def _finish(self, result: Future[float], right: bool) -> Future[float]:
        self._count("decided")
        result.set_result(1.0 if right else 0.0)
        return result


def verify(response: str, answer: str, extraction: Extraction = "strict") -> bool:
    """Is the final answer of `response` equal to `answer`? Never raises on any text, and never hangs: formulas are
    compared
    in one shared worker process, started on first use, with the default limits of `Verifier`."""
    return _shared(extraction).submit(response, answer).result() == 1.0


_shared_verifiers: dict[tuple[int, str], Verifier] = {}
_shared_lock = threading.Lock()


def _shared(extraction: Extraction) -> Verifier:
    """One verifier per process (a fork needs its own threads) and extraction."""
    key = (os.getpid(), extraction)
    with _shared_lock:
        if key not in _shared_verifiers:
            _shared_verifiers[key] = Verifier(workers=1, extraction=extraction)
        return _shared_verifiers[key]


def extract_answer(response: str, extraction: Extraction = "strict") -> str | None:
    """The text of the response's final answer (the last box), or None. For counting majorities and for display."""
    found = extract(response, extraction)
    return found.texts[0] if found else None


# ----------------------------------------------------------------------------------------- optional parts of the reward


def format_reward(response: str) -> float:
    """1.0 when the response states exactly one final answer in a box that is not empty, after its thinking; else
    0.0."""
    found = extract(response, "strict")
    return 1.0 if found is not None and len(found.texts) == 1 else 0.0


def overlong_penalty(length: int, max_length: int, buffer: int) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), in [-1, 0]: 0 up to `max_length - buffer` tokens,
    then
    falling linearly to -1 at `max_length`."""
    if buffer <= 0 or buffer > max_length:
        raise UserError(f"The overlong buffer is {buffer}; it must lie between 1 and max_length = {max_length}.")
    return -min(1.0, max(0.0, (length - (max_length - buffer)) / buffer))


# --------------------------------------------------------------------------------------------------------- command line


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

    from d3s.tracking.tracker import printable

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
