"""Fixtures that several test files share: tiny models with random weights, saved as transformers and vLLM load
them; a finished run; a look for processes that were left; and how hypothesis draws."""

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers.models import save_random_model

settings.register_profile(
    "suite", deadline=None, derandomize=True
)  # the same examples in every run, on slow machines too
settings.load_profile("suite")

SLOWEST_FIRST = [
    "server_engine",
    "faults",
    "resume",
    "ranks",
    "scaling",
    "eval",
    "train",
    "hostile_answers",
    "vllm_engine",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first, so that two workers that take file by file end together."""
    places = {f"test_{name}": place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def tied_model(tmp_path_factory) -> Path:
    """The head is the embedding."""
    return save_random_model(tmp_path_factory.mktemp("tied") / "model", seed=0)


@pytest.fixture(scope="session")
def gqa_model(tmp_path_factory) -> Path:
    """A head of its own, and two query heads to one key-value head."""
    path = tmp_path_factory.mktemp("gqa") / "model"
    return save_random_model(path, seed=1, tie_word_embeddings=False, num_key_value_heads=1)


@pytest.fixture(params=["tied", "gqa"])
def model_path(request, tied_model, gqa_model) -> Path:
    """Each of the two random models."""
    return {"tied": tied_model, "gqa": gqa_model}[request.param]


@pytest.fixture(scope="session")
def weak_base() -> Path:
    """An embedded base model after a short warm-up: it writes boxed answers, right now and then. Kept between runs."""
    from d3s.tiny import ensure_base

    return ensure_base("tiny:precedence", steps=150).resolve()


@pytest.fixture(scope="session")
def finished_runs(tied_model, tmp_path_factory):
    """finished_runs(launcher) is the folder of an uninterrupted small_run, made once."""
    from functools import cache

    from tests.helpers.command_line import run
    from tests.helpers.small_run import arguments

    @cache
    def finished(launcher: str) -> Path:
        folder = tmp_path_factory.mktemp(launcher) / "run"
        code, output = run(arguments(tied_model, folder), launcher)
        assert code == 0, output
        return folder

    return finished


@pytest.fixture
def refusal(monkeypatch):
    """refusal(arguments) is the sentence with which train.py refuses them, in this process, which saves the imports."""
    import train
    from d3s import trainer
    from d3s.common import UserError

    scorers = []

    def scorer(*arguments):  # one that a refused run leaves behind
        scorers.append(trainer_scorer(*arguments))
        return scorers[-1]

    def refused(arguments: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(UserError) as caught:
            train.main()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    trainer_scorer = trainer.RewardFunction
    monkeypatch.setattr(trainer, "RewardFunction", scorer)
    yield refused
    for left in scorers:
        left.close()


@pytest.fixture
def no_process_stays(tmp_path, monkeypatch):
    """Marks every process that the test starts, through the environment, and looks for the mark at the end."""
    monkeypatch.setenv("D3S_TEST", str(tmp_path))
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "15")
    yield
    deadline = time.monotonic() + 15  # a verifier worker ends when it has read to the end of its pipe
    while (left := marked(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left


def marked(mark: str) -> list[str]:
    """Command lines of the processes that carry the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"D3S_TEST={mark}".encode() in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # ended meanwhile, or not ours
            continue
    return [command for command in found if command]  # a process that has ended and was not waited for has none
