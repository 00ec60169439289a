"""Weights by NCCL, which helpers/transfer_servers.py replaces: payloads and values, refusals, servers that fail."""

import threading
import time
from unittest.mock import MagicMock

import pytest
import torch

from d3s.common import UserError
from d3s.rollout import server_client, server_engine, server_transfer
from d3s.rollout.server_transfer import own_address
from tests.helpers.rollouts import actor_of
from tests.helpers.transfer_servers import engine_on, transfer_servers, with_backend


@pytest.fixture
def servers():
    """Workers by the address of their server. A test's `monkeypatch` ends before the pretended GPU does."""
    with pytest.MonkeyPatch.context() as patch, transfer_servers(2, 1) as servers:
        patch.setattr(server_transfer, "TIMEOUT_S", 20)
        yield servers


@pytest.fixture(scope="module")
def weights(tied_model):
    return list(actor_of(tied_model).weights())


def test_weights_reach_all_workers(weights, servers, tied_model, tmp_path, monkeypatch):
    monkeypatch.setattr(server_engine, "CHUNK_BYTES", 50_000)
    engine = engine_on(servers, tied_model, tmp_path)
    engine.dtype = torch.bfloat16
    engine.load_weights(iter(weights))
    first, second = servers.values()
    chunks = first.calls.count("update")
    assert chunks > 3 and first.calls == second.calls == ["init", "start", *["update"] * chunks, "finish", "reset"]
    assert first.network.device.waits["synchronize", "rollout/server_transfer.WeightTransfer.send"] == chunks
    joined, rank = first.network.joined
    assert (rank, first.init.rank_offset, second.init.rank_offset) == (0, 1, 3)
    for info in (first.init, second.init, joined):
        assert (info.master_address, info.master_port, info.world_size) == ("127.0.0.1", joined.master_port, 4)
        assert info.packed and info.packed_buffer_size_bytes == joined.packed_buffer_size_bytes
    for worker in servers.values():
        assert worker.weights.keys() == dict(weights).keys() >= {"lm_head.weight", "model.embed_tokens.weight"}
        for name, tensor in weights:
            torch.testing.assert_close(worker.weights[name], tensor.bfloat16(), rtol=0, atol=0)
    engine.load_weights((name, 2 * tensor) for name, tensor in weights)
    assert first.calls.count("init") == 1 and first.calls.count("finish") == 2 and not engine.weights_folder.exists()
    assert torch.equal(second.weights["model.norm.weight"], 2 * dict(weights)["model.norm.weight"].bfloat16())


def test_other_ranks_only_consume_the_weights(servers, tied_model, tmp_path, monkeypatch):
    for name, value in (("is_initialized", True), ("get_rank", 1), ("barrier", None)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    weights = iter([("one", torch.ones(2))])
    engine_on(servers, tied_model, tmp_path).load_weights(weights)
    assert next(weights, None) is None and not any(worker.calls for worker in servers.values())


@pytest.mark.parametrize(
    ("backends", "problem"),
    [
        ((None, "nccl"), "got no --weight-transfer-config, expected backend nccl as of http"),
        (("nccl", "ipc"), "got --weight-transfer-config with backend ipc, expected nccl, or no such option"),
    ],
)
def test_unfit_backends_are_refused(servers, backends, problem, tied_model, tmp_path):
    for worker, backend in zip(servers.values(), backends):
        worker.answers["/server_info"] = with_backend(backend)
    with pytest.raises(UserError, match=rf"^http\S+ \(rollout\.servers\): {problem}"):
        engine_on(servers, tied_model, tmp_path)


def test_transfer_needs_a_gpu_and_vllm(servers, tied_model, tmp_path, monkeypatch):
    monkeypatch.setattr(server_engine, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="backend nccl, expected the package vllm here"):
        engine_on(servers, tied_model, tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"backend nccl, expected no such option, as the actor is on the CPU; rest"):
        engine_on(servers, tied_model, tmp_path)
    for worker in servers.values():
        worker.answers["/server_info"] = with_backend(None)
    engine_on(servers, tied_model, tmp_path)  # weights go by the disk


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/init_weight_transfer_engine", (500, {}), "answered /init_weight_transfer_engine with 500"),
        ("/start_weight_update", (500, {"error": {"message": "already active"}}), "with 500: already active"),
        ("/update_weights", (500, {}), "answered /update_weights with 500"),
        ("/update_weights", 0.1, "does not answer"),  # it dies
        ("/update_weights", 20.0, "does not answer"),  # it hangs
        ("/finish_weight_update", 0.1, "does not answer"),
    ],
)
def test_failing_server_ends_the_run(servers, path, answer, message, tied_model, tmp_path, monkeypatch):
    """The sender waits for the failed server's workers for ever, and the other server for the sender."""
    monkeypatch.setattr(server_client, "HEALTH_INTERVAL_S", 0.05)
    monkeypatch.setattr(server_client, "HEALTH_TIMEOUT_S", 0.1)
    engine = engine_on(servers, tied_model, tmp_path)
    address, worker = list(servers.items())[1]
    worker.answers |= {path: answer} | ({"/health": answer} if answer == 20.0 else {})
    began = time.monotonic()
    with pytest.raises(UserError, match=rf"^{address} \(rollout.servers\): .*{message}.*; restart all servers, as"):
        engine.load_weights([("one", torch.ones(2))])
    assert time.monotonic() - began < 5


def test_nccl_that_fails_or_hangs_ends_the_run(servers, tied_model, tmp_path, monkeypatch):
    failing = MagicMock(side_effect=RuntimeError("NCCL error: unhandled"))
    monkeypatch.setattr("vllm.distributed.weight_transfer.nccl_engine.packed_nccl_broadcast_producer", failing)
    for reason in ("RuntimeError: NCCL error: unhandled", "TimeoutError: no answer within 0.2 s"):
        engine = engine_on(servers, tied_model, tmp_path)
        with pytest.raises(
            UserError, match=rf"^rollout.servers: vLLM's NCCL transfer raised {reason}; give the .*NCCL_"
        ):
            engine.load_weights([("one", torch.ones(2))])
        for worker in servers.values():
            worker.network.barrier = threading.Barrier(9)  # one that never joins
        monkeypatch.setattr(server_transfer, "TIMEOUT_S", 0.2)


def test_own_address_is_not_the_loopback_one(monkeypatch):
    assert own_address(["http://127.0.0.1:9"]) == "127.0.0.1"
    monkeypatch.setattr(server_transfer.socket, "socket", sockets := MagicMock())
    sockets().__enter__().getsockname.side_effect = [("127.0.0.1", 1), ("10.0.0.5", 2), ("127.0.0.1", 3)]
    assert own_address(["http://localhost:1", "http://node2:2", "http://localhost:3"]) == "10.0.0.5"
