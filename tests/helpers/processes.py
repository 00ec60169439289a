"""Child processes of a test, for what must survive a kill or end by a signal."""

import os
from collections.abc import Callable


def in_child(action: Callable[[Callable[[], object]], None]) -> tuple[int, int]:
    """Run `action(ready)` in a child process. Return its id, and a pipe that is readable once it has called ready()."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, reader
    try:
        os.dup2(writer, 2)
        action(lambda: os.write(writer, b"ready\n"))
    finally:
        os._exit(99)
