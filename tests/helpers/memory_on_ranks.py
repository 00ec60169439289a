"""Update the policy on all ranks, one of which runs out of memory: memory_on_ranks.py MODEL OUT.

Run by end_to_end/test_ranks.py. OUT.json holds the metrics of the actors whose memory ran out, by case, and of those
that begin with smaller micro-batches, by tokens; OUT.safetensors their parameters. Under ZeRO-3 the first failure ends
the run.
"""

import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from contextlib import AbstractContextManager, nullcontext

import torch
from safetensors.torch import save_file

from d3s.actor import Actor
from d3s.config.command_line import run_and_exit
from d3s.config.load import load_config
from d3s.distributed import start_accelerator
from d3s.metrics import update_metrics
from tests.helpers.small_memory import PLACES, above, at_call, small_memory
from tests.helpers.update_on_ranks import UNEQUAL, batch_of_sizes

BUDGET, SIZES = 40, [*UNEQUAL, (2, 11), (7, 6), (3, 9), (1, 14)]  # two micro-batches on each rank, of 20 to 35 tokens
PLACES_OF_RANKS = itertools.product((0, 1), PLACES, (0, 1))
CASES = {f"rank {rank}, {place} {number}": (rank, place, number) for rank, place, number in PLACES_OF_RANKS}
CASES["both ranks"] = (None, None, 23)  # the tokens that fit


def main() -> None:
    """Two updates of each case."""
    model, out = sys.argv[1:]
    settings = [f"model.name={model}", "rollout.max_completion_length=20", "optim.num_iterations=2"]
    accelerator = start_accelerator(load_config([], settings))
    tensors = {}

    def update(name: str, tokens: int, memory: AbstractContextManager) -> dict:
        """Two updates in micro-batches of `tokens`, or smaller ones if the memory is; keep the parameters by name."""
        batch = batch_of_sizes(SIZES)
        batch.old_logprobs = batch.rollout_logprobs
        config = load_config([], [*settings, f"train.max_tokens_per_microbatch={tokens}"])
        actor, generator = Actor(model, config, accelerator, max_length=64), torch.Generator().manual_seed(0)
        with memory:
            updates = [update_metrics(actor.update(batch, 3e-4, generator)) for _ in range(2)]
        logprobs, _ = actor.compute_logprobs(batch)
        tensors.update({f"{name}: {key}": tensor.contiguous() for key, tensor in actor.weights()})
        return {"updates": updates, "logprobs": logprobs.tolist(), "tokens": actor.micro_batches.max_tokens}

    failed, smaller = {}, {}
    for name, (rank, place, number) in CASES.items():
        fails = rank in (None, accelerator.process_index)
        chosen = above(number) if rank is None else at_call(number, place)
        failed[name] = update(name, BUDGET, small_memory(chosen) if fails else nullcontext())
        tokens = failed[name]["tokens"]
        if str(tokens) not in smaller:
            smaller[str(tokens)] = update(str(tokens), tokens, nullcontext())
    if accelerator.is_main_process:
        Path(out + ".json").write_text(json.dumps([failed, smaller]))
        save_file(tensors, out + ".safetensors")
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    run_and_exit(main)
