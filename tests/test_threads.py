"""Threads and free memory of a process, against control groups written in the form of both versions."""

import os

import pytest
import torch

from d3s import threads
from d3s.cgroups import free_memory
from d3s.threads import choose_threads, planned_threads, usable_cores

GB = 2**30
V1, V2 = "4:cpu,cpuacct:{}\n3:memory:/\n", "0::{}\n"


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


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
def test_cores_are_those_of_affinity_and_quotas(tmp_path, monkeypatch, groups, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert usable_cores(tmp_path) == 16  # without control groups
    write(tmp_path, {"proc/self/cgroup": groups} | files)
    assert usable_cores(tmp_path) == expected


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("0::/\n", {}, 8 * GB),
        ("0::/a\n", {"a/memory.max": "max", "a/memory.current": "5"}, 8 * GB),
        ("0::/a\n", {"a/memory.max": f"{4 * GB}", "a/memory.current": f"{3 * GB}"}, GB),
        ("0::/a/b\n", {"a/memory.max": f"{4 * GB}", "a/memory.current": f"{3 * GB}", "a/memory.stat":
                       f"anon 7\ninactive_file {GB}\n"}, 2 * GB),
        ("2:memory:/x\n", {"memory/memory.limit_in_bytes": f"{GB}", "memory/memory.usage_in_bytes": "0"}, GB),
        ("2:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "0"},
         8 * GB),
    ],
)  # fmt: skip
def test_free_memory_is_of_system_and_control_groups(tmp_path, monkeypatch, groups, files, free):
    write(tmp_path, {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {8 * 2**20} kB\n", "proc/self/cgroup": groups})
    write(tmp_path / "sys/fs/cgroup", files)
    assert free_memory(tmp_path) == free
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert free_memory(tmp_path) == free // 2 and free_memory(tmp_path / "nowhere") is None


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
