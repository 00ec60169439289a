"""Sharding of problems, gathering on one rank, and the watchdog's judgment of stores made by hand."""

import os
import subprocess
import sys
import sysconfig
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from d3s import distributed
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.distributed import (
    Watchdog,
    all_gather_arrays,
    all_gather_objects,
    check_requirements,
    compiler_problem,
    first_of_node_first,
    heartbeat,
    phase,
    require_equal,
    shard,
    start_accelerator,
)
from tests.helpers.command_line import ROOT


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (2, 2), (4, 2), (6, 3), (4, 1)])
def test_each_problem_has_one_rank_and_one_engine(ranks, size):
    for count in range(9):
        accelerators = [SimpleNamespace(process_index=rank, num_processes=ranks) for rank in range(ranks)]
        sampled, own = zip(*(shard(count, accelerator, size) for accelerator in accelerators))
        assert sorted(row for rows in own for row in rows) == list(range(count))
        for rank in range(ranks):
            assert sampled[rank] == sampled[rank - rank % size] and set(own[rank]) <= set(sampled[rank])
        assert size > 1 or sampled == own


def test_different_choices_of_the_ranks_end_all(monkeypatch):
    chosen = torch.rand(3, 7) > 0.5
    other = chosen ^ (torch.arange(21).view(3, 7) == 20)
    for second, agrees in ((chosen.clone(), True), (other, False)):
        digests = []
        monkeypatch.setattr(distributed, "all_gather_objects", lambda items, _: digests.extend(items) or digests)  # noqa: B023
        accelerator = SimpleNamespace(num_processes=2)
        require_equal("selector.rollouts", chosen, accelerator)  # the first rank alone
        with nullcontext() if agrees else pytest.raises(UserError, match="ranks chose differently"):
            require_equal("selector.rollouts", second, accelerator)


def test_first_rank_of_each_node_runs_first(monkeypatch, tmp_path):
    """Two nodes with a slow and a fast first rank; ranks of a node wait for their own."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 4)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    order = []

    def run(node: str, first: bool, seconds: float) -> None:
        monkeypatch.setenv("GROUP_RANK", node)  # read before another thread sets it
        block = first_of_node_first(SimpleNamespace(num_processes=4, is_local_main_process=first))
        thread = threading.Thread(target=enter, args=(block, node, first, seconds))
        thread.start()
        threads.append(thread)
        time.sleep(0.2)

    def enter(block, node: str, first: bool, seconds: float) -> None:
        with block as yielded:
            time.sleep(seconds)
            order.append((node, yielded))

    threads = []
    for node, first, seconds in (("0", False, 0), ("1", False, 0), ("0", True, 1.0), ("1", True, 0.1)):
        run(node, first, seconds)
    for thread in threads:
        thread.join()
    assert order == [("1", True), ("1", False), ("0", True), ("0", False)]


def test_tensor_parallel_size_must_divide_the_ranks():
    with pytest.raises(UserError, match=r"tensor_parallel_size: got 2, expected a divisor of the .* processes, 1;"):
        start_accelerator(load_config([], ["rollout.tensor_parallel_size=2"]))


def test_unusable_gpu_ends_the_start(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UserError, match="finds no usable GPU"):
        start_accelerator(load_config([], []))


@pytest.mark.parametrize(("option", "workspace"), [("true", ":4096:8"), ("false", None)])
def test_deterministic_environment_is_set_at_start(monkeypatch, option, workspace):
    """Before the first process group; a value of the user stays."""
    monkeypatch.setattr(os, "environ", {**os.environ, "NCCL_ALGO": "Tree"})
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    start_accelerator(load_config([], [f"train.deterministic={option}"]))
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == workspace and os.environ["NCCL_ALGO"] == "Tree"


def test_one_rank_gathers_its_own():
    items, array = [{"a": 1}, [2]], np.arange(3, dtype=np.int32)
    gathered = all_gather_objects(items, Accelerator())
    assert gathered == items and gathered is not items and gathered[0] is items[0]
    assert all_gather_arrays(array, Accelerator())[0] is array


# --- watchdog ---------------------------------------------------------------------------------------------------------


class Store(dict):
    """What torch.distributed.Store does, in this process."""

    def set(self, key, value):
        self[key] = value.encode()

    def check(self, keys):
        return all(key in self for key in keys)

    get = dict.__getitem__


@pytest.fixture
def clock(monkeypatch):
    """The watchdog's clock: clock.now is the time in seconds."""
    time = SimpleNamespace(now=1000.0, monotonic=lambda: time.now)
    monkeypatch.setattr(distributed, "time", time)
    return time


def watchdogs(ranks, limit_s=30):
    store = Store()
    return store, [Watchdog(limit_s, rank, ranks, store) for rank in range(ranks)]


def test_rank_with_fewer_heartbeats_is_missing():
    store, dogs = watchdogs(3)
    for dog in dogs:
        dog.heartbeat("update")
    for rank in (0, 2):
        dogs[rank].heartbeat("exchange")
    store.set("location1", "policy.py:12")
    assert dogs[0].missing_ranks() == dogs[2].missing_ranks() == (
        [1],
        "phase exchange: rank 1 did not respond within train.collective_timeout_s = 30 s "
        "(last seen in update at policy.py:12)",
    )  # fmt: skip


def test_several_missing_ranks_are_named():
    _, dogs = watchdogs(3)
    dogs[1].heartbeat("generate")
    dogs[0].heartbeat("generate")
    dogs[0].heartbeat("exchange")
    missing, message = dogs[0].missing_ranks()
    assert missing == [1, 2]
    assert message.startswith("phase exchange: ranks 1, 2 did not respond within")
    assert message.endswith("(last seen in generate at an unknown line, start at an unknown line)")


def test_equal_counts_blame_no_rank():
    store, dogs = watchdogs(2)
    store.set("location0", "a.py:1")
    store.set("location1", "b.py:2")
    for dog in dogs:
        dog.heartbeat("sync")
    assert dogs[1].missing_ranks() == (
        [],
        "phase sync: no rank made progress within train.collective_timeout_s = 30 s "
        "(rank 0 in sync at a.py:1, rank 1 in sync at b.py:2)",
    )


@pytest.mark.parametrize(("name", "limited"), [("generate", False), ("evaluate", False), ("start", False),
                                               ("update", True), ("exchange", True)])  # fmt: skip
def test_only_phases_with_communication_expire(clock, name, limited):
    _, (dog,) = watchdogs(1)
    dog.heartbeat(name)
    clock.now += 30
    assert not dog.expired()
    clock.now += 0.1
    assert dog.expired() == limited
    dog.heartbeat(name)
    assert not dog.expired()


def test_phases_nest(monkeypatch):
    store, (dog,) = watchdogs(1)
    monkeypatch.setattr(distributed, "watchdog", dog)
    with phase("update"):
        with phase("exchange"):
            assert dog.phase == "exchange"
        assert dog.phase == "update"
        heartbeat()
        assert dog.phase == "update"
    assert dog.phase == "start" and store["heartbeat0"] == b"6 start"


def test_phases_without_a_watchdog_do_nothing():
    with phase("update"):
        heartbeat()


def test_thread_ends_the_process_with_one_sentence():
    """A process of its own waits for a rank that never comes."""
    code = """if True:
        import time
        from d3s.distributed import Watchdog
        from tests.test_distributed import Store
        dog = Watchdog(0.3, 0, 2, Store())
        dog.start()
        dog.heartbeat("update")
        time.sleep(60)
    """
    environment = {name: value for name, value in os.environ.items() if name != "TORCHELASTIC_RUN_ID"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, env=environment, cwd=ROOT
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(
        "error: phase update: rank 1 did not respond within train.collective_timeout_s = 0.3 s (last seen in start at "
    )


@pytest.mark.parametrize(("option", "value"), [("lora.rank", "8"), ("model.compile", "true")])
def test_deepspeed_is_refused(monkeypatch, option, value):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(
        UserError, match=rf"^{option}: got {value} under DeepSpeed, expected one process or DDP; launch"
    ):
        start_accelerator(load_config([], [f"{option}={value}"]))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (
            "CXX",
            "no-such-compiler",
            "the compiler no-such-compiler is not installed; install it, or name another by CXX",
        ),
        ("TORCHDYNAMO_DISABLE", "1", "got true with TORCHDYNAMO_DISABLE=1, which turns torch.compile off; unset it"),
        ("TORCH_COMPILE_DISABLE", "1", "got true with TORCH_COMPILE_DISABLE=1"),
    ],
)
def test_compilation_without_its_needs_is_refused(monkeypatch, name, value, problem):
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=rf"^model\.compile: {problem}.*, or set model\.compile: false$"):
        check_requirements(load_config([], ["model.compile=true"]))
    check_requirements(load_config([]))


@pytest.mark.parametrize("cuda", [True, False])
def test_headers_and_compiler_of_each_device(monkeypatch, tmp_path, cuda):
    """g++ on a CPU, gcc or clang on a GPU, and Python.h, which a Python without its development files lacks."""
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ("gcc or clang" if cuda else "g++") in compiler_problem()
    compiler = tmp_path / ("clang" if cuda else "g++")
    compiler.touch(0o755)
    assert compiler_problem() is None
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    assert compiler_problem().startswith(f"{tmp_path}/Python.h is missing; install the headers of Python")
