"""KL divergence of a trained policy from its base model."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from d3s.config.load import load_config
from d3s.config.schema import Config, RolloutConfig
from d3s.data.problems import load_problems
from d3s.data.prompts import ChatOptions, encode_prompts
from d3s.pretrained import load_pretrained
from d3s.rollout import build_engine
from d3s.rollout.engine import SamplingParams
from d3s.tiny import find_model

RESPONSES = 16  # of a forward pass


# KL(pi || pi_ref) = 1/T sum_t sum_v pi(v | y_<t) log( pi(v | y_<t) / pi_ref(v | y_<t) ),   y sampled from pi
def mean_kl(logits: Tensor, ref_logits: Tensor) -> float:
    """Mean KL in nats over the rows of two logit tensors [T, V], exact over the vocabulary."""
    logprobs, ref_logprobs = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return (logprobs.exp() * (logprobs - ref_logprobs)).sum(-1).mean().item()


def kl_to_base(run: Path) -> dict[int, float]:
    """KL(trained || base) in nats per token by training step: 0 at first, at the checkpoints that exist, at the end.

    The values are stored in the run directory and computed once.
    """
    stored = run / "kl_to_base.json"
    if not stored.exists():
        config = load_config([run / "config.yaml"])
        values = {0: 0.0, config.train.steps: _divergence(config, run / "model")}
        for folder in sorted(run.glob("checkpoints/step_*")):
            with TemporaryDirectory() as model:
                shutil.copytree(run / "model", model, dirs_exist_ok=True)
                shutil.copy(folder / "model.safetensors", model)
                values.setdefault(int(folder.name.removeprefix("step_")), _divergence(config, Path(model)))
        stored.write_text(json.dumps(values))
    return {int(step): value for step, value in json.loads(stored.read_text()).items()}


@torch.no_grad()
def _divergence(config: Config, model: Path) -> float:
    """The divergence over one response of the model to each evaluation problem."""
    from transformers import AutoModelForCausalLM

    limit = config.rollout.max_completion_length
    base = find_model(config.model.name)
    tokenizer, prompt_budget = load_pretrained(base, limit)
    problems = load_problems(config.eval.data[0], split=config.eval.split, limit=config.eval.limit, sampled=True)
    chat = ChatOptions(config.data.system_prompt, config.data.chat_template_kwargs)
    prompts = encode_prompts(problems, config.data.template, tokenizer, prompt_budget, chat=chat).ids
    settings, longest = RolloutConfig(engine="transformers"), prompt_budget + limit
    engine = build_engine(str(model), settings, dtype="float32", max_model_len=longest, seed=0)
    rollouts = engine.generate(prompts, 1, SamplingParams(max_tokens=limit), list(range(len(prompts))), entropies=False)
    width = max(len(r.prompt_ids) + len(r.response_ids) for r in rollouts)
    ids = torch.tensor([(r.prompt_ids + r.response_ids + [0] * width)[:width] for r in rollouts])
    predicts_response = torch.zeros_like(ids, dtype=torch.bool)  # positions whose next token is a response token
    for row, r in zip(predicts_response, rollouts):
        row[len(r.prompt_ids) - 1 :][: len(r.response_ids)] = True
    models = [AutoModelForCausalLM.from_pretrained(m, use_safetensors=True) for m in (model, base)]
    total, rows = 0.0, 0
    for part, mask in zip(ids.split(RESPONSES), predicts_response.split(RESPONSES)):  # a large vocabulary needs memory
        logits = [lm(part).logits[mask].float() for lm in models]
        total, rows = total + mean_kl(*logits) * len(logits[0]), rows + len(logits[0])
    return total / rows
