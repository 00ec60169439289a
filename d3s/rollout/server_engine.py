"""Rollouts from remote vLLM servers: token ids over HTTP, weights through a shared folder.

Every setting that changes what is sampled is part of the request, so nothing depends on a server's defaults, and only
rollout.stop on its tokenizer. How the servers were started is checked before the actor is loaded.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import torch
import torch.distributed
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from d3s.common import UserError, disk_error
from d3s.config.schema import RolloutConfig
from d3s.pretrained import as_saved, stop_token_ids
from d3s.rollout.engine import Key, Rollout, SamplingParams, sample_places
from d3s.rollout.server_client import ServerClient

FILE_BYTES = 2**29  # size of a weight file, and of the weights in memory until they are written


class ServerEngine:
    """The Engine contract on one or several servers, which return no entropies."""

    kv_cache_tokens = None

    def __init__(
        self,
        model_path: str,
        config: RolloutConfig,
        *,
        dtype: str,
        max_model_len: int,
        weights_folder: Path,
        head_dtype: str = "auto",
    ) -> None:
        """Check the servers.

        Args:
            weights_folder: created for each sync and removed after it; the servers must see it under the same path.

        Raises: UserError for a server that does not answer, or was started with other settings than this run needs.
        """
        self.weights_folder = weights_folder.resolve()
        self.stop_token_ids, self.stop = stop_token_ids(model_path), config.stop
        self._path = model_path
        self._client = ServerClient(config.servers, config.max_num_seqs)
        self._dtype, self._head_dtype, self._batch_invariant = dtype, head_dtype, config.batch_invariant
        self._max_model_len = max_model_len
        self._rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._client.run(lambda session: [self._check_server(session, server) for server in config.servers])

    async def _check_server(self, session: aiohttp.ClientSession, server: str) -> None:
        """Raise UserError for a server whose settings or model do not fit this run."""
        info = await self._client.call(session, server, "/server_info?config_format=json")
        if problem := self._settings_problem(info["vllm_config"]):
            raise UserError(f"{server} (rollout.servers): {problem}")
        if self._batch_invariant and not info.get("vllm_env", {}).get("VLLM_BATCH_INVARIANT"):
            raise UserError(
                f"{server} (rollout.servers): got a server without VLLM_BATCH_INVARIANT=1 (rollout.batch_invariant); "
                "restart it with this variable, or set the option to false"
            )
        modules = (await self._client.call_workers(session, server, "get_model_inspection"))["results"][0]
        if problem := self._model_problem(info["vllm_config"]["model_config"]["model"], modules):
            raise UserError(f"{server} (rollout.servers): {problem}")

    def _settings_problem(self, settings: dict[str, Any]) -> str | None:
        """Describe the first setting of a server that does not fit, if there is one."""
        model = settings["model_config"]
        if model["logprobs_mode"] != "processed_logprobs":
            return (
                f"got --logprobs-mode {model['logprobs_mode']}, expected processed_logprobs (those at the sampling "
                "temperature); restart it"
            )
        dtype = model["dtype"].removeprefix("torch.")
        if dtype != self._dtype:
            return f"got --dtype {dtype}, expected {self._dtype} (model.dtype); restart it, or change model.dtype"
        head_dtype = (model.get("hf_overrides") or {}).get("head_dtype", "auto")
        if head_dtype != self._head_dtype:
            return (
                f"got head_dtype {head_dtype} in --hf-overrides, expected {self._head_dtype} (model.head_dtype); "
                "restart it, or change model.head_dtype"
            )
        if model["max_model_len"] < self._max_model_len:
            return (
                f"got --max-model-len {model['max_model_len']}, expected at least {self._max_model_len} (the longest "
                "prompt plus rollout.max_completion_length); restart it"
            )
        if settings["device_config"]["device"] == "cpu" and settings["scheduler_config"]["enable_chunked_prefill"]:
            return (
                "got chunked prefill, expected --no-enable-chunked-prefill (on a CPU vLLM cannot split the prompt of a "
                "seeded request); restart it"
            )
        return None

    def _model_problem(self, served: str, modules: str) -> str | None:
        """Compare width and vocabulary of the served model, read from its printed modules, with those of this run."""
        from transformers import AutoConfig

        embedding = re.search(r"embedding_dim=(\d+), org_vocab_size=(\d+)", modules)
        if embedding is None:
            return None
        width, tokens = map(int, embedding.groups())
        expected = AutoConfig.from_pretrained(self._path, trust_remote_code=False).get_text_config()
        if (width, tokens) == (expected.hidden_size, expected.vocab_size):
            return None
        return (
            f"got {served} of hidden size {width} with {tokens} tokens, expected hidden size {expected.hidden_size} "
            f"with {expected.vocab_size} tokens; serve {self._path}"
        )

    def generate(
        self,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        *,
        entropies: bool = True,
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """See Engine.generate; `entropies` is ignored.

        The prompts rotate over the servers. All responses to a prompt come from one server, which caches its prefix.

        Raises: UserError for a server that refuses a request, dies or hangs.
        """
        places = sample_places(len(prompts), n, seeds)
        settings = {
            "n": 1,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": 0.0,  # what the request omits may come from the served model's generation_config.json
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

        async def sample(session: aiohttp.ClientSession, index: int, i: int, seed: int) -> Rollout:
            server = servers[(index + self._rank) % len(servers)]
            prompt = prompts[index]
            max_tokens = min(params.max_tokens, self._max_model_len - len(prompt))
            request = settings | {"prompt": prompt, "seed": seed, "max_tokens": max_tokens}
            choice = (await self._client.call(session, server, "/v1/completions", request))["choices"][0]
            reason = choice["finish_reason"]
            if reason not in ("stop", "length"):
                raise UserError(f"{server} (rollout.servers): got finish_reason {reason!r}, expected stop or length")
            logprobs = choice["logprobs"]["token_logprobs"]
            rollout = Rollout(index, prompt, choice["token_ids"], logprobs, [], reason == "stop", i)
            if on_finished:
                on_finished(rollout)
            return rollout

        return self._client.run(lambda session: [sample(session, *place, seed) for place, seed in zip(places, seeds)])

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Replace the weights of all servers; see Engine.load_weights. Collective.

        Every rank consumes `weights`. Rank 0 writes them and has the servers read them while the other ranks wait.

        Raises: UserError if the disk is full, or if a server cannot load the files.
        """
        if self._rank == 0:
            shutil.rmtree(self.weights_folder, ignore_errors=True)
            folder = self.weights_folder / uuid4().hex  # a new name, of which no machine has a cached listing
            try:
                folder.mkdir(parents=True)
                for number, tensors in enumerate(self._chunks(as_saved(self._path, weights))):
                    save_file(tensors, folder / f"{number:05}.safetensors")
            except (OSError, SafetensorError) as error:
                raise disk_error(folder, error) from error
            self._client.run(lambda session: [self._reload(session, s, folder) for s in self._client.servers])
            shutil.rmtree(self.weights_folder)
        else:
            for _ in weights:
                pass
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def _chunks(self, weights: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        """Group the weights, in the servers' precision, into chunks of FILE_BYTES."""
        chunk, size = {}, 0
        for name, tensor in weights:
            chunk[name] = tensor.to("cpu", getattr(torch, self._dtype))
            size += chunk[name].nbytes
            if size >= FILE_BYTES:
                yield chunk
                chunk, size = {}, 0
        yield chunk

    async def _reload(self, session: aiohttp.ClientSession, server: str, folder: Path) -> None:
        """Have a server load the weight files and clear its prefix cache."""
        try:
            await self._client.call_workers(session, server, "reload_weights", weights_path=str(folder))
        except UserError as error:  # vLLM's server does not survive that
            raise UserError(
                f"{error}; the server must see that folder under the same path and serve a model of the same shape; "
                "restart it"
            ) from error
        # else cached prefixes of the old weights are silently used
        cleared = await self._client.call(session, server, "/reset_prefix_cache", {})
        if not cleared["success"]:
            raise UserError(
                f"{server} (rollout.servers): cannot clear its prefix cache, in use by another client; a server serves "
                "one run at a time"
            )

    def checksums(self) -> dict[Key, int]:
        """Return {}: servers cannot be asked for weights, so only the probe after a sync can find stale ones."""
        return {}

    def take_preemptions(self) -> int:
        """Return 0: the count is unknown here; servers log it."""
        return 0

    def sleep(self) -> None:
        """Do nothing: the servers have memory of their own."""

    def wake(self, tag: str) -> None:
        """Do nothing; see sleep."""
