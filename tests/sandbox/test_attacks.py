"""Hostile programs, cheats and honest programs in real servers: what one of three sets of walls must hold, and all."""

import contextlib
import os
import socket
import subprocess
import sys
import time

import pytest

from d3s.sandbox.servers import ServerPair, TestReport
from tests.sandbox.attacks import EXHAUSTING, EXHAUSTION, OUTSIDE, PRELUDE, WHILE_DEFINED
from tests.sandbox.cheats import CHEATS
from tests.sandbox.honest import HONEST, SCRIPTS

TIMEOUT_S, GRACE_S, MEMORY_MB = 0.5, 10.0, 256
NOBODY = 65534
WALLS = {"all": {}, "no-landlock": {"landlock": False}, "no-root": {"user": NOBODY}}


@pytest.fixture(scope="module", params=WALLS)
def servers(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "no-root":
            patch.setattr(sys, "executable", interpreter_of_nobody())
        pair = ServerPair(**WALLS[request.param])
    yield pair
    assert pair.run("x = 1", ["assert x == 1"], 5, 512).passed == [True]  # it still serves
    pair.close()


# What does not depend on single walls runs behind all.
ALL_WALLS = pytest.mark.parametrize("servers", ["all"], indirect=True)


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
    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen(["sleep", "600"]) as victim:
        port = listener.getsockname()[1]
        yield f"CANARY, FOLDER, PORT, VICTIM = {str(canary)!r}, {str(folder)!r}, {port}, {victim.pid}\n"
        assert victim.poll() is None and os.getpriority(os.PRIO_PROCESS, victim.pid) == os.getpriority(0, 0)
        victim.kill()
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert canary.read_text() == "alive" and canary.stat().st_mode & 0o777 == 0o666
        assert {*os.listdir(folder)} == {"canary", "planted.py"}


def test_hostile_programs_reach_nothing(servers, surroundings):
    """All in one process, of which the last test passes: none of them ended it."""
    attacks = [f"def attack{i}():\n{body}" for i, body in enumerate(OUTSIDE.values())]
    tests = [f"assert attack{i}() is True" for i in range(len(attacks))]
    report = servers.run("\n".join([surroundings + PRELUDE, *attacks]), [*tests, "assert alive()"], 20, MEMORY_MB)
    assert [name for name, passed in zip(OUTSIDE, report.passed) if passed] == []
    assert report.passed[-1]


def test_attacks_while_defined_are_crashes(servers, surroundings):
    for attack in WHILE_DEFINED:
        report = servers.run(f"{surroundings}{attack}\nx = 1", ["assert x == 1"], TIMEOUT_S, MEMORY_MB)
        assert report == TestReport([False], "crash"), attack


@ALL_WALLS
def test_exhaustion_ends_within_its_limits(servers):
    table = {name: ("class A: pass\ndef f():\n" + body, "f()") for name, body in EXHAUSTION.items()} | EXHAUSTING
    for name, (program, test) in table.items():
        started = time.monotonic()
        report = servers.run(program, [test], TIMEOUT_S, MEMORY_MB)
        assert time.monotonic() - started < TIMEOUT_S + GRACE_S, name
        assert not any(report.passed), name


@ALL_WALLS
@pytest.mark.parametrize("name", CHEATS)
def test_cheat_passes_no_test(name, servers):
    """Together, and each alone."""
    program, tests = CHEATS[name]
    for chosen in [tests, *([test] for test in tests if len(tests) > 1)]:
        assert not any(servers.run(program, chosen, TIMEOUT_S, MEMORY_MB).passed), chosen


@pytest.mark.parametrize("name", HONEST)
def test_honest_program_passes(name, servers):
    program, tests = HONEST[name]
    report = servers.run(program, tests, 20, 512)
    assert report.state == "ok"
    assert [test for test, passed in zip(tests, report.passed) if not passed] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_honest_script_passes(script, servers):
    tests = [{"input": f"1 {n} 3\n", "output": f"{4 + n}"} for n in (2, 5)]
    assert servers.run(script, tests, 20, 512) == TestReport([True, True], "ok")
