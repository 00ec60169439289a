"""The verifier under attack: hostile answers, stuck and dying workers, threads, launchers, orphans, fuzzing."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verifier.hostile_answers import hostile_answers
from d3s.verifier.equivalence import all_of, equivalent
from d3s.verifier.extraction import extract
from d3s.verifier.normalize import canonical, compact
from d3s.verifier.pool import FormulaPool
from d3s.verifier.verifier import Verifier, verify

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 1.0
STUCK = r"\int_0^1\int_0^1\int_0^1 \sin(xyz)^{\cos(x+y)} dx dy dz"  # longer than any limit here


def worker_ids(parent: int) -> list[int]:
    """Process ids of the verifier's workers of one process."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stat, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except (OSError, NotADirectoryError):
            continue
        if b"d3s.verifier.worker" in command and int(stat.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_hostile_answers_score_zero_in_time_and_run_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    rows = list(hostile_answers(str(canary)))
    assert len(rows) >= 200
    with Verifier(workers=2, timeout_s=LIMIT_S) as verifier:
        assert verifier.score([r"\boxed{\sqrt{4}}"], ["2"]) == [1.0]
        verifier.take_stats()
        start = time.monotonic()
        futures: list[Future[float]] = []
        for response, gold in rows:
            begin = time.monotonic()
            futures.append(verifier.submit(response, gold))
            assert time.monotonic() - begin < 1.0, response[:80]  # the calling process is never held up
        assert [rows[i] for i, future in enumerate(futures) if future.result() != 0.0] == []
        stats = verifier.take_stats()
        assert stats["decided"] == len(rows)
        restarts = 30.0 * stats["timeouts"]  # a fresh worker has to import sympy, slowly on a busy machine
        assert time.monotonic() - start < len(rows) * LIMIT_S + restarts
        assert verifier.score([r"\boxed{\sqrt{9}}"], ["3"]) == [1.0]
    assert not canary.exists()
    assert not any(path.name.startswith("touch") for path in ROOT.iterdir())


@pytest.mark.parametrize("extraction", ["strict", "lenient"])
def test_hostile_responses_are_extracted_quickly(extraction, tmp_path: Path) -> None:
    for response, gold in hostile_answers(str(tmp_path / "canary")):
        start = time.process_time()
        found = extract(response, extraction)
        assert not found or all_of(equivalent(gold, text) for text in found.texts) is not True
        assert time.process_time() - start < 1.0, response[:80]


def test_a_stuck_worker_is_killed_and_the_next_answer_is_unaffected() -> None:
    others = set(worker_ids(os.getpid()))  # of verify(), from earlier tests
    with Verifier(workers=1, timeout_s=LIMIT_S) as verifier:
        verifier.score([r"\boxed{\sqrt{4}}"], ["2"])
        before = set(worker_ids(os.getpid())) - others
        start = time.monotonic()
        stuck = verifier.submit(rf"\boxed{{{STUCK}}}", "5")
        after = verifier.submit(r"\boxed{\sqrt{16}}", "4")
        assert stuck.result() == 0.0
        assert LIMIT_S * 0.99 <= time.monotonic() - start < LIMIT_S + 1.0
        assert after.result() == 1.0
        assert verifier.take_stats()["timeouts"] == 1
        assert before and not before & set(worker_ids(os.getpid()))


def test_a_stopped_process_counts_as_stuck_and_a_killed_one_as_crashed() -> None:
    others = set(worker_ids(os.getpid()))
    with Verifier(workers=1, timeout_s=LIMIT_S) as verifier:
        for sign, name in ((signal.SIGSTOP, "timeouts"), (signal.SIGKILL, "crashes")):
            assert verifier.score([r"\boxed{\sqrt{4}+" + sign.name[3:4] + "-" + sign.name[3:4] + "}"], ["2"]) == [1.0]
            (worker,) = set(worker_ids(os.getpid())) - others
            os.kill(worker, sign)
            assert verifier.score([rf"\boxed{{\sqrt{{{sign.value**2}}}}}"], [str(sign.value)]) == [0.0]
            assert verifier.take_stats()[name] == 1
            assert verifier.score([rf"\boxed{{\sqrt{{{sign.value**2}}}}}"], [str(sign.value)]) == [1.0]  # asked again


def test_memory_is_bounded() -> None:
    others = set(worker_ids(os.getpid()))
    pool = FormulaPool(workers=1, timeout_s=20.0, memory_mb=256)
    try:
        hungry = r"\gcd(9^{9^{9}}, 3) + \gcd(8^{9^{9}}, 3) + \gcd(7^{9^{9}}, 3)"
        future = pool.submit("5", hungry)
        peak = 0
        while not future.done():
            for worker in set(worker_ids(os.getpid())) - others:
                try:
                    status = Path(f"/proc/{worker}/status").read_text()
                except OSError:
                    continue
                peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))])
            time.sleep(0.02)
        assert future.result() in ("crash", "timeout", "unparsed")
        assert 0 < peak < 256 * 1024  # kB
        assert pool.submit("2", r"\sqrt{4}").result() == "equal"
    finally:
        pool.close()


def test_order_is_kept_from_many_threads() -> None:
    answers = [str(n) for n in range(2, 14)]
    responses = [rf"\boxed{{\sqrt{{{n**2 if n % 3 else n}}}}}" for n in range(2, 14)]
    expected = [1.0 if n % 3 else 0.0 for n in range(2, 14)]
    results: list[list[float]] = []
    with Verifier(workers=2) as verifier:
        work = lambda: results.append(verifier.score(responses, answers))  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [expected] * 6


def test_verify_works_in_a_thread() -> None:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(verify(r"\boxed{\sqrt{49}}", "7")))
    thread.start()
    thread.join()
    assert results == [True]


SCRIPT = """
import os
from d3s.verifier.verifier import Verifier
def main():
    with Verifier(workers=1) as verifier:
        print(verifier.score([r"\\boxed{\\sqrt{25}}", "no"], ["5", "5"]), flush=True)
main()  # without a guard: workers must not run the caller's main module again
"""


def test_it_works_under_a_launcher_and_never_reruns_main(tmp_path: Path) -> None:
    script = tmp_path / "train_like.py"
    script.write_text(SCRIPT)
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    environment = os.environ | launcher | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[1.0, 0.0]\n", done.stderr


WAITING = r"""
import time
from d3s.verifier.verifier import Verifier
verifier = Verifier(workers=2, timeout_s=2.0)
verifier.score([r"\boxed{\sqrt{4}}", r"\boxed{\sqrt{9}}"], ["2", "3"])
"""
BUSY = (
    f"stuck = r'{STUCK}'\n"
    + r"""
futures = [verifier.submit(r"\boxed{" + stuck + "+" + name + "}", "5") for name in "ab"]
"""
)


@pytest.mark.parametrize("busy", [False, True])
def test_workers_do_not_survive_a_killed_parent(busy: bool) -> None:
    code = WAITING + (BUSY if busy else "") + "print('up', flush=True); time.sleep(60)\n"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "up\n"
        workers = worker_ids(parent.pid)
        assert workers
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert eventually(lambda: not any(alive(worker) for worker in workers), 10.0)


@pytest.mark.parametrize("exists", [True, False])
def test_a_worker_that_cannot_start_is_said_aloud(
    exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    if exists:
        python.write_text("#!/bin/sh\necho broken installation >&2\nexit 1\n")
        python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool = FormulaPool(workers=1, timeout_s=LIMIT_S, memory_mb=1024)
        assert [pool.submit("2", rf"\sqrt{{{n}}}").result() for n in (4, 5)] == ["crash", "crash"]
        pool.close()
    assert any(("broken installation" if exists else "python") in str(warning.message) for warning in caught)


ALPHABET = st.text(alphabet="0123456789abcxyei+-*/^_=<>(){}[]|!,.;:% $\\'\"\n°√π½²∞≤", max_size=40)
PIECES = st.lists(
    st.sampled_from(
        [
            r"\frac",
            r"\sqrt",
            r"\text{",
            r"}",
            r"{",
            r"(",
            r")",
            r"[",
            r"]",
            r"\{",
            r"\}",
            r"\pm",
            r"\cup",
            r"\cap",
            r"=",
            r"<",
            r"\leq",
            r"\infty",
            r",",
            r";",
            r"1",
            r"2",
            r"0.5",
            r"x",
            r"y",
            r"i",
            r"e",
            r"^",
            r"_",
            r"+",
            r"-",
            r"\cdot",
            r"\times",
            r"10",
            r"%",
            r"^\circ",
            r"\left(",
            r"\right)",
            r"\begin{pmatrix}",
            r"\end{pmatrix}",
            r"&",
            r"\\",
            r"\sin",
            r"\log",
            r"\in",
            r"\mathbb{R}",
            r"\boxed{",
            r"!",
            r"|",
            r"and",
            r"or",
            r"cm",
            r"\approx",
            r".",
            r"C",
            r"(A)",
            r"3:",
            r"\bar",
        ]
    ),
    max_size=14,
).map("".join)
ANSWERS = st.one_of(ALPHABET, PIECES, st.text(max_size=30))


@given(ANSWERS, ANSWERS)
@settings(max_examples=1500, deadline=None)
def test_the_cheap_layers_never_raise_and_are_reflexive(gold: str, answer: str) -> None:
    assert equivalent(gold, answer) in (True, False, None)
    assert extract(answer, "lenient") is None or extract(answer, "lenient").texts
    if compact(canonical(answer)):
        assert equivalent(answer, answer) is True


@given(ANSWERS, ANSWERS)
@settings(max_examples=150, deadline=None)
def test_verify_is_always_a_bool(gold: str, answer: str) -> None:
    assert isinstance(verify(rf"\boxed{{{answer}}}", gold), bool)
    assert isinstance(verify(answer, gold, "lenient"), bool)


NUMBERS = st.one_of(
    st.integers(-999, 999).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 30)).map(lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}"),
    st.tuples(st.integers(0, 99), st.integers(1, 9)).map(lambda f: f"{f[0]}.{f[1]}"),
    st.integers(2, 40).map(lambda n: rf"\sqrt{{{n}}}"),
)
STRUCTURES = st.one_of(
    NUMBERS,
    st.lists(NUMBERS, min_size=2, max_size=3).map(", ".join),
    st.lists(NUMBERS, min_size=2, max_size=3).map(lambda n: f"({', '.join(n)})"),
    st.lists(NUMBERS, min_size=2, max_size=3).map(lambda n: rf"\{{{', '.join(n)}\}}"),
    NUMBERS.map(lambda n: f"x = {n}"),
    NUMBERS.map(lambda n: f"x > {n}"),
)


@given(STRUCTURES, STRUCTURES)
@settings(max_examples=100, deadline=None)
def test_equality_is_symmetric_where_no_rounding_is_involved(one: str, other: str) -> None:
    assert verify(rf"\boxed{{{one}}}", other) == verify(rf"\boxed{{{other}}}", one)
