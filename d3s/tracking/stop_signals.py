"""SIGTERM, SIGINT and SIGHUP during training: finish the step, save and stop; on a second signal exit at once."""

import os
import signal
import time
from contextlib import suppress
from typing import Any

SAME_SIGNAL_S = 1.0  # a repeated signal within this time is the same one, from the terminal and the launcher


class StopSignals:
    """Base class of a training loop, which reads `stop_signal` after every step."""

    stop_signal, stop_time = 0, 0.0  # number and time of the first signal

    def catch_signals(self) -> None:
        """Handle the signals until `restore_signals`, but not a SIGHUP that nohup ignores."""
        hangup = [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)
        numbers = [signal.SIGTERM, signal.SIGINT, *hangup]
        self.handlers: dict[int, Any] = {number: signal.signal(number, self._on_signal) for number in numbers}

    def restore_signals(self) -> None:
        """Restore the handlers from before `catch_signals`. Without that call this does nothing."""
        for number, handler in getattr(self, "handlers", {}).items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if not self.stop_signal:
            self.stop_signal, self.stop_time = number, now
            if os.environ.get("RANK", "0") == "0":
                _say("stopping after this step or evaluation; a second signal ends the run at once, unsaved\n")
        elif now - self.stop_time > SAME_SIGNAL_S:
            _say("stopped by a second signal: this step is not saved\n")
            os._exit(128 + number)


def _say(text: str) -> None:
    with suppress(OSError):  # of a terminal that was closed
        os.write(2, text.encode())  # print may be the call that was interrupted
