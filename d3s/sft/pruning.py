"""Which samples and tokens of a supervised batch are trained, a rule of sft.prune.

A rule takes, by name, what it needs of (T response tokens of S samples)

    sequence_ids           [T] int, the sample of each token, ascending from 0
    logprobs, entropies    [T], before the update; a rule that takes one of them costs a forward pass
    generator              of random choices

and returns the trained tokens, bool [T], or (tokens, {name: bool [S]}), whose shares of the samples become metrics.
d3s/methods/q_tuning.py is an example.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from d3s.packing import Batch
from d3s.rules import Contract, Value, tensor_problem


def everything(sequence_ids: Tensor) -> Tensor:
    """All tokens of all samples."""
    return torch.ones_like(sequence_ids, dtype=torch.bool)


def _problem(result: Any, sequence_ids: Tensor, **_: Any) -> str | None:
    tokens, sets = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(sets, dict):
        return f"sets of samples as {type(sets).__name__}, expected a dict of tensors"
    count = (int(sequence_ids.max()) + 1,)
    problems = [tensor_problem(tokens, (len(sequence_ids),), torch.bool)]
    problems += [tensor_problem(of_samples, count, torch.bool) for of_samples in sets.values()]
    return next(filter(None, problems), None) or (None if tokens.any() else "no token, expected at least one")


def _examples() -> Iterable[dict[str, Any]]:
    ids = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3])
    values = torch.arange(8) / 8
    yield {"sequence_ids": ids, "logprobs": -values, "entropies": 1 - values, "generator": torch.Generator()}


PRUNE_RULES = Contract(
    "sft.prune",
    {"none": everything},
    ("sequence_ids", "logprobs", "entropies", "generator"),
    _problem,
    examples=_examples,
)


def needs_scores(value: Value) -> bool:
    """Whether the rule reads log-probabilities or entropies, which cost a forward pass over the full batch."""
    return bool({"logprobs", "entropies"} & PRUNE_RULES.rule(value).takes)


def prune(
    batch: Batch, value: Value, logprobs: Tensor | None, entropies: Tensor | None, generator: torch.Generator
) -> dict[str, float]:
    """Restrict `batch.selected` to the tokens that the rule chooses. Returns shares of samples and tokens as metrics.

    Args:
        logprobs, entropies: [T], before the update; None unless needs_scores(value).
    """
    arguments = {"sequence_ids": batch.sequence_ids, "generator": generator}
    result = PRUNE_RULES.rule(value)(**arguments, logprobs=logprobs, entropies=entropies)
    batch.selected, sets = result if isinstance(result, tuple) else (result, {})
    shares = sets | {"tokens": batch.selected}
    return {f"pruning/{name}": mask.float().mean().item() for name, mask in shares.items()}
