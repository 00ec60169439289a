"""vLLM's environment, prefill settings and messages, against hand-made values and exceptions."""

import os
from pathlib import Path

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout import build_engine
from d3s.rollout.vllm_setup import (
    prepare_vllm_environment,
    remove_stale_shared_memory,
    unchunked_prefill,
    vllm_environment,
    vllm_problem,
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ValueError("No available memory for the cache blocks."),
            "the KV cache cannot hold one sequence of 192 tokens",
        ),
        (ValueError("0.5 GiB KV cache is needed, which is larger"), "the KV cache cannot hold one sequence of 192"),
        (ValueError("Free memory on device cuda:0 (3/80 GiB)"), "too little free GPU memory (ValueError: Free memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "too little free GPU memory (OutOfMemoryError: CUDA out of"),
    ],
)
def test_gpu_memory_errors_name_the_option(engines, tied_model, monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("vllm.LLM", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError) as refusal:
        build_engine(str(tied_model), load_config([], []).rollout, dtype="bfloat16", max_model_len=192, seed=0)
    assert str(refusal.value).startswith(f"rollout.gpu_memory_utilization: {message}")


def test_shared_memory_error_names_the_option(engines, tied_model, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("create shm in SHMManager failed. errno: 17")

    monkeypatch.setattr("vllm.LLM", refuse)
    with pytest.raises(UserError, match=r"rollout\.tensor_parallel_size: another run on this machine"):
        build_engine(str(tied_model), load_config([], []).rollout, dtype="float32", max_model_len=192, seed=0)


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


def test_environment_gets_a_free_port(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    prepare_vllm_environment()
    assert 1024 <= int(os.environ["MASTER_PORT"]) < 2**16


@pytest.mark.parametrize(("cuda", "disabled"), [(True, False), (False, True)])
def test_dynamo_is_disabled_without_a_gpu(monkeypatch, cuda, disabled):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert ("TORCHDYNAMO_DISABLE" in vllm_environment()) == disabled


@pytest.mark.parametrize(
    ("max_num_seqs", "max_model_len", "tokens"), [(256, 192, 4096), (5000, 192, 5000), (256, 9000, 9000)]
)
def test_prefill_budget_holds_any_prompt_and_batch(max_num_seqs, max_model_len, tokens):
    settings = unchunked_prefill(max_num_seqs, max_model_len)
    assert settings == {"enable_chunked_prefill": False, "max_num_batched_tokens": tokens}


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


def test_problem_is_one_line_of_limited_length():
    sentence = vllm_problem("some/model", ValueError("first\n  second " + 1000 * "x"))
    assert sentence.startswith("some/model: vLLM cannot load this model (ValueError: first second x")
    assert len(sentence) < 450 and "\n" not in sentence
