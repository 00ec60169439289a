"""Free memory within control groups, against files written by hand; test_threads.py has their CPUs."""

import pytest

from d3s.cgroups import free_memory

GB = 2**30


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
def test_free_memory_is_that_of_system_and_control_groups(tmp_path, monkeypatch, groups, files, free):
    texts = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {8 * 2**20} kB\n", "proc/self/cgroup": groups}
    for name, text in (texts | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path) == free
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert free_memory(tmp_path) == free // 2 and free_memory(tmp_path / "nowhere") is None
