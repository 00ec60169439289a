"""Shared fixtures: tiny random models, a finished run, refused command lines, leftover processes."""

import gc
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers.models import save_random_model
from tests.helpers.warm_python import output_pipes

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, and some tests send
# The same examples in every run, without a time limit for slow machines.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

TESTS = Path(__file__).parent
SLOWEST_FIRST = [
    "end_to_end/test_resume.py", "actor/test_compile.py", "rollout/test_engine.py", "verifier/test_hostile_answers.py",
    "verifier/test_benchmark_golds.py", "verifier/test_pool.py", "test_patterns.py",
]  # fmt: skip
# Files that start vLLM in the test process, and files that start forks of a warm Python (helpers/warm_python.py).
VLLM = re.compile(r"rollout/test_(engine|strategies|vllm_engine)\.py")
FORKS = re.compile(r"command_line import .*\b(complete|run|start)\b|run_with_fault|finished_runs|vllm_server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the slowest files first, so that workers that take one file at a time finish together."""
    missing = [name for name in SLOWEST_FIRST if not (TESTS / name).exists()]
    assert not missing, f"tests/conftest.py: SLOWEST_FIRST names missing files: {missing}"
    places = {TESTS / name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Leave the objects of all imports out of garbage collections, which the actor asks for when memory runs out."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """With --dist loadfile, one worker starts vLLM in its process, once, and one the warm Python, which takes 30 s."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            forks = FORKS.search((TESTS.parent / file).read_text())
            return "vllm" if VLLM.search(file) else "forks" if forks else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that are marked `gpu` without a CUDA device."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture
def without_generated_code(monkeypatch):
    """Compiled layers are traced, and run by PyTorch's own kernels."""
    from torch.nn import Module

    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)  # of vLLM in the same process
    monkeypatch.setattr(Module, "compile", partialmethod(Module.compile, backend="eager"))


@pytest.fixture(params=["cpu", "pretended", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> str:
    """The device of this test's actors and policies: the CPU, a pretended GPU, and a GPU where there is one."""
    if request.param == "pretended":
        request.getfixturevalue("pretended")
    else:
        request.getfixturevalue("monkeypatch").setenv("ACCELERATE_USE_CPU", str(request.param == "cpu").lower())
    with new_accelerator_state():
        yield "cpu" if request.param == "cpu" else "cuda"


@pytest.fixture
def pretended(monkeypatch):
    """A pretended GPU, see helpers/pretended_device.py; the device of every accelerator that the test makes."""
    from tests.helpers.pretended_device import pretended_device

    monkeypatch.setenv("ACCELERATE_USE_CPU", "false")
    with new_accelerator_state(), pretended_device() as device:
        yield device


@contextmanager
def new_accelerator_state() -> Iterator[None]:
    """Let accelerate choose its device anew, here and afterwards."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.fixture(scope="session")
def tied_model(tmp_path_factory) -> Path:
    """A random model whose head is the embedding."""
    return save_random_model(tmp_path_factory.mktemp("tied") / "model", seed=0)


@pytest.fixture(scope="session")
def gqa_model(tmp_path_factory) -> Path:
    """A random model with a separate head, and two query heads for one key-value head."""
    path = tmp_path_factory.mktemp("gqa") / "model"
    return save_random_model(path, seed=1, tie_word_embeddings=False, num_key_value_heads=1)


@pytest.fixture(params=["tied", "gqa"])
def model_path(request, tied_model, gqa_model) -> Path:
    """Each of the two random models in turn."""
    return {"tied": tied_model, "gqa": gqa_model}[request.param]


@pytest.fixture(scope="session")
def base_model() -> Path:
    """The demo's base model: a third of its answers are right."""
    from d3s.tiny import ensure_base

    return ensure_base("tiny:precedence").resolve()


@pytest.fixture(scope="session")
def finished_runs(tied_model, tmp_path_factory):
    """finished_runs(launcher): the directory of a run without a fault (helpers/small_run.py), trained once."""
    from functools import cache

    from tests.helpers.command_line import complete
    from tests.helpers.small_run import arguments

    @cache
    def finished(launcher: str) -> Path:
        folder = tmp_path_factory.mktemp(launcher) / "run"
        complete(arguments(tied_model, folder), launcher)
        return folder

    return finished


@pytest.fixture
def refusal(monkeypatch):
    """refusal(arguments) runs train.py or train_sft.py in this process, which saves the imports: its UserError."""
    from d3s import trainer
    from d3s.commands import sft, train
    from d3s.common import UserError

    create, created = trainer.RewardFunction, []

    def recording_create(*arguments):
        created.append(create(*arguments))
        return created[-1]

    def run(arguments: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(UserError) as refused:
            {"train.py": train, "train_sft.py": sft}[arguments[0]].main()
        assert "\n" not in str(refused.value)
        return str(refused.value)

    monkeypatch.setattr(trainer, "RewardFunction", recording_create)
    yield run
    for reward_function in created:  # a refused run does not close them
        reward_function.close()


@pytest.fixture
def no_process_stays(tmp_path, monkeypatch):
    """At the end, no process is left that has the test's environment variable or the output of a command line."""
    monkeypatch.setenv("D3S_TEST", str(tmp_path))
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "15")
    yield
    deadline = time.monotonic() + 15  # verifier workers end with the link to them
    while (running := marked_processes(f"D3S_TEST={tmp_path}".encode())) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not running


def marked_processes(mark: bytes) -> list[str]:
    """Command lines of the running processes that carry the mark, or write where forks write, except this one."""
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (folder / "environ").read_bytes()
            marked = marked or os.readlink(folder / "fd/1") in output_pipes
            if marked and int(folder.name) != os.getpid():
                commands.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or belongs to another user
            continue
    return [command for command in commands if command]  # the command line of a zombie is empty
