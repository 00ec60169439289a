"""The reward of a program: its tests, run in the sandbox. `reward.functions=[d3s.programs.code_reward:CodeReward]`."""

import re
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

from d3s.common import UserError, printable, quote
from d3s.data.code import before_entry, read_tests
from d3s.programs.extraction import complete_prompt, defines, extract_program
from d3s.rewards.scored import Scored
from d3s.sandbox import Sandbox, TestReport
from d3s.sandbox.source import split_names

SCORES = ("all", "rate", "calibrated")
CACHED_REPORTS = 2**14  # reports of programs; 58 to 83 % of the responses of a group repeat another one
COUNTS = {"timeout": "timeouts", "memory": "out_of_memory", "crash": "crashes", "refused": "refused"}  # by state
EXPRESSION = re.compile(r"[ab0-9+*()-]{1,12}")  # too short for a table of the examples


class CodeReward:
    """Scores responses that are programs. `answer` is a JSON list of tests, as d3s/data/code.py writes it.

    The parts `all_passed` and `pass_rate` of a response are metrics. Every `score` is 1 if and only if all tests pass,
    so Pass@k means the same under each. Reports are kept for all states: else an endless loop would cost its time limit
    each time that a model writes it.
    """

    def __init__(self, workers: int = 2, timeout_s: float = 5.0, memory_mb: int = 1024, score: str = "all") -> None:
        """Start the sandbox. Raises UserError where there is none.

        Args:
            score: all, 1 if all tests pass, else 0; rate, the share of the tests passed; calibrated, half of each,
                where tests that more of the group pass weigh less.
        """
        if score not in SCORES:
            raise UserError(f"CodeReward: got score: {score}, expected {', '.join(SCORES)}")
        self._kind = score
        self._sandbox = Sandbox(workers, timeout_s, memory_mb)
        self._kept = lru_cache(CACHED_REPORTS)(self._run)
        self._stats: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def program(self, response: str, row: dict[str, Any], answer: str = "") -> str:
        """The program in a response: that which defines the names that the tests in `answer` ask for.

        With row["entry_point"] and row["prompt"] it follows what stands before that function in the prompt, such as
        imports; if it does not define the function, it completes the prompt.
        """
        name, prompt = row.get("entry_point"), row.get("prompt")
        names = {name} if isinstance(name, str) else _tested_names(answer or str(row.get("answer") or ""))
        program = extract_program(response, names)
        if not (isinstance(name, str) and isinstance(prompt, str)):
            return program
        return before_entry(prompt, name) + program if defines(program, name) else complete_prompt(prompt, program)

    def submit(self, response: str, answer: str, row: dict[str, Any] | None = None) -> Future[Scored]:
        """Start to score a response. Raises UserError if the answer is not a list of tests."""
        scored: Future[Scored] = Future()

        def settle(done: Future[TestReport]) -> None:
            if error := done.exception():
                scored.set_exception(error)
                return
            report = done.result()
            self._count(report, answer, row or {})
            parts = {"all_passed": float(all(report.passed)), "pass_rate": sum(report.passed) / len(report.passed)}
            scored.set_result(Scored(score(report.passed, self._kind), parts))

        self._report(self.program(response, row or {}, answer), answer).add_done_callback(settle)
        return scored

    def score_group(self, responses: Sequence[str], answer: str, row: dict[str, Any]) -> list[float] | None:
        """The totals of all responses to a problem once each is scored; None if they depend on the response alone.

        With score: calibrated a test weighs less the more of the group pass it. Only the group of this step
        decides, never earlier ones: so the weights depend neither on the number of ranks, of which each samples whole
        groups, nor on the order in which programs end, nor on where a run was interrupted.
        """
        if self._kind != "calibrated":
            return None
        return calibrated([self._report(self.program(r, row, answer), answer).result().passed for r in responses])

    def take_stats(self) -> dict[str, int]:
        """Return the counts of responses by state since the last call: timeouts, out_of_memory, crashes, refused."""
        with self._lock:
            taken, self._stats = self._stats, Counter()
        return {name: taken[name] for name in COUNTS.values()}

    def close(self) -> None:
        """End the processes of the sandbox."""
        self._sandbox.close()

    def _report(self, program: str, answer: str) -> Future[TestReport]:
        """Run a program, or wait for the run of an equal one."""
        with self._lock:
            return self._kept(program, answer)

    def _run(self, program: str, answer: str) -> Future[TestReport]:
        return self._sandbox.submit(program, read_tests(answer))

    def _count(self, report: TestReport, answer: str, row: dict[str, Any]) -> None:
        """Count a response; the first refused one of a problem is reported, as it would be a silent 0 otherwise."""
        with self._lock:
            self._stats[COUNTS.get(report.state, report.state)] += 1
            if not report.needs_more or answer in self._warned:
                return
            self._warned.add(answer)
        name = row.get("task_id") or quote(str(row.get("problem", "")))
        text = f"warning: problem {name}: {report.reason}; the response counts as 0; "
        text += "python -m d3s.programs.check FILE lists the problems whose own solution fails"
        print(printable(text), file=sys.stderr, flush=True)


@lru_cache(maxsize=CACHED_REPORTS)
def _tested_names(answer: str) -> frozenset[str]:
    """The names that tests take from the program; none if there are no tests."""
    tests = read_tests(answer) if answer else []
    return frozenset(split_names([test for test in tests if isinstance(test, str)])[0])


class ExpressionReward(CodeReward):
    """The reward of the synthetic task `code`, whose responses are expressions of a and b."""

    def program(self, response: str, row: dict[str, Any], answer: str = "") -> str:
        """A function f that returns the expression; "" for any other response."""
        return f"def f(a, b):\n    return {response}\n" if EXPRESSION.fullmatch(response) else ""


def score(passed: Sequence[bool], kind: str) -> float:
    """The score of one program, of these SCORES; outside of a group calibrated weighs all tests alike."""
    rate = sum(passed) / len(passed)
    return {"all": float(all(passed)), "rate": rate, "calibrated": (all(passed) + rate) / 2}[kind]


# R_i = 1/2 1[all tests pass] + 1/2 sum_k w_k pass_ik / sum_k w_k,   w_k = 1 - (sum_i pass_ik + 1) / (G + 2)
# after VeRPO, arXiv 2601.03525: tests that few programs of the group pass weigh more; w_k is never 0
def calibrated(group: Sequence[Sequence[bool]]) -> list[float]:
    """Scores of the programs of a group, of which each has one outcome per test."""
    weights = [1 - (sum(outcomes) + 1) / (len(group) + 2) for outcomes in zip(*group, strict=True)]
    shares = (sum(w for w, ok in zip(weights, passed) if ok) / sum(weights) for passed in group)
    return [1.0 if all(passed) else share / 2 for passed, share in zip(group, shares)]
