"""vLLM's environment and messages, against hand-made values and exceptions."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.evaluate.evaluator import open_engine
from d3s.rollout import build_engine, vllm_setup

SERVERS = ["rollout.servers=[http://a:1]", "selector.entropy_source=actor"]
KV_CACHE = "gpu_memory_utilization: the KV cache cannot hold one sequence of 192 tokens"
SHARED_MEMORY = "tensor_parallel_size: another run on this machine uses the shared memory"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("No available memory for the cache blocks."), KV_CACHE),
        (ValueError("0.5 GiB KV cache is needed, which is larger"), KV_CACHE),
        (ValueError("Free memory on device cuda:0 (3/80 GiB)"), "gpu_memory_utilization: too little free GPU memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "gpu_memory_utilization: too little free GPU memory (OutOfMem"),
        (RuntimeError("create shm in SHMManager failed. errno: 17"), SHARED_MEMORY),
    ],
)
def test_memory_errors_name_the_option(engines, tied_model, monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("vllm.LLM", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError) as refusal:
        build_engine(str(tied_model), load_config([], []).rollout, dtype="bfloat16", max_model_len=192, seed=0)
    assert str(refusal.value).startswith(f"rollout.{message}")


def test_unusable_gpu_is_no_fault_of_the_model(tied_model, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(UserError, match=r"^torch .* finds no usable GPU"):
        vllm_setup.load_vllm(str(tied_model), {})


@pytest.mark.parametrize("cuda", [True, False])
def test_environment_keeps_values_that_are_set(monkeypatch, cuda):
    """Dynamo is disabled without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert ("TORCHDYNAMO_DISABLE" in vllm_setup.vllm_environment()) != cuda
    given = {"VLLM_LOGGING_LEVEL": "DEBUG", "RANK": "3", "MASTER_PORT": "29500"}
    monkeypatch.setattr(os, "environ", dict(given))
    vllm_setup.prepare_vllm_environment()
    assert os.environ.items() >= (vllm_setup.vllm_environment() | {"WORLD_SIZE": "1"} | given).items()


NEEDS_8, NEEDS_9 = (
    "expected 8.0 or higher; unset it",
    "expected 9.0 or higher next to an actor; unset it, or set it for ",
)


@pytest.mark.parametrize(
    ("capability", "trains", "problem"),
    [
        (None, False, "got a CPU, expected a GPU"), ((7, 5), False, f"got a GPU of compute capability 7.5, {NEEDS_8}"),
        ((8, 9), False, None), ((8, 0), True, f"got a GPU of compute capability 8.0, {NEEDS_9}"),
        ((9, 0), True, None), ((12, 0), True, None),
    ],
)  # fmt: skip
def test_batch_invariance_needs_a_new_gpu(monkeypatch, capability, trains, problem):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)

    def check(*options):
        vllm_setup.check_batch_invariance(load_config([], options).rollout, trains)

    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    check()
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    check(*SERVERS)
    for options in ([], SERVERS):
        with pytest.raises(UserError, match=r"requires rollout\.seeds: request"):
            check("rollout.seeds=engine", *options)
    with pytest.raises(UserError, match=f"^VLLM_BATCH_INVARIANT: {problem}") if problem else nullcontext():
        check()


def test_batch_invariance_is_refused_before_the_engine(refusal, monkeypatch):
    """By train.py and eval.py on the CPU, where vLLM would fail at the first prompt."""
    message = "VLLM_BATCH_INVARIANT: got a CPU, expected a GPU"
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setattr("d3s.trainer.read_problems", None)
    assert refusal(["train.py", "--config", "configs/tiny.yaml"]).startswith(message)
    monkeypatch.setattr("vllm.LLM", None)
    with pytest.raises(UserError, match=message):
        open_engine("some/model", "vllm", "float32", 64, seed=0)


def test_own_shared_memory_is_removed(monkeypatch):
    """Rank 90003 of pairs has the second place of 90002-90003; the file of its partner stays."""
    own, partner = (Path(f"/dev/shm/-tp:0-[90002-90003]-cpushm_{place}") for place in (1, 0))
    monkeypatch.setenv("RANK", "90003")
    try:
        own.touch()
        partner.touch()
        vllm_setup.remove_stale_shared_memory(2)
        assert not own.exists() and partner.exists()
        vllm_setup.remove_stale_shared_memory(2)
    finally:
        partner.unlink()
