"""Servers that answer by hand (helpers/fake_server.py): calls, refusals, weights by NCCL, failures in one sentence."""

import asyncio
import threading
import time
from unittest.mock import MagicMock

import pytest
import torch

from d3s.common import UserError
from d3s.rollout import server_client, server_engine, server_transfer
from d3s.rollout.engine import SamplingParams
from d3s.rollout.server_client import ServerClient
from d3s.rollout.server_transfer import own_address
from tests.helpers.fake_server import MODULES, answering_server, fitting_answers, info, transfer_servers
from tests.helpers.rollouts import PROMPTS, actor_of, engine_of


@pytest.fixture
def fake_server():
    """The address of a server that fits, and its answers by path, which a test may change."""
    answers = fitting_answers()
    with answering_server(answers) as address:
        yield address, answers


# --- calls ------------------------------------------------------------------------------------------------------------


def call(address, path, times=1):
    client = ServerClient([address], 2)
    client.run(lambda session: [client.call(session, address, path) for _ in range(times)])


def test_requests_per_server_are_limited(fake_server):
    """Six requests of 0.2 s each take three rounds at two a time."""
    address, answers = fake_server
    answers["/slow"] = lambda *_: time.sleep(0.2) or (200, {})
    began = time.monotonic()
    call(address, "/slow", times=6)
    assert time.monotonic() - began > 0.55


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, {}), "has no /path; expected vLLM's server, started with VLLM_SERVER_DEV_MODE=1"),
        ((500, {"error": {"message": "first\n  second"}}), "answered /path with 500: first second"),
        ((200, "<html>"), 'answered /path with "<html>"; expected vLLM\'s server'),
        ((401, {"error": "Unauthorized"}), 'answered /path with 401: {"error": "Unauthorized"}'),
    ],
)
def test_error_answers_are_one_sentence(fake_server, answer, message):
    address, answers = fake_server
    answers["/path"] = answer
    with pytest.raises(UserError) as error:
        call(address, "/path")
    assert str(error.value) == f"{address} (rollout.servers): {message}"


def test_notebook_calls_beside_its_own_event_loop(fake_server):
    address, answers = fake_server
    answers["/path"] = 401, {"error": "Unauthorized"}

    async def cell():
        call(address, "/path")

    with pytest.raises(UserError, match="answered /path with 401"):
        asyncio.run(cell())


@pytest.mark.parametrize("path", ["/server_info", "/collective_rpc", "/reset_prefix_cache"])
def test_healthy_server_that_hangs_ends_the_run(fake_server, path, tied_model, tmp_path, monkeypatch):
    """A server that answers /health alone, at the start and after a sync."""
    monkeypatch.setattr(server_client, "CHECK_TIMEOUT_S", 0.5)
    address, answers = fake_server
    answers["/reset_prefix_cache"] = (200, {"success": True})
    answers[path] = 20.0
    began = time.monotonic()
    message = rf"^{address} \(rollout\.servers\): is healthy, but .* within 0\.5 s; check the server's log"
    with pytest.raises(UserError, match=message):
        engine_of([address], tied_model, tmp_path).load_weights(iter([("one", torch.ones(2))]))
    assert time.monotonic() - began < 10


# --- engine -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (info(logprobs_mode="raw_logprobs"), "--logprobs-mode raw_logprobs, expected processed_logprobs"),
        (info(dtype="torch.bfloat16"), "--dtype bfloat16, expected float32"),
        (info(hf_overrides={"head_dtype": "float32"}), "head_dtype float32 in --hf-overrides, expected auto (model.h"),
        (info(max_model_len=191), "--max-model-len 191, expected at least 192"),
        (info({"scheduler_config": {"enable_chunked_prefill": True}}), "chunked prefill, expected --no-enable-chunked"),
        ((200, {"results": [MODULES.replace("64", "96")]}), "hidden size 96 with 257 tokens, expected hidden size 64"),
    ],
)
def test_unfit_server_is_refused(fake_server, answer, problem, tied_model, tmp_path):
    address, answers = fake_server
    engine_of([address], tied_model, tmp_path)  # fits
    answers["/collective_rpc" if "results" in answer[1] else "/server_info"] = answer
    with pytest.raises(UserError) as refusal:
        engine_of([address], tied_model, tmp_path)
    assert str(refusal.value).startswith(f"{address} (rollout.servers): got ") and problem in str(refusal.value)


def test_server_must_be_batch_invariant_if_asked(fake_server, tied_model, tmp_path, monkeypatch):
    address, answers = fake_server
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with pytest.raises(UserError, match=r"\(rollout\.servers\): got a server without VLLM_BATCH_INVARIANT=1"):
        engine_of([address], tied_model, tmp_path)
    answers["/server_info"][1]["vllm_env"] = {"VLLM_BATCH_INVARIANT": True}
    engine_of([address], tied_model, tmp_path)


def test_failed_requests_report_the_servers_answer(fake_server, tied_model, tmp_path):
    address, answers = fake_server
    engine, weights = engine_of([address], tied_model, tmp_path), [("one", torch.ones(2))]
    answers["/collective_rpc"] = (500, {"error": {"message": "Worker failed with 'no such folder'"}})
    with pytest.raises(UserError, match=r"500: Worker failed with 'no such folder'; the server must see that folder"):
        engine.load_weights(iter(weights))
    answers["/collective_rpc"], answers["/reset_prefix_cache"] = (200, {}), (200, {"success": False})
    with pytest.raises(UserError, match="in use by another client"):
        engine.load_weights(iter(weights))
    answers["/v1/completions"] = (200, {"choices": [{"finish_reason": "abort"}]})
    with pytest.raises(UserError, match="got finish_reason 'abort', expected stop or length"):
        engine.generate(PROMPTS, n=1, params=SamplingParams(max_tokens=5), seeds=list(range(4)))


# --- weights by NCCL --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights(tied_model):
    return list(actor_of(tied_model).weights())


@pytest.fixture
def servers():
    """Workers by the address of their server. A test's `monkeypatch` ends before the pretended GPU does."""
    with pytest.MonkeyPatch.context() as patch, transfer_servers(2, 1) as servers:
        patch.setattr(server_transfer, "TIMEOUT_S", 20)
        yield servers


def test_weights_reach_all_workers(weights, servers, tied_model, tmp_path, monkeypatch):
    monkeypatch.setattr(server_engine, "CHUNK_BYTES", 50_000)
    engine = engine_of(servers, tied_model, tmp_path)
    engine.dtype = torch.bfloat16
    engine.load_weights(iter(weights))
    first, second = servers.values()
    chunks = first.calls.count("update")
    assert chunks > 3 and first.calls == second.calls == ["init", "start", *["update"] * chunks, "finish", "reset"]
    assert first.network.device.waits["synchronize", "rollout/server_transfer.WeightTransfer.send"] == chunks
    joined, rank = first.network.joined
    assert (rank, first.init.rank_offset, second.init.rank_offset) == (0, 1, 3)
    for group in (first.init, second.init, joined):
        assert (group.master_address, group.master_port, group.world_size) == ("127.0.0.1", joined.master_port, 4)
        assert group.packed and group.packed_buffer_size_bytes == joined.packed_buffer_size_bytes
    for worker in servers.values():
        assert worker.weights.keys() == dict(weights).keys() >= {"lm_head.weight", "model.embed_tokens.weight"}
        assert all(torch.equal(worker.weights[name], tensor.bfloat16()) for name, tensor in weights)
    engine.load_weights((name, 2 * tensor) for name, tensor in weights)
    assert first.calls.count("init") == 1 and first.calls.count("finish") == 2 and not engine.weights_folder.exists()
    assert torch.equal(second.weights["model.norm.weight"], 2 * dict(weights)["model.norm.weight"].bfloat16())
    engine.close()
    assert first.calls[-1] == second.calls[-1] == "shutdown"
    assert first.network.destroyed.wait(10)


def test_unfit_backends_are_refused(servers, tied_model, tmp_path, monkeypatch):
    def start(*backends):
        for worker, backend in zip(servers.values(), backends):
            worker.answers["/server_info"] = info(backend=backend)
        return engine_of(servers, tied_model, tmp_path)

    def refused(problem, *backends):
        with pytest.raises(UserError, match=rf"^http\S+ \(rollout\.servers\): got .*{problem}"):
            start(*backends)

    refused("no --weight-transfer-config, expected backend nccl as of http", None, "nccl")
    refused("--weight-transfer-config with backend ipc, expected nccl, or no such option", "nccl", "ipc")
    monkeypatch.setattr(server_engine, "find_spec", lambda name: None)
    refused("backend nccl, expected the package vllm here", "nccl", "nccl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused("backend nccl, expected no such option, as the actor is on the CPU; rest", "nccl", "nccl")
    start(None, None)  # weights go by the disk


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/init_weight_transfer_engine", (500, {}), "answered /init_weight_transfer_engine with 500"),
        ("/start_weight_update", (500, {"error": {"message": "already active"}}), "with 500: already active"),
        ("/update_weights", 0.1, "does not answer"),  # it dies
        ("/update_weights", 20.0, "does not answer"),  # it hangs
        ("/finish_weight_update", 0.1, "does not answer"),
    ],
)
def test_failing_server_ends_the_run(servers, path, answer, message, tied_model, tmp_path, monkeypatch):
    """The sender waits for the failed server's workers for ever, and the other server for the sender."""
    monkeypatch.setattr(server_client, "HEALTH_INTERVAL_S", 0.05)
    monkeypatch.setattr(server_client, "HEALTH_TIMEOUT_S", 0.5)  # a busy machine delays the other server
    engine = engine_of(servers, tied_model, tmp_path)
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
        message = rf"^rollout.servers: vLLM's NCCL transfer raised {reason}; give the .*NCCL_"
        with pytest.raises(UserError, match=message):
            engine_of(servers, tied_model, tmp_path).load_weights([("one", torch.ones(2))])
        for worker in servers.values():
            worker.network.barrier = threading.Barrier(9)  # one that never joins
        monkeypatch.setattr(server_transfer, "TIMEOUT_S", 0.2)


def test_own_address_is_not_the_loopback_one(monkeypatch):
    assert own_address(["http://127.0.0.1:9"]) == own_address(["http://127.0.0.1"]) == "127.0.0.1"
    monkeypatch.setattr(server_transfer.socket, "socket", sockets := MagicMock())
    sockets().__enter__().getsockname.side_effect = [("127.0.0.1", 1), ("10.0.0.5", 2), ("127.0.0.1", 3)]
    assert own_address(["http://localhost:1", "http://node2:2", "http://localhost:3"]) == "10.0.0.5"
