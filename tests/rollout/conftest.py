"""Both in-process engines on the same weights, for this folder: vLLM starts once per test process."""

import os
import shutil
from unittest.mock import patch

import pytest
import torch
from accelerate import Accelerator

from d3s.config.load import load_config
from d3s.rollout import build_engine
from tests.helpers.async_scheduling import asynchronous_scheduling
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import MAX_LENGTH, actor_of
from tests.helpers.small_run import same_run
from tests.helpers.training import train


def build(path, *options, **settings):
    """An engine with a tokenizer, and without the stop text that makes it load one."""
    config = load_config([], ["rollout.kv_cache_gb=0.004", "rollout.stop=[x]", *options]).rollout
    settings = {"dtype": "float32", "max_model_len": MAX_LENGTH, "seed": 0} | settings
    engine = build_engine(str(path), config, **settings)
    engine.stop = []
    return engine


@pytest.fixture(scope="session")
def built_engines(tied_model):
    """The engines by name, and the environment that building them leaves. A full batch exceeds vLLM's KV cache."""
    Accelerator()  # as in training: vLLM would otherwise decide how processes are connected
    rng_state, names = torch.get_rng_state(), ("vllm", "transformers")
    with patch.dict(os.environ):
        engines = {name: build(tied_model, f"rollout.engine={name}", "rollout.max_num_seqs=48") for name in names}
        environment = dict(os.environ)
    assert torch.equal(torch.get_rng_state(), rng_state)
    return engines, environment


@pytest.fixture(scope="module")
def engines(built_engines):
    """The engines by name. The environment is vLLM's while the tests of a module run."""
    with patch.dict(os.environ, built_engines[1], clear=True):
        yield built_engines[0]


@pytest.fixture(scope="session")
def half_engine(built_engines, tied_model):
    """A second vLLM, in bfloat16 with logits in float32. It lives as long as the first: both share process groups."""
    with patch.dict(os.environ, built_engines[1], clear=True):
        return build(tied_model, "rollout.max_num_seqs=8", dtype="bfloat16", head_dtype="float32")


@pytest.fixture(scope="session")
def built_asynchronous(built_engines, tied_model):
    """One more vLLM. It lives as long as the first: both share process groups."""
    with patch.dict(os.environ, built_engines[1], clear=True), asynchronous_scheduling():
        return build(tied_model, "rollout.max_num_seqs=8")


@pytest.fixture
def asynchronous(engines, built_asynchronous):
    """The engine, whose next step is scheduled before the tokens of the last one are known."""
    assert built_asynchronous.llm.llm_engine.vllm_config.scheduler_config.async_scheduling
    with asynchronous_scheduling():
        yield built_asynchronous


def one_of(*names: str):
    """A fixture: each of these engines."""

    @pytest.fixture(params=names)
    def chosen(request, engines):
        return engines.get(request.param) or request.getfixturevalue(request.param)

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
