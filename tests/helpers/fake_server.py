"""HTTP servers that give fixed answers, or those of vLLM's routes for a transfer of weights, with a barrier for NCCL.

What only a GPU runs is replaced by functions of the same signature: joining the group, and the broadcast.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec, patch

import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

from d3s.rollout.vllm_setup import prepare_vllm_environment
from tests.helpers.pretended_device import pretended_device

MODEL = {
    "logprobs_mode": "processed_logprobs", "dtype": "torch.float32", "max_model_len": 512, "model": "some/model",
    "hf_overrides": {},
}  # fmt: skip
SETTINGS = {"device_config": {"device": "cpu"}, "scheduler_config": {"enable_chunked_prefill": False}}
MODULES = "(embed_tokens): VocabParallelEmbedding(num_embeddings=257, embedding_dim=64, org_vocab_size=257, tp_size=1)"
Answer = tuple[int, dict]  # status and JSON body


def info(settings: dict | None = None, backend: str | None = None, **model) -> Answer:
    """The answer to /server_info of a server that fits the tests' models, but for these settings."""
    transfer = {"weight_transfer_config": backend and {"backend": backend}}
    settings = SETTINGS | transfer | (settings or {}) | {"model_config": MODEL | model}
    return 200, {"vllm_config": settings, "vllm_env": {}}


def fitting_answers() -> dict:
    """The answers of a server that fits the tests' models."""
    return {"/server_info": info(), "/collective_rpc": (200, {"results": [MODULES]}), "/health": (200, {})}


@contextmanager
def answering_server(answers: dict[str, Answer | float | Callable[[str, str, bytes], Answer]]) -> Iterator[str]:
    """Yield the address of a server with an answer for each path, a function that gives it, or seconds of silence."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = answers.get(self.path.partition("?")[0], (404, {"detail": "Not Found"}))
            if callable(answer):
                answer = answer(self.command, self.path, body)
            if isinstance(answer, float):
                time.sleep(answer)
                return
            status, body = answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write((body if isinstance(body, str) else json.dumps(body)).encode())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 64

        def handle_error(self, *_):  # a client that has given up closes the connection
            pass

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Workers:
    """The workers of a server, behind vLLM's routes; they receive what is on the wire, as all others do."""

    def __init__(self, size: int, network: SimpleNamespace) -> None:
        from vllm.entrypoints.rl.online.api_router import router

        self.network, self.calls, self.weights = network, [], {}
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(world_size_across_dp=size))
        app = FastAPI()
        app.include_router(router)
        app.state.engine_client = self
        client = TestClient(app)

        def answer(method: str, path: str, body: bytes) -> Answer:
            answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
            return answer.status_code, answer.json()

        self.answers = fitting_answers() | dict.fromkeys((route.path for route in router.routes), answer)
        self.answers |= {"/server_info": info(backend="nccl"), "/reset_prefix_cache": self.reset}

    def reset(self, *_: Any) -> Answer:
        """Clear the prefix cache."""
        self.calls.append("reset")
        return 200, {"success": True}

    # --- called by the routes ---------------------------------------------------------------------------------------

    async def init_weight_transfer_engine(self, request: Any) -> None:
        """Wait for all to join."""
        self.calls.append("init")
        self.init = self.network.nccl_engine.NCCLWeightTransferInitInfo(**request.init_info)
        self.network.barrier.wait()

    async def shutdown_weight_transfer_engine(self) -> None:
        self.calls.append("shutdown")

    async def start_weight_update(self) -> None:
        self.calls.append("start")

    async def update_weights(self, request: Any) -> None:
        """Wait for the broadcast; keep the tensors."""
        self.calls.append("update")
        update = self.network.nccl_engine.NCCLWeightTransferUpdateInfo(**request.update_info)
        self.network.barrier.wait()
        dtypes = [getattr(torch, name) for name in update.dtype_names]
        sizes = [torch.Size(s).numel() * d.itemsize for s, d in zip(update.shapes, dtypes)]
        received = self.network.packed_tensor.unpack_tensor(
            self.network.wire, update.names, update.shapes, dtypes, sizes
        )
        self.weights |= {name: tensor.clone() for name, tensor in received}

    async def finish_weight_update(self, weight_version: str | None) -> None:
        assert weight_version is None
        self.calls.append("finish")


@contextmanager
def transfer_servers(*sizes: int) -> Iterator[dict[str, Workers]]:
    """Start servers with these numbers of workers; yield them by address. The actor is on a pretended GPU."""
    with patch.dict(os.environ), ExitStack() as stack, pytest.MonkeyPatch.context() as replaced:
        prepare_vllm_environment()
        from vllm.distributed.weight_transfer import nccl_engine, packed_tensor

        network = SimpleNamespace(nccl_engine=nccl_engine, packed_tensor=packed_tensor, wire=None)
        network.barrier = threading.Barrier(1 + len(sizes))
        network.destroyed = threading.Event()
        network.destroy = network.destroyed.set  # of vLLM's communicator

        def join(init_info, rank=0):
            network.joined = init_info, rank
            network.barrier.wait()
            return network

        def broadcast(iterator, group, src, post_iter_func, buffer_size_bytes=0, num_buffers=2):
            assert group is network and src == 0
            packed = packed_tensor.pack_tensors(iterator, post_iter_func, buffer_size_bytes).packed_tensor
            assert packed.device.type == "cuda" and next(iterator, None) is None  # of one buffer
            network.wire = packed.cpu()
            network.barrier.wait()

        for name, function in (("open_trainer_endpoint", join), ("packed_nccl_broadcast_producer", broadcast)):
            replaced.setattr(nccl_engine, name, create_autospec(getattr(nccl_engine, name), side_effect=function))
        workers = [Workers(size, network) for size in sizes]  # imports of vLLM would look at the pretended GPU
        servers = {stack.enter_context(answering_server(w.answers)): w for w in workers}
        stack.callback(network.barrier.abort)
        network.device = stack.enter_context(pretended_device())
        yield servers
