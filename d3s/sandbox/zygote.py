"""Fork server of solvers or of testers: python zygote.py LANDLOCK, with its control socket as stdin.

It runs one child at a time. The parent sends b"start MEMORY_MB CPU_S" with descriptors (solver: link, program; tester:
link, tests, verdicts) and later b"end", which is answered when the child is gone. A child is one process for
sure, since its filter allows no clone. The server ends with its parent.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import types
from pathlib import Path

# Of d3s, this process knows this folder only: the packages are empty, so that no __init__.py imports torch.
for name, folder in (("d3s", Path(__file__).parents[1]), ("d3s.sandbox", Path(__file__).parent)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(folder)]

from d3s.sandbox import confine, preload, seccomp, solver, tester  # noqa: E402

PARENT_CHECK_S = 2.0
PROBE_MEMORY_MB, PROBE_CPU_S = 1 << 20, 10
READY = b"ready"


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller's SIG_IGN is inherited, and waitpid would fail
    parent = os.getppid()
    sys.dont_write_bytecode = True
    preload.import_common()
    rules = confine.landlock_rules() if sys.argv[1] == "1" else None
    walls = confine.Walls(rules, seccomp.filter_program(os.uname().machine))
    problem = probe(walls)
    control.send(problem.encode()[:1000] or READY)
    gc.collect()
    gc.freeze()
    child = 0
    while True:
        if not select.select([control], [], [], PARENT_CHECK_S)[0]:
            if os.getppid() != parent:
                return end(child)
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 100, 3)
        if not message:
            return end(child)
        if message == b"end":
            end(child)
            child = 0
            control.send(b"ended")
            continue
        _, memory_mb, cpu_s = message.split()
        child = os.fork()
        if child == 0:
            control.close()
            run_child(descriptors, walls, int(memory_mb), int(cpu_s))
        for descriptor in descriptors:
            os.close(descriptor)


def end(child: int) -> None:
    """Kill the child. Its number is not used again before waitpid."""
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def probe(walls: confine.Walls) -> str:
    """Confine a child to see whether this system allows it. Returns the problem, "" if there is none."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            confine.confine(walls, PROBE_MEMORY_MB, PROBE_CPU_S)
            os.write(writer, b"+")
        except BaseException as error:
            os.write(writer, str(error).encode() or b"-")
        finally:
            os._exit(0)
    os.close(writer)
    problem = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return "" if problem == "+" else problem or "the confined process died"


def run_child(descriptors: list[int], walls: confine.Walls, memory_mb: int, cpu_s: int) -> None:
    """Read the text, import what it names, confine this process, play the role. Never returns."""
    try:
        confine.die_with_parent()
        os.chdir("/")
        confine.limit_files()
        link, source, *verdicts = descriptors
        first = 3
        for kept in sorted(descriptors):
            os.closerange(first, kept)
            first = kept + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        text = os.pread(source, os.fstat(source).st_size, 0).decode()
        os.close(source)
        tests = json.loads(text) if verdicts else []
        confine.become_nobody()
        preload.import_named("\n".join(filter(lambda test: isinstance(test, str), tests)) if verdicts else text)
        confine.confine(walls, memory_mb, cpu_s)
        if verdicts:
            tester.main(link, *verdicts, tests)
        else:
            solver.main(link, text)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
