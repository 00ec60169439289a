"""The signal handlers of a training loop, in a child process: exit codes and messages."""

import os
import signal
import time

from d3s.tracking.stop_signals import SAME_SIGNAL_S, StopSignals
from tests.helpers.processes import in_child


def test_second_signal_ends_a_hanging_run():
    def hang(ready):
        StopSignals().catch_signals()
        ready()
        while True:
            time.sleep(60)

    child, pipe = in_child(hang)
    assert os.read(pipe, 100) == b"ready\n"
    os.kill(child, signal.SIGTERM)
    assert b"stopping after this step; a second signal ends the run at once" in os.read(pipe, 200)
    os.kill(child, signal.SIGTERM)  # a launcher may repeat a signal that the process has already received
    time.sleep(SAME_SIGNAL_S + 0.2)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert b"not saved" in os.read(pipe, 200)


def test_hangup_stops_unless_it_is_ignored():
    """Also without a terminal to write to; nohup leaves SIGHUP ignored."""

    def follow(ready):
        os.close(2)
        for ignored in (False, True):
            if ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signals = StopSignals()
            signals.catch_signals()
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.stop_signal == (0 if ignored else signal.SIGHUP)
            signals.restore_signals()
        ready()

    child, pipe = in_child(follow)
    assert os.read(pipe, 100) == b"ready\n"
    os.waitpid(child, 0)
