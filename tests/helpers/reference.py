"""Reference for the actor: transformers on one sequence at a time, losses as loops over tokens.

It computes the logits of every position and takes log-softmax over the vocabulary; autograd gives the gradients.
"""

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from d3s.config.schema import Config
from d3s.loss import LOSS_RULES, Stats
from d3s.packing import Batch

ARGUMENTS = ("logprobs", "old_logprobs", "advantages", "sequence_log_ratio", "clip", "denominator")


def compute_loss(kind: str, *values: object) -> tuple[Tensor, Stats]:
    """The loss under test that loss.kind names, of ARGUMENTS; the clip is (epsilon, epsilon_high)."""
    arguments = dict(zip(ARGUMENTS, values, strict=True))
    arguments["epsilon"], arguments["epsilon_high"] = arguments.pop("clip")
    return LOSS_RULES.rule(kind)(**arguments)


def load_reference(path: Path) -> PreTrainedModel:
    """The model at `path` in float32, with attention as plain matrix products."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")


def vocabulary_logprobs(model: PreTrainedModel, batch: Batch, temperature: float) -> list[Tensor]:
    """Of each sequence, the log-probabilities of the vocabulary before each of its R response tokens, [R, V]."""
    tables = []
    for prompt, response in zip(batch.prompts, batch.responses):
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        tables.append((logits / temperature).log_softmax(-1))
    return tables


def response_logprobs(tables: list[Tensor], batch: Batch) -> list[Tensor]:
    """Of each sequence, the log-probabilities of its response tokens, [R]."""
    return [table.gather(1, torch.tensor(r)[:, None])[:, 0] for table, r in zip(tables, batch.responses)]


def response_entropies(tables: list[Tensor]) -> Tensor:
    """Entropies in nats of all response tokens in a row, [T]."""
    return torch.cat([-(table.exp() * table).sum(-1) for table in tables])


def reference_loss(
    model: PreTrainedModel, batch: Batch, config: Config, chosen: list[int] | None = None
) -> tuple[Tensor, float]:
    """The loss of some sequences, by default all, as the papers print it, and the sum of its terms' magnitudes."""
    total, magnitude, settings, temperature = 0.0, 0.0, config.loss, config.rollout.temperature
    high = settings.epsilon if settings.epsilon_high is None else settings.epsilon_high
    upper = high if settings.kind == "cispo" and settings.epsilon_high is not None else 1 + high
    sequences = response_logprobs(vocabulary_logprobs(model, batch, temperature), batch)
    spans = {i: batch.tokens_of(i) for i in (range(len(sequences)) if chosen is None else chosen)}
    for i, span in spans.items():
        logprobs = sequences[i]
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs[span]
        selected = batch.selected[span]
        sequence_ratio = (logprobs.detach() - old)[batch.trainable[span]].mean().exp()
        for t in selected.nonzero()[:, 0].tolist():
            a = batch.advantages[span][t]
            ratio = (logprobs[t] - old[t]).exp()
            if settings.kind == "gspo":
                ratio = sequence_ratio * (logprobs[t] - logprobs[t].detach()).exp()
            clipped = ratio.clamp(1 - settings.epsilon, upper)
            loss = -clipped.detach() * a * logprobs[t] if settings.kind == "cispo" else -min(ratio * a, clipped * a)
            if settings.beta:
                gap = logprobs[t] - batch.ref_logprobs[span][t]
                kl = {"k2": gap**2 / 2, "k3": (-gap).exp() + gap - 1}[settings.kl_estimator]
                loss = loss + settings.beta * kl
            if batch.weights is not None:
                loss = loss * batch.weights[span][t]
            divisor = {
                "selected": sum(int(batch.selected[s].sum()) for s in spans.values()),
                "all": sum(int(batch.trainable[s].sum()) for s in spans.values()),
                "sequence": len(spans) * int(selected.sum()),
                "constant": len(spans) * config.rollout.max_completion_length,
            }[settings.normalizer]
            total = total + loss / divisor
            magnitude += abs(loss.item()) / divisor
    return total, magnitude
