"""Sharding of problems, the order of ranks, and the watchdog's judgment."""

import os
import threading
from types import SimpleNamespace

import pytest
import torch

from d3s import distributed
from d3s.distributed import Watchdog, first_of_node_first, heartbeat, phase, shard


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
