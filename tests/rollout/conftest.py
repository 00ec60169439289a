"""The engines of this folder on the same weights, which start once per test process, and runs with the first of them.

vLLM's asynchronous scheduling is the default on a GPU; on the CPU, where vLLM switches it off, it is switched on.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import pytest
import torch
from accelerate import Accelerator

from tests.helpers.models import save_random_model
from tests.helpers.rollouts import actor_of, build
from tests.helpers.small_run import same_run
from tests.helpers.training import train


class Nothing:
    """An event or a stream that has nothing to wait for."""

    device = torch.device("cpu")

    def __init__(self, *_, **__):
        self.record = self.synchronize = self.wait = self.wait_stream = self.wait_event = lambda *_: None


@contextmanager
def asynchronous_scheduling() -> Iterator[None]:
    """Asynchronous scheduling in engines that are built, and used, meanwhile."""
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker import cpu_model_runner

    check = CpuPlatform.check_and_update_config.__func__

    def force(platform, config):
        check(platform, config)
        config.scheduler_config.async_scheduling = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuPlatform, "check_and_update_config", classmethod(force))
        patch.setattr(cpu_model_runner, "_torch_cuda_wrapper", nullcontext)
        for module, name in ((torch, "Event"), (torch.cuda, "Event"), (torch.cuda, "Stream")):
            patch.setattr(module, name, Nothing)
        patch.setattr(torch.cuda, "current_stream", Nothing)
        patch.setattr(torch.cuda, "stream", nullcontext)
        yield


def start(path, *options, **settings):
    """An engine with a small cache and a tokenizer, and without the stop text that makes it load one."""
    engine = build(path, "rollout.kv_cache_gb=0.004", "rollout.stop=[x]", *options, **settings)
    engine.stop = []
    return engine


@pytest.fixture(scope="session")
def built_engines(tied_model):
    """The engines by name, and the environment that building them leaves. A full batch exceeds vLLM's KV cache."""
    Accelerator()  # as in training: vLLM would otherwise decide how processes are connected
    rng_state, names = torch.get_rng_state(), ("vllm", "transformers")
    with patch.dict(os.environ):
        engines = {name: start(tied_model, f"rollout.engine={name}", "rollout.max_num_seqs=48") for name in names}
        environment = dict(os.environ)
    assert torch.equal(torch.get_rng_state(), rng_state)
    return engines, environment


@pytest.fixture(scope="module")
def engines(built_engines):
    """The engines by name. The environment is vLLM's while the tests of a module run.

    Another vLLM must live as long as the first, with which it shares process groups, so it is put here too.
    """
    with patch.dict(os.environ, built_engines[1], clear=True):
        yield built_engines[0]


@pytest.fixture
def asynchronous(engines, tied_model):
    """A vLLM whose next step is scheduled before the tokens of the last one are known."""
    with asynchronous_scheduling():
        if "asynchronous" not in engines:
            engines["asynchronous"] = start(tied_model, "rollout.max_num_seqs=8")
        assert engines["asynchronous"].llm.llm_engine.vllm_config.scheduler_config.async_scheduling
        yield engines["asynchronous"]


def one_of(*names: str):
    """A fixture: each of these engines."""

    @pytest.fixture(params=names)
    def chosen(request, engines):
        return request.getfixturevalue(request.param) if request.param == "asynchronous" else engines[request.param]

    return chosen


engine, vllm = one_of("vllm", "transformers"), one_of("vllm", "asynchronous")
any_engine = one_of("vllm", "asynchronous", "transformers")


@pytest.fixture(scope="session")
def other_model(tmp_path_factory):
    """The architecture of `tied_model` with other weights."""
    return save_random_model(tmp_path_factory.mktemp("other") / "model", seed=7)


@pytest.fixture
def train_and_resume(engines, tied_model, tmp_path, monkeypatch):
    """(overlays, options, step) -> metrics of a run on vLLM; a run resumed from the checkpoint of `step` is the same.

    The directories are tmp_path / "run" and tmp_path / "again".
    """
    monkeypatch.setattr("d3s.trainer.build_engine", lambda *_, **__: engines["vllm"])
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def run(overlays, options, step):
        options = ["rollout.engine=vllm", *options]
        _, metrics = train(tied_model, tmp_path / "run", overlays, options)
        shutil.copytree(tmp_path / "run", tmp_path / "again")
        checkpoint = tmp_path / f"again/checkpoints/step_{step:06}"
        train(tied_model, tmp_path / "again", overlays, options, checkpoint=checkpoint)
        assert same_run(tmp_path / "run", tmp_path / "again")
        return metrics

    yield run
    engines["vllm"].load_weights(actor_of(tied_model).weights())
