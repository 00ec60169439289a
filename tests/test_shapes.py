"""Sizes of models, against transformers and by hand."""

import json

import pytest
import torch

from d3s.common import UserError
from d3s.flops import ModelShape
from d3s.shapes import SHIPPED, find_shape


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_equal_those_of_transformers(kind, tied):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "vocab_size": 131, "tie_word_embeddings": tied,
    }  # fmt: skip
    sizes |= {"head_dim": 32} if kind == "qwen3" else {}
    config = AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = ModelShape.of(json.loads(config.to_json_string(use_diff=False)))
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_shapes_are_found_or_unknown_or_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "mamba"}')
    assert [find_shape(name) for name in (str(tmp_path), "no such model", "some/model-that-is-not-here")] == [None] * 3
    assert {name: find_shape(name) for name in SHIPPED} == SHIPPED
    for content in (b"{", b"[1]", b'{"model_type": "qwen2"}', b"\xff"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"^{path}: .*model's config\.json"):
            find_shape(str(tmp_path))
