"""The servers of a weight transfer without a GPU: vLLM's sender, routes and payloads, with a barrier in place of NCCL.

What only a GPU runs is replaced by functions of the same signature: joining the group, and the broadcast.
"""

import asyncio
import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec, patch

import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient

from d3s.rollout.server_engine import ServerEngine
from d3s.rollout.vllm_setup import prepare_vllm_environment
from tests.helpers.fake_server import SETTINGS, answering_server, fitting_answers, info
from tests.helpers.pretended_device import pretended_device
from tests.helpers.vllm_server import engine_of

PATHS = ("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update")


def with_backend(name: str | None) -> tuple[int, dict]:
    """The answer to /server_info of a server with this backend."""
    return info(SETTINGS | {"weight_transfer_config": name and {"backend": name}})


class Workers:
    """The workers of a server, behind vLLM's routes; they receive what is on the wire, as all others do."""

    def __init__(self, size: int, network: SimpleNamespace) -> None:
        from vllm.entrypoints.rl.online.api_router import router

        self.network, self.answers = network, fitting_answers()
        self.calls: list[str] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(world_size_across_dp=size))
        self.answers |= dict.fromkeys((*PATHS, "/get_world_size"), self.answer)
        self.answers |= {"/server_info": with_backend("nccl"), "/reset_prefix_cache": self.reset}
        app = FastAPI()
        app.include_router(router)
        app.state.engine_client = self
        self.client = TestClient(app)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict]:
        """The answer of vLLM's routes, which call the methods below."""
        answer = self.client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        return answer.status_code, answer.json()

    def reset(self, *_: Any) -> tuple[int, dict]:
        """Clear the prefix cache."""
        self.calls.append("reset")
        return 200, {"success": True}

    async def init_weight_transfer_engine(self, request: Any) -> None:
        """Wait for all to join."""
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferInitInfo

        self.init = NCCLWeightTransferInitInfo(**request.init_info)
        self.calls.append("init")
        await asyncio.to_thread(self.network.barrier.wait)

    async def start_weight_update(self) -> None:
        self.calls.append("start")

    async def update_weights(self, request: Any) -> None:
        """Wait for the broadcast; keep the tensors."""
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferUpdateInfo
        from vllm.distributed.weight_transfer.packed_tensor import unpack_tensor

        update = NCCLWeightTransferUpdateInfo(**request.update_info)
        self.calls.append("update")
        await asyncio.to_thread(self.network.barrier.wait)
        dtypes = [getattr(torch, name) for name in update.dtype_names]
        sizes = [torch.Size(s).numel() * d.itemsize for s, d in zip(update.shapes, dtypes)]
        received = unpack_tensor(self.network.wire, update.names, update.shapes, dtypes, sizes)
        self.weights |= {name: tensor.clone() for name, tensor in received}

    async def finish_weight_update(self, weight_version: str | None) -> None:
        assert weight_version is None
        self.calls.append("finish")


def engine_on(servers: dict[str, Workers], model: Path, folder: Path) -> ServerEngine:
    """The engine of a run on these servers."""
    return engine_of(list(servers), model, folder)


@contextmanager
def transfer_servers(*sizes: int) -> Iterator[dict[str, Workers]]:
    """Start servers with these numbers of workers; yield them by address. The actor is on a pretended GPU."""
    with patch.dict(os.environ):
        prepare_vllm_environment()
        importlib.import_module("vllm.entrypoints.rl.online.api_router")  # which would look at the pretended GPU
        with _servers(sizes) as servers, pretended_device() as device:
            next(iter(servers.values())).network.device = device
            yield servers


@contextmanager
def _servers(sizes: tuple[int, ...]) -> Iterator[dict[str, Workers]]:
    from vllm.distributed.weight_transfer import nccl_engine, packed_tensor

    network = SimpleNamespace(barrier=threading.Barrier(1 + len(sizes)), wire=None)

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

    with ExitStack() as stack, pytest.MonkeyPatch.context() as replaced:
        for name, function in (("open_trainer_endpoint", join), ("packed_nccl_broadcast_producer", broadcast)):
            replaced.setattr(nccl_engine, name, create_autospec(getattr(nccl_engine, name), side_effect=function))
        workers = [Workers(size, network) for size in sizes]
        try:
            yield {stack.enter_context(answering_server(w.answers)): w for w in workers}
        finally:
            network.barrier.abort()
