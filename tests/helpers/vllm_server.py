"""A real vLLM server, started as docs/scaling.md says, for the tests of rollouts over HTTP."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.helpers.command_line import ROOT, environment, kill_group


@contextmanager
def servers(model: Path, count: int, log_folder: Path, max_model_len: int):
    """(address, process) of each of `count` servers on the CPU, started side by side; they end with the context."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            log = stack.enter_context((log_folder / f"server{port}.log").open("w"))
            process = _start(model, port, log, max_model_len)
            stack.callback(_end, process)
            started.append((f"http://127.0.0.1:{port}", process))
        for address, process in started:
            _wait(address, process, log_folder)
        yield started


def _start(model: Path, port: int, log, max_model_len: int) -> subprocess.Popen:
    settings = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--logprobs-mode", "processed_logprobs", "--max-model-len", str(max_model_len)]
    command += ["--no-enable-chunked-prefill", "--block-size", "32", "--kv-cache-memory-bytes", str(2**25)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment("single") | settings,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: subprocess.Popen) -> None:
    process.terminate()  # it frees the memory that it shares with its engine
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    kill_group(process)


def _wait(address: str, process: subprocess.Popen, log_folder: Path) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(address + "/health", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                texts = "\n".join(path.read_text()[-2000:] for path in log_folder.glob("server*.log"))
                raise AssertionError(f"no server came up:\n{texts}") from None
            time.sleep(0.2)
