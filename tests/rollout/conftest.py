"""Both in-process engines on the same weights, for this folder: vLLM starts once per test process."""

import os

import pytest
import torch
from accelerate import Accelerator

from d3s.config.load import load_config
from d3s.rollout import build_engine
from tests.helpers.async_scheduling import asynchronous_scheduling
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import MAX_LENGTH


@pytest.fixture(scope="session")
def built_engines(tied_model):
    """The engines by name, and the environment that building them leaves. A full batch exceeds vLLM's KV cache.

    rollout.stop makes them load the tokenizer; no stop text is set until a test sets one.
    """
    Accelerator()  # as in training: vLLM would otherwise decide how processes are connected
    environment, rng_state = dict(os.environ), torch.get_rng_state()
    engines = {}
    for name in ("vllm", "transformers"):
        options = [f"rollout.engine={name}", "rollout.kv_cache_gb=0.004", "rollout.max_num_seqs=48", "rollout.stop=[x]"]
        config = load_config([], options).rollout
        engines[name] = build_engine(str(tied_model), config, dtype="float32", max_model_len=MAX_LENGTH, seed=0)
        engines[name].stop = []
    assert torch.equal(torch.get_rng_state(), rng_state)
    vllm_environment = dict(os.environ)
    replace_environment(environment)
    return engines, vllm_environment


@pytest.fixture(scope="module")
def engines(built_engines):
    """The engines by name. The environment is vLLM's while the tests of a module run."""
    engines, vllm_environment = built_engines
    environment = dict(os.environ)
    replace_environment(vllm_environment)
    yield engines
    replace_environment(environment)


@pytest.fixture(scope="session")
def built_half_engine(built_engines, tied_model):
    """A second vLLM, in bfloat16 with logits in float32. It lives as long as the first: both share process groups."""
    config = load_config([], ["rollout.kv_cache_gb=0.004", "rollout.max_num_seqs=8"]).rollout
    settings = {"dtype": "bfloat16", "max_model_len": MAX_LENGTH, "seed": 0, "head_dtype": "float32"}
    environment = dict(os.environ)
    replace_environment(built_engines[1])
    engine = build_engine(str(tied_model), config, **settings)
    replace_environment(environment)
    return engine


@pytest.fixture(scope="session")
def built_asynchronous(built_engines, tied_model):
    """One more vLLM. It lives as long as the first: both share process groups."""
    options = ["rollout.kv_cache_gb=0.004", "rollout.max_num_seqs=8", "rollout.stop=[x]"]
    environment = dict(os.environ)
    replace_environment(built_engines[1])
    with asynchronous_scheduling():
        config = load_config([], options).rollout
        engine = build_engine(str(tied_model), config, dtype="float32", max_model_len=MAX_LENGTH, seed=0)
    replace_environment(environment)
    engine.stop = []
    return engine


@pytest.fixture
def asynchronous(engines, built_asynchronous):
    """The engine, whose next step is scheduled before the tokens of the last one are known."""
    assert built_asynchronous.llm.llm_engine.vllm_config.scheduler_config.async_scheduling
    with asynchronous_scheduling():
        yield built_asynchronous


@pytest.fixture
def half_engine(engines, built_half_engine):
    """The second vLLM, in the first one's environment."""
    return built_half_engine


@pytest.fixture(params=["vllm", "transformers"])
def engine(request, engines):
    """Each of the two engines."""
    return engines[request.param]


@pytest.fixture(scope="session")
def other_model(tmp_path_factory):
    """The architecture of `tied_model` with other weights."""
    return save_random_model(tmp_path_factory.mktemp("other") / "model", seed=7)


def replace_environment(environment: dict[str, str]) -> None:
    """Set exactly these environment variables."""
    os.environ.clear()
    os.environ.update(environment)
