"""One update of each architecture by one process, two DDP ranks and two ZeRO-3 ranks.

benchmarks/architectures.py starts it under each launcher: `MODELS OUT MODEL_TYPE ...` reads models of the folder MODELS
and writes what each yields to OUT: log-probabilities and entropies before and after the update, or the error. The batch
is the same everywhere; ranks divide it.
"""

import json
import sys
from pathlib import Path

import torch

from d3s.actor import Actor
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.launch import start_accelerator
from d3s.packing import Batch

SIZES = [(3, 7), (12, 1), (1, 5), (6, 16), (2, 2), (4, 20), (5, 9)]  # tokens of prompt and response


def make_batch() -> Batch:
    """Random tokens and selection."""
    generator = torch.Generator().manual_seed(0)
    prompts, responses = (
        [torch.randint(1, 257, (pair[i],), generator=generator).tolist() for pair in SIZES] for i in (0, 1)
    )
    total = sum(response for _, response in SIZES)
    advantages = torch.linspace(-1, 1, total)
    batch = Batch(prompts, responses, advantages, torch.full((total,), -5.0), torch.ones(total))
    batch.selected = torch.rand(total, generator=generator) < 0.5
    return batch


def update(model: str) -> list[list[float]]:
    """Log-probabilities and entropies of the batch before and after one update."""
    config = load_config([], [f"model.name={model}", "rollout.max_completion_length=20"])
    actor, batch = Actor(model, config, start_accelerator(config), max_length=64), make_batch()
    batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
    before = actor.compute_logprobs(batch)
    actor.update(batch, 1e-3, torch.Generator().manual_seed(0))
    return [values.tolist() for values in (*before, *actor.compute_logprobs(batch))]


def main() -> None:
    models, out, *names = sys.argv[1:]
    results: dict[str, list | str] = {}
    for name in names:
        try:
            results[name] = update(f"{models}/{name}")
        except UserError as error:
            results[name] = str(error).replace(f"{models}/", "")
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
        Path(out).write_text(json.dumps(results))  # both ranks write the same


if __name__ == "__main__":
    main()
