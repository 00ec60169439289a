"""Which engine `build_engine` builds, against the configuration."""

import pytest

from d3s.config.load import load_config
from d3s.rollout import build_engine

ENGINES = {
    "d3s.rollout.vllm_engine:VllmEngine": ([], {"seed": 3}),
    "d3s.rollout.transformers_engine:TransformersEngine": (["rollout.engine=transformers"], {}),
    "d3s.rollout.server_engine:ServerEngine": (
        ["rollout.servers=[http://a:1]", "selector.entropy_source=actor"],
        {"weights_folder": "weights"},
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_configuration_decides_the_engine(name, monkeypatch):
    """Every engine gets the common settings and its own."""
    options, own = ENGINES[name]
    module, attribute = name.split(":")
    monkeypatch.setattr(f"{module}.{attribute}", lambda *arguments, **settings: (name, arguments, settings))
    config = load_config([], options).rollout
    common = {"dtype": "float32", "max_model_len": 192, "head_dtype": "float32"}
    built = build_engine("some/model", config, **common, seed=3, weights_folder="weights")
    assert built == (name, ("some/model", config), common | own)
