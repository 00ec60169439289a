"""A vLLM server on the CPU with the settings of docs/running.md, and a second address of it."""

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from unittest.mock import patch

from d3s.rollout.vllm_setup import vllm_environment
from tests.helpers.command_line import finish, free_port, kill_group, start
from tests.helpers.warm_python import output_pipes

FORWARDER = """
import asyncio, sys

async def copy(reader, writer):
    while part := await reader.read(65536):
        writer.write(part)
    writer.close()

async def forward(reader, writer):
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))

async def main():
    await (await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[1]))).serve_forever()

asyncio.run(main())
"""


@contextmanager
def server(model: Path, max_model_len: int) -> Iterator[str]:
    """Start a server; yield its address. It ends with the context."""
    port = free_port()
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--logprobs-mode", "processed_logprobs", "--max-model-len", str(max_model_len)]
    command += ["--no-enable-chunked-prefill", "--block-size", "32", "--kv-cache-memory-bytes", str(2**25)]
    command += ["--uvicorn-log-level", "error", "--disable-log-stats"]  # nobody reads its output
    pipes = set(output_pipes)
    # as in a run, whose engine has no worker process; on the CPU these would import vLLM once more
    with patch.dict("os.environ", vllm_environment() | {"VLLM_SERVER_DEV_MODE": "1"}):
        process = start(command)
    output_pipes.intersection_update(pipes)  # it outlives the test that starts it
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process)
        yield address
    finally:
        process.terminate()  # a killed server would not free the memory that it shares with its engine
        with suppress(TimeoutExpired):
            process.wait(timeout=10)
        kill_group(process)


@contextmanager
def second_address(address: str) -> Iterator[tuple[str, Popen]]:
    """Yield an address that leads to the same server, and the process that forwards the bytes."""
    port = free_port()
    process = Popen([sys.executable, "-c", FORWARDER, str(port), address.rpartition(":")[2]], stderr=DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def _wait(address: str, process) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(address + "/health", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no server started:\n{finish(process, 1)[1][-2000:]}") from None
            time.sleep(0.2)
