"""run_tests, Sandbox and their servers: verdicts of small programs whose answers are known, states, lost servers."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.sandbox import Sandbox, TestReport, run_tests
from d3s.sandbox.cases import Approx
from d3s.sandbox.servers import ServerPair
from tests.helpers.verifier_workers import eventually, is_alive, server_ids

DOUBLE, ONE = "def double(x):\n    return 2 * x", "assert one == 1"
ENDED = "the program's process ended or broke the protocol"


def test_verdicts_follow_the_tests_in_order():
    tests = ["assert double(2) == 4", "assert double(2) == 5", "y = double(3)", "assert y == 6", "assert no_name"]
    assert run_tests(DOUBLE, tests) == TestReport([True, False, True, True, False], "ok")
    report = run_tests("class A: pass", ["a = A()", "x = 1\nassert a == a or x", "assert A"])
    assert report == TestReport([True, False, False], "refused")  # by the first state that holds
    assert report.reason.startswith("test 2, line 2: __eq__ of an object of the program")


def test_scripts_run_once_for_each_test():
    tests = [{"input": f"{n}\n", "output": f"{2 * n}"} for n in (1, 2, 3, 4)]
    for end in ("if n > 2: open = input = print = None", "exit()\nprint(5)", "quit(0)"):
        assert run_tests(f"n = int(input())\nprint(n * 2)\n{end}", tests) == TestReport([True] * 4, "ok")
    assert run_tests("print(2 * int(input()))\nexit(1)", tests).passed == [False] * 4
    slow = "import time\nn = int(input())\ntime.sleep(0.5 if n < 4 else 9)\nprint(n * 2)"
    report = run_tests(slow, tests, timeout_s=1.4)  # each test has this time
    assert report == TestReport([True] * 3 + [False], "timeout") and report.reason == "test 4: not within 1.4 s"


def test_scripts_end_after_ten_time_limits():
    tests = [{"input": "", "output": ""}] * 40
    started = time.monotonic()
    report = run_tests("import time\ntime.sleep(0.2)", tests, timeout_s=0.4)  # a busy machine starts programs late
    assert report.state == "timeout" and 0 < sum(report.passed) < 25 and time.monotonic() - started < 8


@pytest.mark.parametrize(
    ("program", "test", "state", "reason"),
    [
        (DOUBLE, "x = 1\nassert double(x) == 3", "ok", "test 1, line 2: AssertionError"),
        ("def double(x): raise ValueError('a\\n1')", "double(1)", "ok", "test 1, line 1: ValueError: a 1"),
        ("class A: pass\ndef f(x): return A()", "raise ValueError(f(1))", "ok", "test 1, line 1: ValueError"),
        ("one = 1\n1 / 0", ONE, "crash", "the program: ZeroDivisionError: division by zero"),
        ("one = 1\ndef f(:", ONE, "crash", "the program: SyntaxError: "),
        ("one = 1\nimport sys\nsys.exit()", ONE, "crash", "the program: the process of the tests ended"),
        ("one = 1\nimport os\nos._exit(0)", ONE, "crash", f"the program: {ENDED}"),
        ("import os\ndef f(): os._exit(0)", "f()", "crash", f"test 1: {ENDED}"),
        ("one = 1\nx = 'a' * 10**10", ONE, "memory", "the program: MemoryError"),
        ("one = 1\nwhile True: pass", ONE, "timeout", "the program: not within 2 s"),
        ("one = 1\n#" + "a" * (1 << 20), ONE, "refused", "the program is larger than 1 MB"),
        ("one = 1\nx = '\ud800'", ONE, "refused", "the program is no Unicode text"),
        ("def f(x): return x", "import numpy\nassert f(1) == 1", "refused", "test 1: no module numpy; the sandbox has"),
        ("print(input())", {"input": "a", "output": "b"}, "ok", "test 1: AssertionError: got 'a\\n', expected 'b'"),
        ("print(1 / 0)", {"input": "a", "output": "b"}, "ok", "test 1: ZeroDivisionError: division by zero"),
    ],
)
def test_every_zero_has_a_state_and_a_reason(program, test, state, reason):
    report = run_tests(program, [test] * 2, timeout_s=2)
    assert report == TestReport([False] * 2, state)
    assert report.reason.startswith(reason) and "\n" not in report.reason


def test_passed_tests_survive_the_time_limit():
    program = "def f(x):\n    while x > 1:\n        pass\n    return x"
    started = time.monotonic()
    report = run_tests(program, ["assert f(1) == 1", "f(2)", "assert f(0) == 0"], timeout_s=0.5)
    assert report == TestReport([True, False, False], "timeout")
    assert time.monotonic() - started < 2.5


def test_sandbox_serves_many_programs():
    before = server_ids()
    sandbox = Sandbox(workers=2, timeout_s=5, memory_mb=512)
    futures = [sandbox.submit(f"x = {i}", [f"assert x == {i}", "assert x == 3"]) for i in range(8)]
    assert [future.result(30).passed for future in futures] == [[True, i == 3] for i in range(8)]
    sandbox.close()
    assert server_ids() == before
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.submit("", [])


def test_closed_sandbox_runs_nothing_that_waits():
    sandbox, started = Sandbox(workers=1, timeout_s=1, memory_mb=512), time.monotonic()
    futures = [sandbox.submit("while True:\n    pass", ["assert True"]) for _ in range(8)]
    sandbox.close()
    assert time.monotonic() - started < 4
    errors = [future.exception(0) for future in futures]
    assert all(isinstance(error, RuntimeError) for error in errors[1:])


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(0, 2), st.none() | st.floats(0, 10))
@example(10, 11.1, 0.1, None)
@example(math.inf, math.inf, 0.1, None)
@example(math.inf, 1.0, 0.1, None)
@example(1.0, math.nan, 0.1, 1.0)
def test_approx_is_that_of_pytest(expected, other, rel, absolute):
    assert (other == Approx(expected, rel, absolute)) == (other == pytest.approx(expected, rel, absolute))


def doubles() -> bool:
    return run_tests(DOUBLE, ["assert double(1) == 2"]) == TestReport([True], "ok")


def test_lost_servers_are_replaced():
    """Those that were killed, and in a forked process those of its parent."""
    assert doubles()
    for server in server_ids():
        os.kill(server, signal.SIGKILL)
    assert doubles()
    child = os.fork()
    if child == 0:
        os._exit(0 if doubles() else 1)
    assert os.waitpid(child, 0)[1] == 0 and doubles()


# What a caller may have done: ignored children, blocked signals, closed streams, lost its folder, few descriptors.
CALLER = """
import os, resource, signal, tempfile
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.closerange(0, 3)
os.chdir(folder := tempfile.mkdtemp())
os.rmdir(folder)
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
from d3s.sandbox import run_tests
reports = [run_tests("def double(x): return 2 * x", [f"assert double(1) == {n}"]) for n in (2, 3)]
os._exit(0 if [report.passed for report in reports] == [[True], [False]] else 1)
"""


def test_state_of_the_caller_does_not_matter():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= {"PYTHONOPTIMIZE": "2", "PYTHONHASHSEED": "7"}
    assert subprocess.run([sys.executable, "-c", CALLER], env=environment, timeout=60).returncode == 0


def test_interrupted_call_leaves_no_program_running():
    assert doubles()
    before = len(server_ids())

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        run_tests("while True: pass", ["1"], timeout_s=20)
    signal.signal(signal.SIGALRM, previous)
    assert doubles() and len(server_ids()) == before


def test_servers_end_when_their_parent_is_killed():
    start = "from d3s.sandbox.servers import ServerPair; p = ServerPair(); print('started', flush=True); "
    command = [sys.executable, "-c", start + "p.run('while 1: pass', ['1'], 60, 512)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"started\n"
        pids = server_ids(parent.pid)
        assert len(pids) == 2
        parent.kill()
    assert eventually(lambda: not any(map(is_alive, pids)), 15)


def test_servers_do_not_inherit_the_environment(monkeypatch):
    monkeypatch.setenv("D3S_SECRET", "token")
    pair = ServerPair()
    tests = ["assert one and 'D3S_SECRET' not in os.environ", "assert one and len(os.environ) < 9"]
    report = pair.run("import os\none = 1", tests, 5, 512)
    pair.close()
    assert report.passed == [True, True]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sys.platform", "darwin", "seccomp; this system is darwin on"),
        ("platform.machine", lambda: "riscv64", "seccomp; this system is linux on riscv64"),
        ("sys.executable", "/bin/false", "a sandbox server has ended"),
    ],
)
def test_other_systems_are_refused(monkeypatch, name, value, message):
    monkeypatch.setattr(f"d3s.sandbox.servers.{name}", value)
    with pytest.raises(UserError, match=message):
        ServerPair()
