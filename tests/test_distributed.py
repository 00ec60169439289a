"""Sharding of problems, the order of ranks, requirements of options, and the watchdog's judgment."""

import os
import sys
import sysconfig
import threading
from types import SimpleNamespace

import pytest
import torch

from d3s import distributed, launch
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.distributed import Watchdog, first_of_node_first, heartbeat, phase, shard
from d3s.launch import check_requirements, compiler_problem, start_accelerator, wait_for_ranks
from tests.helpers.command_line import free_port
from tests.helpers.processes import in_child


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (2, 2), (4, 2), (6, 3), (4, 1)])
def test_each_problem_has_one_rank_and_one_engine(ranks, size):
    for count in range(9):
        accelerators = [SimpleNamespace(process_index=rank, num_processes=ranks) for rank in range(ranks)]
        sampled, own = zip(*(shard(count, accelerator, size) for accelerator in accelerators))
        assert sorted(row for rows in own for row in rows) == list(range(count))
        for rank in range(ranks):
            assert sampled[rank] == sampled[rank - rank % size] and set(own[rank]) <= set(sampled[rank])
        assert size > 1 or sampled == own


def test_first_rank_of_each_node_runs_first(monkeypatch):
    """The others wait for that of their own node before the block; after it all wait for those of all nodes."""
    calls = []
    store = SimpleNamespace(set=lambda key, _: calls.append(("set", key)), wait=lambda keys, _: calls.append(keys))
    store.clone = lambda: store
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    for node, first in (("0", True), ("0", False), ("1", True)):
        monkeypatch.setenv("GROUP_RANK", node)
        with first_of_node_first(SimpleNamespace(num_processes=4, is_local_main_process=first)) as first_of_node:
            calls.append(first_of_node)
    keys = [f"first of node {node} is done" for node in (0, 1)]
    assert calls == [True, ("set", keys[0]), keys, [keys[0]], False, keys, True, ("set", keys[1]), keys]


def test_precision_is_that_of_model_dtype(monkeypatch):
    """Whatever accelerate's own variable says, and whatever earlier runs of the process had."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    for dtype, precision in (("bfloat16", "bf16"), ("float32", "no")):  # the last one is that of other tests
        assert start_accelerator(load_config([], [f"model.dtype={dtype}"])).mixed_precision == precision


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


# --- watchdog ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """The watchdog's clock: clock.now is the time in seconds."""
    time = SimpleNamespace(now=1000.0, monotonic=lambda: time.now)
    monkeypatch.setattr(distributed, "time", time)
    return time


def watchdogs(ranks, limit_s=30):
    store = torch.distributed.HashStore()
    return store, [Watchdog(limit_s, rank, ranks, store) for rank in range(ranks)]


def test_ranks_with_fewer_heartbeats_are_missing():
    store, dogs = watchdogs(3)
    for dog in dogs:
        dog.heartbeat("update")
    store.set("location1", "policy.py:12")
    missing, message = dogs[1].missing_ranks()
    assert missing == [] and message.startswith("phase update: no rank made progress within train.collective_timeout_s")
    assert "rank 0 in update at an unknown line, rank 1 in update at policy.py:12, rank 2" in message
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


@pytest.mark.parametrize("name", ["generate", "evaluate", "start", "update", "exchange"])
def test_only_phases_with_communication_expire(clock, name):
    _, (dog,) = watchdogs(1)
    dog.heartbeat(name)
    clock.now += 30
    assert not dog.expired()
    clock.now += 0.1
    assert dog.expired() == (name in ("update", "exchange"))
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
    assert dog.phase == "start" and store.get("heartbeat0") == b"6 start"


def test_thread_ends_the_process_with_one_sentence(monkeypatch, capsys):
    """The second rank never comes; the end of the thread stands for that of the process."""
    codes, ended = [], threading.Event()

    def end(code):
        codes.append(code)
        ended.set()
        threading.Event().wait()

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    dog = Watchdog(0.3, 0, 2, torch.distributed.HashStore())
    dog.start()
    dog.heartbeat("update")
    assert ended.wait(20) and codes == [1]
    assert capsys.readouterr().err.startswith("error: phase update: rank 1 did not respond within")


# --- packages and programs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "value"), [("lora.rank", "8"), ("model.compile", "true")])
def test_deepspeed_is_refused(monkeypatch, option, value):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(UserError, match=rf"^{option}: got {value} under DeepSpeed, expected one process or DDP"):
        start_accelerator(load_config([], [f"{option}={value}"]))


def test_options_without_their_needs_are_refused(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^lora\.rank: the package peft is not installed; run pip install peft"):
        start_accelerator(load_config([], ["lora.rank=8"]))
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match=r"^model\.compile: the compiler no-such-compiler is not installed; .* by CXX"):
        check_requirements(load_config([], ["model.compile=true"]))
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        monkeypatch.setenv(name, "1")
        with pytest.raises(UserError, match=rf"^model\.compile: got true with {name}=1, .*; unset it"):
            check_requirements(load_config([], ["model.compile=true"]))
        monkeypatch.delenv(name)
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


@pytest.mark.parametrize(("rank", "missing"), [(0, "rank 1"), (1, "rank 0")])
def test_rank_that_never_starts_is_one_sentence(monkeypatch, rank, missing):
    """Of a launch by hand, whose store rank 0 holds; two that start find each other."""
    port, alone = str(free_port()), True
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)  # an engine of another test may have

    def start(ready):
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (pytest's is another file)
        ready()
        wait_for_ranks(1 if alone else 30)
        ready()

    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", str(rank))
    child, pipe = in_child(start)
    output = b""
    while data := os.read(pipe, 1000):
        output += data
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    expected = (
        f"error: phase start: {missing} did not respond within train.collective_timeout_s = 1 s (never started)\n"
    )
    assert output == b"ready\n" + expected.encode()
    children, alone = [], False
    for other in ("0", "1"):
        monkeypatch.setenv("RANK", other)
        children.append(in_child(start))
    for child, _ in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99  # of a child that has ended by itself
