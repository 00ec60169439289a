"""Hostile programs, cheats and honest programs behind each set of walls: all, no Landlock, servers without root."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from d3s.sandbox.servers import ServerPair
from tests.sandbox.attacks import EXHAUSTION, FILES, NETWORK, PROCESSES
from tests.sandbox.cheats import CHEATS
from tests.sandbox.forgeries import FORGERIES
from tests.sandbox.honest import HONEST
from tests.sandbox.intrusions import GREEDY, INTRUSIONS
from tests.sandbox.styles import STYLES

TIMEOUT_S, GRACE_S, MEMORY_MB = 0.5, 2.0, 256
NOBODY = 65534
WALLS = {"all": {}, "no-landlock": {"landlock": False}, "no-root": {"user": NOBODY}}
WITHOUT_PROGRAM = ("assert 1", "assert 1 == 1")  # fail after a test that ends the program
HOSTILE = {**FILES, **NETWORK, **PROCESSES, **INTRUSIONS}


@pytest.fixture(scope="module", params=WALLS)
def servers(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "no-root":
            patch.setattr(sys, "executable", interpreter_of_nobody())
        pair = ServerPair(**WALLS[request.param])
    yield pair
    assert pair.run("x = 1", ["assert x == 1"], 5, 512).passed == [True]  # it still serves
    pair.close()


@pytest.fixture(scope="module")
def walled():
    """Servers behind all walls, for what does not depend on them."""
    pair = ServerPair()
    yield pair
    assert pair.run("x = 1", ["assert x == 1"], 5, 512).passed == [True]
    pair.close()


def interpreter_of_nobody() -> str:
    """A Python that a user without rights can start: this one may lie in a home directory."""
    check = ["-c", "import sys; assert sys.version_info >= (3, 11)"]
    for path in (sys.executable, "/usr/bin/python3") if os.geteuid() == 0 else ():
        with contextlib.suppress(OSError):
            if subprocess.run([path, *check], user=NOBODY, group=NOBODY, capture_output=True).returncode == 0:
                return path
    pytest.skip("needs root, and an interpreter that nobody can read")


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """A canary file, a listener and a process; afterwards all are as they were."""
    folder = tmp_path_factory.mktemp("canary")
    canary = folder / "canary"
    canary.write_text("alive")
    canary.chmod(0o666)
    folder.chmod(0o777)
    (folder / "planted.py").write_text("")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        port = listener.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        before = outside_files(folder)
        names = f"CANARY, FOLDER, PORT, VICTIM = {str(canary)!r}, {str(folder)!r}, {port}, {victim.pid}\n"
        yield names
        assert victim.poll() is None and os.getpriority(os.PRIO_PROCESS, victim.pid) == os.getpriority(0, 0)
        victim.kill()
        for received in (listener.accept, lambda: datagrams.recv(1)):
            listener.settimeout(0)
            datagrams.settimeout(0)
            with pytest.raises(BlockingIOError):
                received()
        assert canary.read_text() == "alive" and canary.stat().st_mode & 0o777 == 0o666
        assert outside_files(folder) == before


def outside_files(folder: Path) -> set[str]:
    """Names in the folder, and what a program left in places that other processes use too."""
    shared = {f"{place}/{name}" for place in ("/dev/shm", tempfile.gettempdir()) for name in os.listdir(place)}
    return set(os.listdir(folder)) | {name for name in shared if "d3s-attack" in name}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_program_reaches_nothing(name, servers, surroundings):
    program, tests = HOSTILE[name]
    report = servers.run(surroundings + program, tests, TIMEOUT_S, MEMORY_MB)
    if name in ("append while defined", "fork while defined", "start the browser joke", "import what acts"):
        assert report.state == "crash" and not any(report.passed)
    assert not any(report.passed)


def check_exhaustion(pair: ServerPair, table: dict) -> None:
    for name, (program, tests) in table.items():
        started = time.monotonic()
        report = pair.run(program, tests, TIMEOUT_S, MEMORY_MB)
        assert time.monotonic() - started < TIMEOUT_S + GRACE_S, name
        assert not any(report.passed), name


def test_exhaustion_ends_within_its_limits(servers):
    check_exhaustion(servers, EXHAUSTION)


def test_greedy_programs_end_within_their_limits(walled):
    check_exhaustion(walled, GREEDY)


def check_cheat(pair: ServerPair, program: str, tests: list[str]) -> None:
    assert not any(pair.run(program, tests, TIMEOUT_S, MEMORY_MB).passed)
    for test in tests:
        alone = pair.run(program, [test], TIMEOUT_S, MEMORY_MB)
        assert not any(alone.passed) or test in WITHOUT_PROGRAM, test


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_passes_no_test(name, servers):
    check_cheat(servers, *CHEATS[name])


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery_passes_no_test(name, walled):
    check_cheat(walled, *FORGERIES[name])


def check_honest(pair: ServerPair, program: str, tests: list[str]) -> None:
    report = pair.run(program, tests, 20, 512)
    assert report.state == "ok"
    assert [test for test, passed in zip(tests, report.passed) if not passed] == []


@pytest.mark.parametrize("name", HONEST)
def test_honest_program_passes(name, servers):
    check_honest(servers, *HONEST[name])


@pytest.mark.parametrize("name", STYLES)
def test_program_of_each_style_passes(name, walled):
    check_honest(walled, *STYLES[name])
