"""Time the sandbox: the start of its servers, and programs one after the other on one worker.

    python -m benchmarks.speed.sandbox [--programs 200]      (make bench-sandbox)

Every program is different, defines one small function and has three asserts. A program costs two processes, their
confinement and some ten messages; its own work is a few microseconds.
"""

import argparse
import time

from benchmarks.harness import publish
from d3s.sandbox.servers import ServerPair

TIMEOUT_S, MEMORY_MB = 5.0, 512
COLUMNS = ["programs", "start, ms", "median, ms", "p95, ms"]


def small_program(i: int) -> tuple[str, list[str]]:
    """Return a program and its tests."""
    program = f"def scale(values):\n    return [{i} * value for value in values]"
    return program, [f"assert scale([{k}, 1]) == [{i * k}, {i}]" for k in (2, 3, 5)]


def time_programs(pair: ServerPair, programs: int) -> list[float]:
    """Return the seconds of each program. Raises RuntimeError if one does not pass."""
    seconds = []
    for i in range(programs):
        program, tests = small_program(i)
        started = time.perf_counter()
        report = pair.run(program, tests, TIMEOUT_S, MEMORY_MB)
        seconds.append(time.perf_counter() - started)
        if not all(report.passed):
            raise RuntimeError(f"program {i} did not pass: {report}")
    return seconds


def row(start: float, seconds: list[float]) -> list[str]:
    """Return the cells of COLUMNS from durations in seconds."""
    ordered = sorted(seconds)
    quantiles = (ordered[len(ordered) // 2], ordered[int(0.95 * len(ordered))])
    return [str(len(seconds)), f"{1000 * start:.0f}", *(f"{1000 * value:.1f}" for value in quantiles)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    args = parser.parse_args()
    started = time.perf_counter()
    pair = ServerPair()
    start = time.perf_counter() - started
    seconds = time_programs(pair, args.programs)
    pair.close()
    record = {"start": start, "seconds": seconds}
    publish("sandbox", "One program in the sandbox", COLUMNS, [row(start, seconds)], record)


if __name__ == "__main__":
    main()
