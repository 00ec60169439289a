"""Parent's side of the two fork servers: start them, give them one job at a time, read the verdicts.

Two servers, because a process forked from one that has seen tests could read them in its inherited memory. The parent
reads one line per test, from the tester; it parses nothing that a program wrote.
"""

import json
import math
import os
import platform
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from d3s.common import UserError

START_LIMIT_S = 60.0  # seconds in which a server must have its imports, on a busy machine
MAX_TIMEOUT_S = 1e6  # poll counts milliseconds in 32 bits
END_LIMIT_S = 10.0  # seconds in which a server must have ended its child, on a busy machine
MAX_PROGRAM_BYTES = 1 << 20
MACHINES = ("x86_64", "aarch64")
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")  # what an interpreter may need to start
DEFINED, PASSED, REFUSED = "d", "1", "r"  # the first letters of the lines of tester.py
TOTAL_LIMITS = 10  # time limits that all tests of a script may take together
STATES = {"c": "crash", "m": "memory", "r": "refused"}  # by precedence

Test = str | dict[str, str]  # Python statements, or {"input": …, "output": …} of a script
State = Literal["ok", "timeout", "memory", "crash", "refused"]


@dataclass(frozen=True)
class TestReport:
    """Verdicts of one program.

    passed: one entry per test; True only for a test that ran to its end, with every question to the program answered.
    state, the first of these that holds:
        "timeout": a time limit ended the run. Tests that passed before it stay passed.
        "crash": the program raised while it was defined (SyntaxError included), its process ended or sent what is no
            answer, or the tests' process ended.
        "memory": the program's definition or a test failed with MemoryError.
        "refused": the program was not run (larger than 1 MB or no Unicode text), or a test needs more of the program
            than plain values, see docs/rewards.md#the-sandbox.
        "ok": none of these. Tests may have failed.
    reason: why the program was not run, else of the first refused test what it needs and in which line, else why the
        first test that did not pass did not; "" if all passed. It may quote the program.
    needs_more: whether a test was refused, whatever the state.
    """

    __test__ = False  # no test class, whatever pytest makes of the name

    passed: list[bool]
    state: State
    reason: str = field(default="", compare=False)
    needs_more: bool = field(default=False, compare=False)


class ServerError(Exception):
    """A fork server that ended or does not answer."""


class ServerPair:
    """The fork servers of solver and tester. Used by one thread at a time.

    Args:
        landlock: whether to use Landlock where the kernel has it; off in tests, which check the other walls.
        user: uid and gid of the servers, for tests run by root.
    Raises: UserError where programs cannot be confined.
    """

    def __init__(self, landlock: bool = True, user: int | None = None) -> None:
        if sys.platform != "linux" or platform.machine() not in MACHINES:
            raise _unsupported(f"this system is {sys.platform} on {platform.machine()}")
        self._servers: list[_Server] = []
        self._ending = False
        try:
            for _ in range(2):
                self._servers.append(_Server(landlock, user))
            for server in self._servers:
                answer = server.receive(START_LIMIT_S)
                if answer != "ready":
                    raise _unsupported(answer)
        except ServerError as error:
            self.close()
            raise _unsupported(str(error)) from error
        except BaseException:
            self.close()
            raise

    def run(self, program: str, tests: Sequence[Test], timeout_s: float, memory_mb: int) -> TestReport:
        """Return the report of one program.

        Raises: ServerError if a server ended or does not answer, which no program can bring about; the pair is then
            of no use.
        """
        if self._ending:  # the children of the last program, while the caller went on
            for server in self._servers:
                server.receive(END_LIMIT_S)
            self._ending = False
        limits = TOTAL_LIMITS if tests and isinstance(tests[0], dict) else 1  # a script has one for each test
        timeout_s = min(timeout_s, MAX_TIMEOUT_S)
        clock = _Clock(timeout_s, limits)
        try:
            source = program.encode()
        except UnicodeEncodeError:
            source = None
        if source is None or len(source) > MAX_PROGRAM_BYTES:
            reason = "the program is no Unicode text" if source is None else "the program is larger than 1 MB"
            return TestReport([False] * len(tests), "refused", reason)
        start = f"start {memory_mb} {math.ceil(timeout_s * limits) + 1}".encode()
        checks = json.dumps(tests).encode()
        solver, tester = self._servers
        reader, writer = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb")))
        with reader:
            link, other_link = socket.socketpair()
            with writer, link, other_link, _memory_file(source) as text, _memory_file(checks) as texts:
                solver.send(start, [link.fileno(), text.fileno()])
                tester.send(start, [other_link.fileno(), texts.fileno(), writer.fileno()])
            verdicts = _read_verdicts(reader.fileno(), len(tests) + 1, clock)
        report = _report(verdicts, len(tests), clock)
        for server in self._servers:
            server.send(b"end")
        self._ending = True
        return report

    def forget(self) -> None:
        """Close this process's ends. After a fork, the servers belong to the parent."""
        for server in self._servers:
            server.control.close()

    def close(self) -> None:
        """End both servers and what they run."""
        for server in self._servers:
            server.close()


def _unsupported(reason: str) -> UserError:
    return UserError(
        "code rewards run untrusted programs and need Linux (x86-64 or aarch64) with seccomp; "
        f"{reason}; use such a machine, or reward.functions of your own"
    )


def _memory_file(data: bytes):
    file = os.fdopen(os.memfd_create("text"), "wb")
    file.write(data)
    file.seek(0)
    return file


class _Clock:
    """The deadline of a run, which starts anew with each verdict, up to `limits` times timeout_s in all."""

    def __init__(self, timeout_s: float, limits: int) -> None:
        self.timeout_s, self._end = timeout_s, time.monotonic() + timeout_s * limits
        self.start()

    def start(self) -> None:
        self._deadline = min(time.monotonic() + self.timeout_s, self._end)

    def left(self) -> float:
        """Seconds, 0 after the deadline."""
        return max(0.0, self._deadline - time.monotonic())


def _read_verdicts(reader: int, count: int, clock: _Clock) -> list[str]:
    """Read lines until all verdicts are there, the tester has ended, or the deadline."""
    data = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while data.count(b"\n") < count:
        left = clock.left()
        if not (left and poll.poll(left * 1000)):
            break
        part = os.read(reader, 4096)
        if not part:
            break
        data += part
        clock.start()
    return data.decode(errors="replace").split("\n")[:-1]


def _report(verdicts: list[str], tests: int, clock: _Clock) -> TestReport:
    late = not clock.left()
    marks = [verdict[:1] for verdict in verdicts] + [""] * (tests + 1 - len(verdicts))
    refused = [verdict[1:] for verdict in verdicts if verdict[:1] == REFUSED]
    failed = [verdict[1:] for verdict in verdicts if verdict[:1] not in (DEFINED, PASSED)]
    if len(verdicts) <= tests and marks[0] in ("", DEFINED):
        place = f"test {len(verdicts)}" if verdicts else "the program"
        failed.append(
            f"{place}: " + (f"not within {clock.timeout_s:g} s" if late else "the process of the tests ended")
        )
    state = next((state for mark, state in STATES.items() if mark in marks), "ok")
    if marks[0] in ("", DEFINED) and "" in marks:  # a test was running
        state = "timeout" if late else "crash"
    reason = next(iter(refused + failed), "")
    return TestReport([mark == PASSED for mark in marks[1 : tests + 1]], state, reason, bool(refused))


class _Server:
    """One fork server and its control socket."""

    def __init__(self, landlock: bool, user: int | None) -> None:
        self.control, remote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        zygote = Path(__file__).with_name("zygote.py")
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        environment |= {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "TZ": "UTC"}  # equal verdicts in every run
        with remote_end:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", str(zygote), str(int(landlock))],
                stdin=remote_end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
                start_new_session=True, user=user, group=user, extra_groups=None if user is None else [],
            )  # fmt: skip

    def send(self, message: bytes, descriptors: list[int] | None = None) -> None:
        try:
            socket.send_fds(self.control, [message], descriptors or [])
        except OSError as error:
            raise ServerError(f"a sandbox server has ended ({error})") from error

    def receive(self, limit_s: float) -> str:
        self.control.settimeout(limit_s)
        try:
            answer = self.control.recv(1000).decode()
        except OSError as error:
            raise ServerError(f"a sandbox server does not answer ({error})") from error
        finally:
            self.control.settimeout(None)
        if not answer:
            raise ServerError("a sandbox server has ended")
        return answer

    def close(self) -> None:
        self.control.close()
        self._process.kill()  # which kills its child, too
        self._process.wait()
