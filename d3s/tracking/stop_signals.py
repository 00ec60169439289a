"""SIGTERM, SIGINT and SIGHUP during training: finish the step, save and stop; on a second signal end at once."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

SAME_SIGNAL_S = 1.0  # a repeated signal within this time is the same one, from the terminal and the launcher


class StopSignals:
    """Base class of a training loop, which reads `stop_signal` after every step."""

    stop_signal, stop_time = 0, 0.0  # number and time of the first signal
    ends_process = False  # by a second one, as a command does; else it raises KeyboardInterrupt
    handlers: Mapping[int, Any] = {}  # those from before, while the signals are caught

    def catch_signals(self) -> None:
        """Handle the signals until `restore_signals`, but not a SIGHUP that nohup ignores.

        Python sets handlers in the main thread alone; in another one training cannot be stopped by a signal.
        """
        self.stop_signal = 0
        if threading.current_thread() is not threading.main_thread():
            return
        self.restore_signals()  # of a loop that ran before
        hangup = [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)
        numbers = [signal.SIGTERM, signal.SIGINT, *hangup]
        self.handlers = {number: signal.signal(number, self._on_signal) for number in numbers}

    def restore_signals(self) -> None:
        """Restore the handlers from before `catch_signals`. Without that call this does nothing."""
        handlers, self.handlers = self.handlers, {}
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if not self.stop_signal:
            self.stop_signal, self.stop_time = number, now
            if os.environ.get("RANK", "0") == "0":
                _say("stopping after this step or evaluation; a second signal ends the run at once, unsaved\n")
        elif now - self.stop_time > SAME_SIGNAL_S:
            _say("stopped by a second signal: this step is not saved\n")
            if not self.ends_process:
                raise KeyboardInterrupt
            os._exit(128 + number)


def stoppable(train: Callable[[Any], int]) -> Callable[[Any], int]:
    """Let the signals stop a training loop. The handlers are restored if it raises, as close() may not follow."""

    @wraps(train)
    def caught(self: StopSignals) -> int:
        self.catch_signals()
        try:
            return train(self)
        except BaseException:
            self.restore_signals()
            raise

    return caught


def _say(text: str) -> None:
    with suppress(OSError):  # of a terminal that was closed
        os.write(2, text.encode())  # print may be the call that was interrupted
