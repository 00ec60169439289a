"""vLLM's environment, prefill settings and messages, against hand-made values and exceptions."""

import os
from pathlib import Path

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.evaluate.evaluator import open_engine
from d3s.rollout import build_engine
from d3s.rollout.vllm_setup import (
    check_batch_invariance,
    load_vllm,
    prepare_vllm_environment,
    remove_stale_shared_memory,
    unchunked_prefill,
    vllm_environment,
)

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
        load_vllm(str(tied_model), {})


def test_environment_keeps_values_that_are_set(monkeypatch):
    monkeypatch.setattr(os, "environ", {"VLLM_LOGGING_LEVEL": "DEBUG", "RANK": "3", "MASTER_PORT": "29500"})
    prepare_vllm_environment()
    assert {name: os.environ[name] for name in ("VLLM_LOGGING_LEVEL", "RANK", "MASTER_PORT", "WORLD_SIZE")} == {
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "RANK": "3",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "1",
    }
    assert os.environ.keys() >= vllm_environment().keys()


@pytest.mark.parametrize(
    ("capability", "trains", "words"),
    [
        (None, False, "got a CPU, expected a GPU"),
        ((7, 5), False, "got a GPU of compute capability 7.5, expected 8.0 or higher; unset it"),
        ((8, 9), False, None),
        ((8, 0), True, "capability 8.0, expected 9.0 or higher next to an actor; unset it, or set it for rollout.s"),
        ((9, 0), True, None),
        ((12, 0), True, None),
    ],
)
def test_batch_invariance_needs_a_new_gpu(monkeypatch, capability, trains, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    own, servers = (load_config([], options).rollout for options in ([], SERVERS))
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    check_batch_invariance(own, trains)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    check_batch_invariance(servers, trains)
    for options in ([], SERVERS):
        with pytest.raises(UserError, match=r"requires rollout\.seeds: request"):
            check_batch_invariance(load_config([], ["rollout.seeds=engine", *options]).rollout, trains)
    if words is None:
        check_batch_invariance(own, trains)
    else:
        with pytest.raises(UserError, match=r"^VLLM_BATCH_INVARIANT: ") as refusal:
            check_batch_invariance(own, trains)
        assert words in str(refusal.value)


def test_batch_invariance_is_refused_before_the_engine(refusal, monkeypatch):
    """By train.py and eval.py on the CPU, where vLLM would fail at the first prompt."""
    message = "VLLM_BATCH_INVARIANT: got a CPU, expected a GPU"
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setattr("d3s.trainer.read_problems", None)
    assert refusal(["train.py", "--config", "configs/tiny.yaml"]).startswith(message)
    monkeypatch.setattr("vllm.LLM", None)
    with pytest.raises(UserError, match=message):
        open_engine("some/model", "vllm", "float32", 64, seed=0)


@pytest.mark.parametrize("cuda", [True, False])
def test_dynamo_is_disabled_without_a_gpu(monkeypatch, cuda):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert ("TORCHDYNAMO_DISABLE" in vllm_environment()) != cuda


def test_prefill_budget_holds_any_prompt_and_batch():
    for sequences, length, tokens in ((256, 192, 4096), (5000, 192, 5000), (256, 9000, 9000)):
        settings = {"enable_chunked_prefill": False, "max_num_batched_tokens": tokens}
        assert unchunked_prefill(sequences, length) == settings


def test_own_shared_memory_is_removed(monkeypatch):
    """Rank 90003 of pairs has the second place of 90002-90003; the file of its partner stays."""
    own, partner = (Path(f"/dev/shm/-tp:0-[90002-90003]-cpushm_{place}") for place in (1, 0))
    monkeypatch.setenv("RANK", "90003")
    try:
        own.touch()
        partner.touch()
        remove_stale_shared_memory(2)
        assert not own.exists() and partner.exists()
        remove_stale_shared_memory(2)
    finally:
        partner.unlink()
