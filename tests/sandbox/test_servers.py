"""Fork servers from outside: they end with their parent or socket, hold no secrets, and what systems are refused."""

import signal
import subprocess
import sys

import pytest

from d3s.common import UserError
from d3s.sandbox.servers import ServerError, ServerPair
from tests.helpers.verifier_workers import eventually, is_alive, server_ids

START = "from d3s.sandbox.servers import ServerPair; p = ServerPair(); print('started', flush=True); "


def test_servers_end_when_their_parent_is_killed():
    command = [sys.executable, "-c", START + "p.run('while 1: pass', ['1'], 60, 512)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"started\n"
        pids = server_ids(parent.pid)
        assert len(pids) == 2
        parent.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(map(is_alive, pids)), 15)


def test_servers_do_not_inherit_the_environment(monkeypatch):
    monkeypatch.setenv("D3S_SECRET", "token")
    pair = ServerPair()
    report = pair.run("import os", ["assert 'D3S_SECRET' not in os.environ", "assert len(os.environ) < 9"], 5, 512)
    pair.close()
    assert report.passed == [True, True]


def test_closed_pair_runs_nothing():
    pair = ServerPair()
    pair.close()
    with pytest.raises(ServerError, match="ended"):
        pair.run("", [], 1, 512)


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
