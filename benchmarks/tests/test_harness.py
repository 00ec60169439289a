"""Alternation, meters and tables of the benchmarks, with small processes of known behavior."""

import time

import pytest

from benchmarks import harness
from benchmarks.harness import Meter, Side, alternate

SIDE = """
import sys
from benchmarks.harness import serve

rounds = iter(range(100))


def work():
    with open(sys.argv[1], "a") as log:
        log.write(sys.argv[2])
    print("noise on standard output")
    if sys.argv[2] == "X":
        raise ValueError("broken side")
    return {"round": next(rounds)}


serve(work)
"""


@pytest.fixture
def start_side(tmp_path, monkeypatch):
    """start_side(name) starts a process that appends its name to tmp_path/order whenever it is measured."""
    (tmp_path / "side_for_tests.py").write_text(SIDE)
    environment = {"PYTHONPATH": f"{tmp_path}:{harness.ROOT}"}
    module = ["side_for_tests", str(tmp_path / "order")]
    return lambda name: Side([*module, name], tmp_path / f"{name}.log", environment=environment)


def test_sides_alternate_in_rotating_order(start_side, tmp_path):
    reports = alternate({name: start_side(name) for name in "ABC"}, rounds=3, warmup=1)
    assert (tmp_path / "order").read_text() == "ABC" + "BCA" + "CAB" + "ABC"
    for measurements in reports.values():
        assert [m["round"] for m in measurements] == [1, 2, 3]  # round 0 is the warm-up
        assert all(m["wall"] > 0 and m["cpu"] > 0 and m["resident"] > 1 for m in measurements)


def test_failed_side_raises_with_its_log(start_side):
    with pytest.raises(RuntimeError, match=r"X: the process ended during a run:[\s\S]*ValueError: broken side"):
        alternate({name: start_side(name) for name in "AX"}, rounds=1)


def test_meter_sees_seconds_and_memory():
    meter = Meter()
    meter.start()
    block = bytearray(64 * 2**20)
    time.sleep(0.1)
    usage = meter.stop()
    assert usage["wall"] >= 0.1 and usage["cpu"] < usage["wall"] + 0.1
    assert 60 < usage["peak"] < 160 and len(block) == 64 * 2**20
    meter.start()  # a new measurement starts from a new peak
    assert meter.stop()["peak"] < 30
