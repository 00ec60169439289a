"""The launch of a run: precision, what options require of packages and programs, and ranks that never start."""

import os
import sys
import sysconfig

import pytest
import torch

from d3s import launch
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.launch import check_requirements, compiler_problem, start_accelerator, wait_for_ranks
from tests.helpers.command_line import free_port
from tests.helpers.processes import in_child


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
