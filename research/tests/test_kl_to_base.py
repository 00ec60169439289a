"""The KL divergence from the base model, against torch's divergences of each response without padding."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributions import Categorical, kl_divergence

from d3s.config.load import dump_config
from research.jobs import config_of
from research.kl_to_base import kl_to_base, mean_kl


def test_mean_kl_matches_torch_distributions():
    own, ref = (torch.randn(7, 11, generator=torch.Generator().manual_seed(i)) for i in range(2))
    expected = kl_divergence(Categorical(logits=own), Categorical(logits=ref)).mean().item()
    assert mean_kl(own, ref) == pytest.approx(expected, rel=1e-5) and expected > 0.1


def kl_without_padding(model: Path, base: Path) -> float:
    """Mean divergence over the response tokens of two problems, one response at a time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from d3s.config.schema import RolloutConfig
    from d3s.data.problems import load_problems
    from d3s.rollout import build_engine
    from d3s.rollout.engine import SamplingParams

    problems = load_problems("synthetic:precedence", split="validation", limit=2)
    prompts = AutoTokenizer.from_pretrained(base)([p.problem for p in problems]).input_ids
    settings = RolloutConfig(engine="transformers")
    engine = build_engine(str(model), settings, dtype="float32", max_model_len=256, seed=0)
    rollouts = engine.generate(prompts, 1, SamplingParams(max_tokens=8), [0, 1])
    models = [AutoModelForCausalLM.from_pretrained(path) for path in (model, base)]
    values = []
    for r in rollouts:
        ids = torch.tensor([r.prompt_ids + r.response_ids])
        own, ref = (Categorical(logits=m(ids).logits[0, len(r.prompt_ids) - 1 : -1]) for m in models)
        values.append(kl_divergence(own, ref))
    return torch.cat(values).mean().item()


def test_kl_to_base_matches_unpadded_responses(tied_model, gqa_model, tmp_path):
    trained = (f"model.name={tied_model}", "eval.limit=2", "rollout.max_completion_length=8")
    dump_config(config_of(trained), tmp_path / "config.yaml")
    shutil.copytree(gqa_model, tmp_path / "model")  # in place of a trained model
    expected = kl_without_padding(tmp_path / "model", tied_model)
    checkpoint = tmp_path / "checkpoints" / "step_000012"
    checkpoint.mkdir(parents=True)
    halves = {name: tensor / 2 for name, tensor in load_file(gqa_model / "model.safetensors").items()}
    save_file(halves, checkpoint / "model.safetensors")
    values = kl_to_base(tmp_path)
    assert values[48] == pytest.approx(expected, rel=1e-3) and expected > 0.1
    assert values[0] == 0 and sorted(values) == [0, 12, 48] and values[12] != values[48]
    (tmp_path / "kl_to_base.json").write_text(json.dumps({"0": 0.5}))
    assert kl_to_base(tmp_path) == {0: 0.5}  # stored values are not computed again
