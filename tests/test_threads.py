"""Threads of a process, against control groups written in the form of both versions."""

import os

import pytest
import torch

from d3s import threads
from d3s.threads import choose_threads, planned_threads, usable_cores

V1, V2 = "4:cpu,cpuacct:{}\n3:memory:/\n", "0::{}\n"


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


def v1(folder, quota, period="100000"):
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (V2.format("/"), {}, 16),
        (V2.format("/"), {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        (V2.format("/"), {"sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),  # inside a container
        (V2.format("/a/b"), {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "250000 100000"}, 2),
        (V2.format("/a/b"), {"sys/fs/cgroup/a/b/cpu.max": "400000 50000", "sys/fs/cgroup/a/cpu.max": "9000000 100"}, 8),
        (V2.format("/other"), {"sys/fs/cgroup/a/cpu.max": "100000 100000"}, 16),
        (V2.format("/"), {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (V1.format("/"), v1("sys/fs/cgroup/cpu,cpuacct", "400000"), 4),
        (V1.format("/"), v1("sys/fs/cgroup/cpu", "-1"), 16),
        (V1.format("/docker/x"), v1("sys/fs/cgroup/cpu", "600000"), 6),  # the host's name inside a container
        (V1.format("/docker/x"), v1("sys/fs/cgroup/cpu,cpuacct/docker/x", "600000", "200000"), 3),
        ("3:memory:/\n", v1("sys/fs/cgroup/memory", "100000"), 16),
    ],
)
def test_cores_are_those_of_affinity_and_quotas(tmp_path, cores, groups, files, expected):
    write(tmp_path, {"proc/self/cgroup": groups} | files)
    assert usable_cores(tmp_path) == expected


def test_cores_need_no_control_groups(tmp_path, cores):
    assert usable_cores(tmp_path) == 16


@pytest.mark.parametrize(
    ("parameters", "ranks", "expected"),
    [(250_000, "1", 1), (35_000_000, "1", 3), (10**9, "1", 8), (None, "1", 8), (10**9, "4", 2), (10**9, "16", 1)],
)
def test_threads_follow_the_model_unless_the_user_says(monkeypatch, parameters, ranks, expected):
    before, count = 7, [7]  # a stand-in, as vLLM makes torch.set_num_threads do nothing in its process
    monkeypatch.setattr(torch, "set_num_threads", lambda number: count.append(number))
    monkeypatch.setattr(torch, "get_num_threads", lambda: count[-1])
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    monkeypatch.setattr(threads, "chosen", None)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    for said in ("5", ""):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert choose_threads(parameters) == (before if said else expected)
        assert os.environ["OMP_NUM_THREADS"] == (said or str(expected))
    assert count[-1] == expected and choose_threads(0) == 1  # of another model in this process


@pytest.mark.parametrize(("said", "planned"), [("3", 3), (" 2,1", 2), ("all", 8)])
def test_plan_has_the_threads_of_the_environment(monkeypatch, said, planned):
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert planned_threads(250_000) == planned
