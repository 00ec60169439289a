"""Weights to vLLM servers by vLLM's NCCL transfer, in one group of rank 0 and all workers of all servers.

Only a GPU runs vLLM's open_trainer_endpoint, which joins the group, and packed_nccl_broadcast_producer, which sends. If
a server is lost they never return, so they run in a thread that is left behind: run_and_exit does not wait for it.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from itertools import accumulate, repeat
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from d3s.common import UserError, describe
from d3s.rollout.server_client import ServerClient
from d3s.rollout.vllm_setup import free_port, prepare_vllm_environment

TIMEOUT_S = 300.0  # to connect, or to send one chunk
RESTART = "restart all servers, as their workers may be waiting for weights"


def own_address(servers: Iterable[str]) -> str:
    """This host's IPv4 address as the servers see it, if possible not the loopback one. Raises OSError."""
    addresses = []
    for url in map(urlsplit, servers):
        with socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.connect((url.hostname, url.port or 80))  # sends nothing
            addresses.append(probe.getsockname()[0])
    return min(addresses, key=lambda address: address.startswith("127."))


class WeightTransfer:
    """Sends weights to all servers. vLLM's sender takes it as its client and as its source of tensors."""

    def __init__(self, client: ServerClient, workers: dict[str, int]) -> None:
        self._client, self._workers = client, workers  # number of workers by server
        self._sender: Any = None
        self._chunk: dict[str, Tensor] = {}
        self._failure: Future[None] = Future()  # of a server, while the sender may be blocked

    def send(self, chunks: Iterable[dict[str, Tensor]]) -> None:
        """Replace the weights of all servers by `chunks` on this GPU. The first call connects.

        Raises: UserError for a server that fails, with its address, and if NCCL fails or takes longer than TIMEOUT_S.
        """
        self._sender = self._sender or self._call(self._connect)
        self._post("/start_weight_update")
        for self._chunk in chunks:
            torch.cuda.synchronize()  # vLLM packs in a stream of its own
            self._call(self._sender.send_weights)
            self._chunk = {}
        self._post("/finish_weight_update")

    def close(self) -> None:
        """Dissolve the group, on the servers and here, so that another run can form one."""
        if self._sender is None or self._failure.done():
            return
        threading.Thread(target=self._sender.shutdown, daemon=True).start()  # the servers may wait for it
        path, call = "/shutdown_weight_transfer_engine", self._client.call
        with suppress(UserError):  # the run has its weights
            self._client.check_all(lambda session, server: call(session, server, path, {}))

    def _connect(self) -> Any:
        """Form the group; returns vLLM's sender."""
        prepare_vllm_environment()
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        address, size = own_address(self._workers), 1 + sum(self._workers.values())
        info = NCCLTrainerInitInfo(address, free_port(address), world_size=size, rank=0)
        return WeightTransferTrainerFactory.trainer_init(info, client=self, source=self)

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call what blocks in NCCL, until it returns, a server fails, or the time is over."""
        result, device = Future(), torch.cuda.current_device()

        def call() -> None:
            try:
                torch.cuda.set_device(device)  # each thread has its own
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        wait([result, self._failure], TIMEOUT_S, FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        error = result.exception() if result.done() else TimeoutError(f"no answer within {TIMEOUT_S:g} s")
        if isinstance(error, RuntimeError | OSError):
            names = ", ".join(sorted(name for name in os.environ if name.startswith("NCCL_"))) or "none"
            remedy = f"give the servers the NCCL_* variables of this process ({names}) and {RESTART}"
            raise UserError(f"rollout.servers: vLLM's NCCL transfer {describe(error)}; {remedy}") from error
        return result.result()

    def _post(self, path: str, bodies: Iterable[dict] = repeat({})) -> None:
        """Call all servers at once. Raises UserError for the first that fails; so does a blocked `_call`."""
        calls = list(zip(self._workers, bodies))
        try:
            self._client.run(lambda session: [self._client.call(session, s, path, body) for s, body in calls])
        except UserError as error:
            self._failure.set_exception(UserError(f"{error}; {RESTART}"))
            self._failure.result()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have all workers join the group, those of each server after those of the one before."""
        offsets = accumulate(self._workers.values(), initial=init_info["rank_offset"])
        self._post("/init_weight_transfer_engine", ({"init_info": init_info | {"rank_offset": n}} for n in offsets))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Have all workers receive the chunk."""
        self._post("/update_weights", repeat({"update_info": update_info}))

    def start_weight_update(self, *_: Any) -> None:
        """Do nothing: `send` starts and finishes one update of all chunks."""

    finish_weight_update = start_weight_update

    def metadata(self) -> list[Any]:
        """Describe the chunk."""
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self._chunk.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._chunk.items())
