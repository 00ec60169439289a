"""Rollouts from vLLM servers elsewhere: prompts and responses over HTTP, weights through a folder that both sides see.

Token ids go in and come out, and every setting that changes what is sampled stands in the request: nothing depends on
a server's tokenizer or defaults. What a server must be started with is checked before anything is loaded here.
"""

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import torch
import torch.distributed
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import RolloutConfig
from d3s.pretrained import as_saved, stop_token_ids
from d3s.rollout.engine import Key, Rollout, SamplingParams

FILE_BYTES = 2**29  # of weights in memory until they are written
PULSE_S, PULSE_LIMIT_S, PULSES = 5, 10, 3  # a server that says three times nothing is gone: after 45 s at most


class ServerEngine:
    """The contract of VllmEngine, but for entropies, which no server tells; one or several servers sample."""

    kv_cache_tokens = None  # the servers' own

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
        """`weights_folder` is made for each sync and removed; the servers must see it under the same path.

        Raises: UserError for a server that does not answer or was not started as this run needs it.
        """
        self._path = model_path
        self._servers = config.servers
        self._at_once = config.max_num_seqs
        self._stop = stop_token_ids(model_path)
        self._dtype, self._head_dtype = dtype, head_dtype
        self._max_model_len = max_model_len
        self._folder = weights_folder.resolve()
        self._rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._talk(lambda session: [self._check(session, server, model_path) for server in self._servers])

    async def _check(self, session: aiohttp.ClientSession, server: str, model_path: str) -> None:
        from transformers import AutoConfig

        info = await self._call(session, server, "/server_info?config_format=json")
        settings = info["vllm_config"]
        model = settings["model_config"]
        if model["logprobs_mode"] != "processed_logprobs":
            raise UserError(
                f"{server} (rollout.servers) was started with --logprobs-mode {model['logprobs_mode']}, must be "
                "processed_logprobs: those at the sampling temperature"
            )
        if model["dtype"] != f"torch.{self._dtype}":
            found = model["dtype"].removeprefix("torch.")
            raise UserError(f"{server} (rollout.servers) was started with --dtype {found}, must be {self._dtype}")
        head = (model.get("hf_overrides") or {}).get("head_dtype", "auto")
        if head != self._head_dtype:
            raise UserError(
                f"{server} (rollout.servers) was started with head_dtype {head} in --hf-overrides, model.head_dtype is "
                f"{self._head_dtype}"
            )
        if model["max_model_len"] < self._max_model_len:
            raise UserError(
                f"{server} (rollout.servers) was started with --max-model-len {model['max_model_len']}, must be at "
                f"least {self._max_model_len}, the longest prompt and rollout.max_completion_length"
            )
        if settings["device_config"]["device"] == "cpu" and settings["scheduler_config"]["enable_chunked_prefill"]:
            raise UserError(
                f"{server} (rollout.servers) was started with chunked prefill, needs --no-enable-chunked-prefill: on a "
                "CPU vLLM cannot read the prompt of a seeded request in pieces"
            )
        modules = (await self._remote(session, server, "get_model_inspection"))["results"][0]
        embedding = re.search(r"embedding_dim=(\d+), org_vocab_size=(\d+)", modules)
        there = tuple(map(int, embedding.groups())) if embedding else None
        own = AutoConfig.from_pretrained(model_path, trust_remote_code=False).get_text_config()
        if there not in (None, (own.hidden_size, own.vocab_size)):
            raise UserError(
                f"{server} (rollout.servers) serves {model['model']}, of width {there[0]} with {there[1]} tokens, must "
                f"serve one of width {own.hidden_size} with {own.vocab_size} tokens, as {model_path} is"
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
        """See VllmEngine.generate; `entropies` is not looked at, as there are none. A prompt's responses come from one
        server, where its prefix is cached; the prompts take turns.

        Raises: UserError for a server that refuses, dies or falls silent.
        """
        if len(seeds) != len(prompts) * n:
            raise ValueError(f"{len(seeds)} seeds for {len(prompts) * n} responses")
        settings = {
            "n": 1,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": 0.0,  # what is not named here may come from the served model's generation_config.json
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": self._stop,
            "ignore_eos": True,  # of the server's tokenizer; ours are the stop tokens
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

        async def sample(session: aiohttp.ClientSession, index: int, i: int) -> Rollout:
            server = self._servers[(index + self._rank) % len(self._servers)]
            prompt = prompts[index]
            room = min(params.max_tokens, self._max_model_len - len(prompt))
            request = settings | {"prompt": prompt, "seed": seeds[index * n + i], "max_tokens": room}
            choice = (await self._call(session, server, "/v1/completions", request))["choices"][0]
            if choice["finish_reason"] not in ("stop", "length"):
                raise UserError(f"{server} (rollout.servers) ended a response with {choice['finish_reason']!r}")
            logprobs = choice["logprobs"]["token_logprobs"]
            rollout = Rollout(index, prompt, choice["token_ids"], logprobs, [], choice["finish_reason"] == "stop", i)
            if on_finished:
                on_finished(rollout)
            return rollout

        return self._talk(lambda session: [sample(session, p, i) for p in range(len(prompts)) for i in range(n)])

    def load_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Replaces the weights of all servers; see VllmEngine.load_weights. Collective: every rank runs `weights` to
        its end, rank 0 writes them and tells the servers, the others wait.

        Raises: UserError for a full disk, and for a server that cannot load what was written.
        """
        if self._rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            written = self._folder / uuid4().hex  # a new name: no machine has an older listing of it in its cache
            try:
                written.mkdir(parents=True)
                for number, tensors in enumerate(self._parts(as_saved(self._path, weights))):
                    save_file(tensors, written / f"{number:05}.safetensors")
            except (OSError, SafetensorError) as error:
                raise UserError(f"{written}: the weights cannot be written for rollout.servers ({error})") from error
            self._talk(lambda session: [self._reload(session, server, written) for server in self._servers])
            shutil.rmtree(self._folder)
        else:
            for _ in weights:
                pass
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def _parts(self, weights: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        """The weights in the servers' precision, as many at once as one file takes."""
        part, size = {}, 0
        for name, tensor in weights:
            part[name] = tensor.to("cpu", getattr(torch, self._dtype))
            size += part[name].nbytes
            if size >= FILE_BYTES:
                yield part
                part, size = {}, 0
        yield part

    async def _reload(self, session: aiohttp.ClientSession, server: str, written: Path) -> None:
        try:
            await self._remote(session, server, "reload_weights", weights_path=str(written))
        except UserError as error:  # vLLM's servers do not survive that
            raise UserError(
                f"{error}; it must see that folder under the same path and be of the same shape; start it anew"
            ) from error
        # else cached prefixes of the old weights are silently used
        cleared = await self._call(session, server, "/reset_prefix_cache", {})
        if not cleared["success"]:
            raise UserError(f"{server} (rollout.servers) keeps its prefix cache: somebody else is using it")

    def checksums(self) -> dict[Key, int]:
        """None: servers give no weights, so only the probe after a sync can find stale ones."""
        return {}

    def take_preemptions(self) -> int:
        """Unknown here; servers log them."""
        return 0

    def sleep(self) -> None:
        """Nothing to free: the servers have memory of their own."""

    def wake(self, tag: str) -> None:
        """Nothing to take back."""

    # --- the wire --------------------------------------------------------------------------------------------------

    def _talk(self, jobs: Callable[[aiohttp.ClientSession], list[Coroutine]]) -> list[Any]:
        """Runs the jobs together, in this thread, and returns what they return; the first that fails ends all.

        A request may take as long as it takes: what finds a server that hangs is asking, all the while, for its health.
        """

        async def run() -> list[Any]:
            limit = aiohttp.ClientTimeout(total=None, sock_connect=PULSES * PULSE_LIMIT_S)
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=self._at_once, force_close=True)
            async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
                async with asyncio.TaskGroup() as group:
                    pulses = [group.create_task(self._pulse(server)) for server in self._servers]
                    tasks = [group.create_task(job) for job in jobs(session)]
                    if tasks:
                        await asyncio.wait(tasks)
                    for pulse in pulses:
                        pulse.cancel()
                return [task.result() for task in tasks]

        try:
            return asyncio.run(run())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _pulse(self, server: str) -> None:
        """Ends only by the UserError of a server that has been silent for too long."""
        silent = 0
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True), timeout=aiohttp.ClientTimeout(total=PULSE_LIMIT_S)
        ) as session:
            while True:
                await asyncio.sleep(PULSE_S)
                try:
                    await self._call(session, server, "/health")
                    silent = 0
                except UserError:
                    silent += 1
                    if silent == PULSES:
                        raise

    async def _remote(self, session: aiohttp.ClientSession, server: str, method: str, **arguments: str) -> dict:
        """Calls a method of the server's workers."""
        return await self._call(session, server, "/collective_rpc", {"method": method, "kwargs": arguments})

    async def _call(self, session: aiohttp.ClientSession, server: str, path: str, body: dict | None = None) -> dict:
        """The JSON that the server answers to a POST of `body`, or to a GET where there is none; UserError else."""
        try:
            async with session.request("GET" if body is None else "POST", server + path, json=body) as answer:
                status, text = answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UserError(
                f"{server} (rollout.servers) does not answer ({str(error) or type(error).__name__})"
            ) from error
        if status == 404:
            raise UserError(
                f"{server} (rollout.servers) knows no {path.partition('?')[0]}: it must be vLLM's server, started with "
                "VLLM_SERVER_DEV_MODE=1"
            )
        if status != 200:
            raise UserError(f"{server} (rollout.servers) answered {path} with {status}: {_message(text)}")
        return json.loads(text or "{}")


def _message(text: str) -> str:
    """What an error answer says, in one line."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["error"]["message"]
    return " ".join(text.split())[:300]
