"""Real vLLM servers on the CPU, started as docs/running.md says, and the engine that uses them."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from d3s.config.load import load_config
from d3s.rollout import build_engine
from d3s.rollout.server_engine import ServerEngine
from d3s.rollout.vllm_setup import vllm_environment
from tests.helpers.command_line import ROOT, environment, kill_group
from tests.helpers.rollouts import MAX_LENGTH


def engine_of(addresses: list[str], model: Path, folder: Path, *options: str) -> ServerEngine:
    """The engine of a run that uses the servers at these addresses."""
    servers = f"rollout.servers=[{','.join(addresses)}]"
    config = load_config([], [servers, "selector.entropy_source=actor", *options]).rollout
    settings = {"dtype": "float32", "max_model_len": MAX_LENGTH, "seed": 0, "weights_folder": folder / "weights"}
    return build_engine(str(model), config, **settings)


@contextmanager
def servers(model: Path, count: int, log_folder: Path, max_model_len: int):
    """Start `count` servers at once; yield the (address, process) of each. They end with the context."""
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
    shared = ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_NO_USAGE_STATS", "TORCHDYNAMO_DISABLE")
    settings = {name: value for name, value in vllm_environment().items() if name in shared}
    settings["VLLM_SERVER_DEV_MODE"] = "1"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--logprobs-mode", "processed_logprobs", "--max-model-len", str(max_model_len)]
    command += ["--no-enable-chunked-prefill", "--block-size", "32", "--kv-cache-memory-bytes", str(2**25)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment() | settings,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: subprocess.Popen) -> None:
    process.terminate()  # a killed server would not free the memory that it shares with its engine
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
                raise AssertionError(f"no server started:\n{texts}") from None
            time.sleep(0.2)
