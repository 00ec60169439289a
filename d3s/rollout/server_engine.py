"""Rollouts from remote vLLM servers: token ids over HTTP, weights by NCCL or through a shared folder.

Every setting that changes what is sampled is part of the request, so nothing depends on a server's defaults, and only
rollout.stop on its tokenizer. How the servers were started is checked before the actor is loaded.
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import torch
import torch.distributed
from safetensors.torch import save_file
from torch import Tensor

from d3s.common import UserError, writing
from d3s.config.schema import RolloutConfig
from d3s.groups import Rollout
from d3s.pretrained import as_saved, read_config
from d3s.rollout.engine import Engine, Report, SamplingParams
from d3s.rollout.server_client import ServerClient
from d3s.rollout.server_transfer import WeightTransfer
from d3s.rollout.vllm_setup import batch_invariant

CHUNK_BYTES = 2**29  # of weights in memory until they are written to a file, or sent


class ServerEngine(Engine):
    """One or several servers, which return no entropies.

    They cannot be asked for weights, so only the probe after a sync can find stale ones, nor for preemptions, which
    they log, and have memory of their own.
    """

    def __init__(
        self, model_path: str, config: RolloutConfig, *, weights_folder: Path, head_dtype: str = "auto", **sizes: Any
    ) -> None:
        """Check the servers.

        Args:
            sizes: dtype and max_model_len, see Engine.
            weights_folder: created for each sync by the disk and removed after it; the servers must see it under the
                same path.

        Raises: UserError for a server that does not answer, or was started with other settings than this run needs.
        """
        super().__init__(model_path, config, **sizes)
        self.weights_folder = weights_folder.resolve()
        self._client = ServerClient(config.servers, config.max_num_seqs)
        self._rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._head_dtype = head_dtype
        self._workers: dict[str, int] = {}  # of the servers with a backend for the transfer of weights
        self._client.check_all(self._check_server)
        self._transfer = self._open_transfer()

    async def _check_server(self, session: aiohttp.ClientSession, server: str) -> None:
        """Raise UserError for a server whose settings or model do not fit this run."""
        info = await self._client.call(session, server, "/server_info?config_format=json")
        modules = (await self._client.call_workers(session, server, "get_model_inspection"))["results"][0]
        if problem := next(self._problems(info, modules), None):
            raise UserError(f"{server} (rollout.servers): got {problem}")
        if _backend(info):
            self._workers[server] = (await self._client.call(session, server, "/get_world_size"))["world_size"]

    def _open_transfer(self) -> WeightTransfer | None:
        """The transfer of weights by NCCL if all servers have it, None if none has. Raises UserError for a mixture."""
        if not self._workers:
            return None
        if without := [server for server in self._client.servers if server not in self._workers]:
            problem = f"got no --weight-transfer-config, expected backend nccl as of {min(self._workers)}"
            raise UserError(f"{without[0]} (rollout.servers): {problem}; restart one of them")
        return WeightTransfer(self._client, {server: self._workers[server] for server in self._client.servers})

    def _problems(self, info: dict[str, Any], modules: str) -> Iterator[str]:
        """Describe what of a server does not fit; width and vocabulary of its model are in its printed `modules`."""
        settings, model = info["vllm_config"], info["vllm_config"]["model_config"]
        if (mode := model["logprobs_mode"]) != "processed_logprobs":
            yield f"--logprobs-mode {mode}, expected processed_logprobs (those at the sampling temperature); restart it"
        if backend := _backend(info):
            option = f"--weight-transfer-config with backend {backend}"
            if backend != "nccl":
                yield f"{option}, expected nccl, or no such option for weights by the disk; restart it"
            if not torch.cuda.is_available():
                yield f"{option}, expected no such option, as the actor is on the CPU; restart it"
            if find_spec("vllm") is None:
                yield f"{option}, expected the package vllm here, which sends the weights; install it, or restart it"
        dtype, expected = (str(kind).removeprefix("torch.") for kind in (model["dtype"], self.dtype))
        if dtype != expected:
            yield f"--dtype {dtype}, expected {expected} (model.dtype); restart it, or change model.dtype"
        head_dtype = (model.get("hf_overrides") or {}).get("head_dtype", "auto")
        if head_dtype != self._head_dtype:
            expected = f"{self._head_dtype} (model.head_dtype); restart it, or change model.head_dtype"
            yield f"head_dtype {head_dtype} in --hf-overrides, expected {expected}"
        if batch_invariant() and not info.get("vllm_env", {}).get("VLLM_BATCH_INVARIANT"):
            yield "a server without VLLM_BATCH_INVARIANT=1, which is set here; restart it with that, or unset it"
        if (length := model["max_model_len"]) < self.max_model_len:
            yield f"--max-model-len {length}, expected at least {self.max_model_len} (prompt and response); restart it"
        if settings["device_config"]["device"] == "cpu" and settings["scheduler_config"]["enable_chunked_prefill"]:
            yield "chunked prefill, expected --no-enable-chunked-prefill (CPUs cannot split seeded prompts); restart it"
        embedding = re.search(r"embedding_dim=(\d+), org_vocab_size=(\d+)", modules)
        own, sizes = read_config(self.path).get_text_config(), "hidden size {} with {} tokens"
        expected = sizes.format(own.hidden_size, own.vocab_size)
        if embedding and (got := sizes.format(*embedding.groups())) != expected:
            yield f"{model['model']} of {got}, expected {expected}; serve {self.path}"

    def sample(
        self, rollouts: list[Rollout], params: SamplingParams, seeds: list[int], entropies: bool, on_finished: Report
    ) -> None:
        """See Engine.sample; `entropies` is ignored.

        The prompts rotate over the servers. All responses to a prompt come from one server, which caches its prefix.

        Raises: UserError for a server that refuses a request, dies or hangs.
        """
        settings = {
            "n": 1,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": -1,  # what the request omits may come from the served model's generation_config.json
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": self.stop_token_ids,
            "stop": self.stop,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "ignore_eos": True,  # that of the server's tokenizer; stop_token_ids end a response
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        servers = self._client.servers
        turns = {problem: i for i, problem in enumerate(dict.fromkeys(r.problem for r in rollouts))}

        async def complete(session: aiohttp.ClientSession, rollout: Rollout, seed: int) -> None:
            server = servers[(turns[rollout.problem] + self._rank) % len(servers)]
            max_tokens = min(params.max_tokens, self.max_model_len - len(rollout.prompt_ids))
            request = settings | {"prompt": rollout.prompt_ids, "seed": seed, "max_tokens": max_tokens}
            choice = (await self._client.call(session, server, "/v1/completions", request))["choices"][0]
            reason = choice["finish_reason"]
            if reason not in ("stop", "length"):
                raise UserError(f"{server} (rollout.servers): got finish_reason {reason!r}, expected stop or length")
            rollout.response_ids, rollout.logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            rollout.finished = reason == "stop"
            on_finished(rollout)

        self._client.run(lambda session: [complete(session, *request) for request in zip(rollouts, seeds)])

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Replace the weights of all servers; see Engine.load_weights. Collective.

        Every rank consumes `weights`. Rank 0 has the servers receive or read them while the other ranks wait.

        Raises: UserError if the disk is full, or if a server cannot load the weights.
        """
        if self._rank == 0:
            send = self._transfer.send if self._transfer else self._send_by_disk
            send(self._chunks(as_saved(self.path, weights)))
            self._client.check_all(self._clear_cache)
        else:
            for _ in weights:
                pass
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def close(self) -> None:
        """See Engine.close: the servers are free for another run."""
        if self._transfer:
            self._transfer.close()

    def _send_by_disk(self, chunks: Iterable[dict[str, Tensor]]) -> None:
        """Write one file per chunk and have the servers read them."""
        shutil.rmtree(self.weights_folder, ignore_errors=True)
        folder = self.weights_folder / uuid4().hex  # a new name, of which no machine has a cached listing
        with writing(folder):
            folder.mkdir(parents=True)
            for number, tensors in enumerate(chunks):
                save_file(tensors, folder / f"{number:05}.safetensors")
        self._client.run(lambda session: [self._reload(session, s, folder) for s in self._client.servers])
        shutil.rmtree(self.weights_folder)

    def _chunks(self, weights: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        """Group the weights, in the servers' precision, into chunks of CHUNK_BYTES on the device that sends them."""
        chunk, size, device = {}, 0, "cuda" if self._transfer else "cpu"
        for name, tensor in weights:
            chunk[name] = tensor.to(device, self.dtype, copy=True)  # tied ones share memory, a file refuses it
            size += chunk[name].nbytes
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = {}, 0
        if chunk:
            yield chunk

    async def _reload(self, session: aiohttp.ClientSession, server: str, folder: Path) -> None:
        """Have a server load the weight files."""
        try:
            await self._client.call_workers(session, server, "reload_weights", weights_path=str(folder))
        except UserError as error:  # vLLM's server does not survive that
            remedy = "the server must see that folder under the same path and serve a model of its shape; restart it"
            raise UserError(f"{error}; {remedy}") from error

    async def _clear_cache(self, session: aiohttp.ClientSession, server: str) -> None:
        """Clear a server's prefix cache; else cached prefixes of the old weights are silently used."""
        cleared = await self._client.call(session, server, "/reset_prefix_cache", {})
        if not cleared["success"]:
            problem = "its prefix cache is in use by another client; a server serves one run at a time"
            raise UserError(f"{server} (rollout.servers): {problem}")


def _backend(info: dict[str, Any]) -> str | None:
    """The backend of a server's --weight-transfer-config; None without that option."""
    return (info["vllm_config"].get("weight_transfer_config") or {}).get("backend")
