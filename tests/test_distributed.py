"""Sharding of problems, gathering on one rank, and the watchdog's judgment of stores made by hand."""

import os
import sysconfig
import threading
import time
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
    """A second rank whose choice differs in the last place."""
    chosen, digests = torch.rand(3, 7) > 0.5, []
    monkeypatch.setattr(distributed, "all_gather_objects", lambda items, _: digests.extend(items) or digests)
    for _ in range(2):
        require_equal("selector.rollouts", chosen, SimpleNamespace(num_processes=2))
    with pytest.raises(UserError, match="ranks chose differently"):
        require_equal(
            "selector.rollouts", chosen ^ (torch.arange(21).view(3, 7) == 20), SimpleNamespace(num_processes=2)
        )


def test_first_rank_of_each_node_runs_first(monkeypatch, tmp_path):
    """Two nodes with a slow and a fast first rank; ranks of a node wait for their own."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 4)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    order, threads = [], []

    def enter(block, node: str, seconds: float) -> None:
        with block as first:
            time.sleep(seconds)
            order.append((node, first))

    for node, first, seconds in (("0", False, 0), ("1", False, 0), ("0", True, 1.0), ("1", True, 0.1)):
        monkeypatch.setenv("GROUP_RANK", node)
        block = first_of_node_first(SimpleNamespace(num_processes=4, is_local_main_process=first))
        threads.append(threading.Thread(target=enter, args=(block, node, seconds)))
        threads[-1].start()
        time.sleep(0.2)  # until it has read the node
    for thread in threads:
        thread.join()
    assert order == [("1", True), ("1", False), ("0", True), ("0", False)]


def test_tensor_parallel_size_must_divide_the_ranks():
    with pytest.raises(UserError, match=r"tensor_parallel_size: got 2, expected a divisor of the .* processes, 1;"):
        start_accelerator(load_config([], ["rollout.tensor_parallel_size=2"]))


@pytest.mark.parametrize(("option", "workspace"), [("true", ":4096:8"), ("false", None)])
def test_deterministic_environment_is_set_at_start(monkeypatch, option, workspace):
    """Before the first process group; a value of the user stays."""
    monkeypatch.setattr(os, "environ", {**os.environ, "NCCL_ALGO": "Tree"})
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    start_accelerator(load_config([], [f"train.deterministic={option}"]))
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == workspace and os.environ["NCCL_ALGO"] == "Tree"


def test_one_rank_gathers_its_own():
    items, array = [{"a": 1}, [2]], np.arange(3, dtype=np.int32)
    assert all_gather_objects(items, Accelerator()) == items and all_gather_arrays(array, Accelerator())[0] is array


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


def test_ranks_with_fewer_heartbeats_are_missing():
    store, dogs = watchdogs(3)
    for dog in dogs:
        dog.heartbeat("update")
    store.set("location1", "policy.py:12")
    dogs[0].heartbeat("exchange")
    missing, message = dogs[0].missing_ranks()
    assert missing == [1, 2] and message.startswith("phase exchange: ranks 1, 2 did not respond within")
    assert message.endswith("(last seen in update at policy.py:12, update at an unknown line)")
    dogs[2].heartbeat("exchange")
    assert dogs[0].missing_ranks() == dogs[2].missing_ranks() == (
        [1],
        "phase exchange: rank 1 did not respond within train.collective_timeout_s = 30 s "
        "(last seen in update at policy.py:12)",
    )  # fmt: skip


def test_equal_counts_blame_no_rank():
    store, dogs = watchdogs(2)
    for rank, dog in enumerate(dogs):
        store.set(f"location{rank}", f"{rank}.py:1")
        dog.heartbeat("sync")
    missing, message = dogs[1].missing_ranks()
    assert missing == [] and message.startswith("phase sync: no rank made progress within train.collective_timeout_s")
    assert message.endswith("(rank 0 in sync at 0.py:1, rank 1 in sync at 1.py:1)")


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


def test_thread_ends_the_process_with_one_sentence(monkeypatch, capsys):
    """The second rank never comes; the end of the thread stands for that of the process."""
    codes, ended = [], threading.Event()

    def end(code):
        codes.append(code)
        ended.set()
        raise SystemExit

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    dog = Watchdog(0.3, 0, 2, Store())
    dog.start()
    dog.heartbeat("update")
    assert ended.wait(20) and codes == [1]
    message = (
        "error: phase update: rank 1 did not respond within train.collective_timeout_s = 0.3 s (last seen in start at"
    )
    assert capsys.readouterr().err.startswith(message)


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
