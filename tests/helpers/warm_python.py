"""A Python that has imported torch, transformers, DeepSpeed and vLLM: command lines run in forks of it.

The imports take most of a short run. A fork runs the program that the command line names, in its environment; also
torchrun and accelerate launch, whose ranks are forks in turn.
"""

import gc
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from ctypes import CDLL
from functools import cache
from pathlib import Path

RANK_STARTER = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
RENDEZVOUS = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
MODULES = (
    "d3s.trainer", "d3s.rollout.transformers_engine", "d3s.rollout.vllm_engine", "deepspeed",
    "deepspeed.runtime.zero.muon.muon_optimizer", "torch.distributed.run", RENDEZVOUS,
    "transformers.models.qwen2.modeling_qwen2", "accelerate.commands.launch", RANK_STARTER, "vllm.entrypoints.llm",
    "vllm.v1.engine.core", "vllm.v1.engine.utils", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.qwen2",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
SET_CHILD_SUBREAPER = 36  # prctl: processes whose parent ends become children of this one
output_pipes = set()  # as /proc/PID/fd names them


def environment() -> dict[str, str]:
    """Environment variables: one thread per process, no network, no variables of another launch."""
    launched = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "ACCELERATE_USE_CPU")
    clean = {k: v for k, v in os.environ.items() if k not in launched}
    return clean | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}


class Fork(subprocess.Popen):
    """A process that this one did not start itself, with the methods of subprocess.Popen."""

    def __init__(self, pid: int, stdout: int | None = None) -> None:
        self.pid, self.returncode, self.args, self.text_mode = pid, None, [], True
        self.stdin, self.stdout, self.stderr = None, None if stdout is None else os.fdopen(stdout), None
        self._child_created, self._communication_started, self._input = True, False, None
        self._waitpid_lock, self._sigint_wait_secs = threading.Lock(), 0.25


@cache
def _control() -> socket.socket:
    """Start the Python that has imported everything; the socket that it reads. It ends with this process."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.helpers.warm_python", str(there.fileno())]
    variables = {name: value for name, value in environment().items() if name != "D3S_TEST"}  # of one test
    subprocess.Popen(command, cwd=ROOT, env=variables, pass_fds=[there.fileno()], start_new_session=True)
    there.close()
    return here


def start_fork(arguments: list[str]) -> Fork:
    """Start a command line of Python in a new session, in the root of the repository, and capture its output."""
    reader, writer = os.pipe()
    output_pipes.add(os.readlink(f"/proc/self/fd/{reader}"))
    libc, control = CDLL(None), _control()
    libc.prctl(SET_CHILD_SUBREAPER, 1)
    socket.send_fds(control, [json.dumps([arguments, environment()]).encode()], [writer])
    os.close(writer)
    pid = int(control.recv(64))
    libc.prctl(SET_CHILD_SUBREAPER, 0)
    return Fork(pid, reader)


def fork(arguments: list[str], variables: dict[str, str], stdout: int | None = None) -> int:
    """Run a command line in a child with its own session, as `python ARGUMENTS` would. Return its id."""
    if child := os.fork():
        return child
    code = 1
    try:
        os.setsid()
        if stdout is not None:
            os.dup2(stdout, 1)
            os.dup2(stdout, 2)
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(variables)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = execute(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def execute(arguments: list[str]) -> int:
    """Run the script, or the module after -m, of a command line. Return the exit code of a process that does so."""
    words = [word for word in arguments[:2] if word not in (sys.executable, "-u")] + arguments[2:]
    module = words[0] == "-m"
    sys.argv = words[module:]
    sys.path[0] = str(ROOT) if module else str(Path(words[0]).resolve().parent)
    try:
        if module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def serve(control: socket.socket) -> None:
    """Import everything, then start a fork for each request, whose parent ends so that who asked adopts it."""
    from d3s.common import silence_libraries
    from d3s.rollout.vllm_setup import vllm_environment

    silence_libraries()
    os.environ.update(vllm_environment())
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()  # else the first collection in a fork copies every page
    # torchrun names a log event by a search of the stack among thousands of modules, 2 s of each launch
    sys.modules[RENDEZVOUS].get_method_name = lambda depth=2: "not searched"
    # on a CPU vLLM starts the engine of a server by spawn, which would import everything again
    sys.modules["vllm.v1.engine.utils"].get_mp_context = lambda: multiprocessing.get_context("fork")
    # ranks of torchrun and accelerate
    sys.modules[RANK_STARTER].Popen = lambda args, env, **_: Fork(fork(list(args), env))
    while request := socket.recv_fds(control, 2**20, 1):
        message, descriptors, *_ = request
        if not message:
            return
        reader, writer = os.pipe()
        if between := os.fork():
            os.close(writer)
            os.waitpid(between, 0)
            control.send(os.read(reader, 64))
            for descriptor in (reader, *descriptors):
                os.close(descriptor)
        else:
            os.write(writer, str(fork(*json.loads(message), *descriptors)).encode())
            os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
