"""Update the policy on fixed batches, on all ranks: update_on_ranks.py MODEL TEACHER OUT.

Run by end_to_end/test_ranks.py under three launchers. OUT.json holds the metrics, log-probabilities and entropies of
each case and what was gathered, OUT.safetensors the parameters after it. Then ranks run out of memory: under ZeRO-3 the
first failure ends the run; under DDP OUT_memory.json holds the metrics of the actors that failed, by case, and of those
that begin with smaller micro-batches, by tokens; OUT_memory.safetensors their parameters.
"""

import itertools
import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partialmethod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from accelerate import Accelerator
from safetensors.torch import save_file

from d3s.actor import Actor
from d3s.actor.actor import NonFiniteError
from d3s.commands.command_line import run_and_exit
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.distributed import all_gather_arrays, require_equal
from d3s.launch import start_accelerator
from d3s.tracking.metrics import update_metrics
from tests.helpers.actors import make_batch
from tests.helpers.small_memory import PLACES, above, at_call, small_memory

UNEQUAL = [(3, 7), (12, 1), (1, 5), (6, 16), (2, 2), (4, 20), (5, 9)]  # tokens of prompt and response
ONE = [(4, 9)]  # a second rank has no sequence
SEVERAL = ["optim.num_minibatches=2", "optim.num_iterations=2"]
GSPO = ["loss.kind=gspo", "loss.epsilon=0.1", *SEVERAL]
RECOMPUTED = "model.gradient_checkpointing=1"  # of two layers
BUDGET, SIZES = 40, [*UNEQUAL, (2, 11), (7, 6), (3, 9), (1, 14)]  # two micro-batches on each rank, of 20 to 35 tokens
LORA, COMPILED = "lora", "compiled"  # without ZeRO-3 alone; compiled on two ranks alone
DISTILL = "d3s.methods.distill:distill"
CASES = {
    "one budget": (UNEQUAL, "on policy", []),
    "budget of 1": (UNEQUAL, "on policy", ["train.max_tokens_per_microbatch=1"]),
    "gspo, budget of 20": (UNEQUAL, "off policy", [*GSPO, "train.max_tokens_per_microbatch=20", RECOMPUTED]),
    "gspo, one sequence": (ONE, "off policy", GSPO),
    "reference": (UNEQUAL, "on policy", ["loss.beta=0.5", *SEVERAL]),
    "teacher": (UNEQUAL, "on policy", [f"loss.kind={DISTILL}", *SEVERAL]),
    "a mini-batch without a token": (UNEQUAL, "off policy", ["optim.num_minibatches=7"]),
    LORA: (UNEQUAL, "off policy", ["lora.rank=4", "loss.beta=0.5", *SEVERAL]),
    COMPILED: (UNEQUAL, "on policy", []),
}


def in_half_precision(model: str, settings: list[str]) -> dict:
    """Metrics under bfloat16, and dtypes."""
    config = load_config([], [*settings, "model.dtype=bfloat16", "train.max_tokens_per_microbatch=1"])
    actor = Actor(model, config, start_accelerator(config), max_length=64)
    record = {"parameters": str(actor.lm.dtype)}
    if actor.zero3:
        record["gradients"] = str(actor.policy.optimizer.grad_partitions_flat_buffer.dtype)
    metrics = update_metrics(actor.update(make_batch(UNEQUAL, fraction=0.5), 3e-4, torch.Generator().manual_seed(0)))
    return record | {"updates": [metrics]}


def errors(model: str, settings: list[str], accelerator: Accelerator) -> list[str | None]:
    """Of ranks that choose alike or differently, and of a gradient that is infinite on the first rank; its effect."""
    actor = Actor(model, load_config([], settings), accelerator, max_length=64)
    if accelerator.is_main_process:
        [*actor.lm.parameters()][-1].register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
    actions = [
        lambda: require_equal("alike", torch.ones(3, dtype=torch.bool), accelerator),
        lambda: require_equal("other", torch.arange(3) == accelerator.process_index, accelerator),
        lambda: require_equal("rounded", torch.ones(3) / 3 + 1e-7 * accelerator.process_index, accelerator),
        lambda: require_equal("values", torch.ones(3) * (1 + accelerator.process_index), accelerator),
        lambda: require_equal("rounded", torch.ones(10**5) / 3 + 1e-7 * accelerator.process_index, accelerator),
        lambda: require_equal("values", torch.ones(10**5) * (1 + accelerator.process_index), accelerator),
        lambda: actor.update(make_batch(UNEQUAL, fraction=0.5), 3e-4, torch.Generator().manual_seed(0)),
    ]
    before, messages = {name: weight.clone() for name, weight in actor.weights()}, []
    for action in actions:
        try:
            action()
            messages.append(None)
        except (UserError, NonFiniteError) as error:
            messages.append(str(error))
    moved = [name for name, weight in actor.weights() if not torch.equal(weight, before[name])]
    return [*messages, f"moved: {moved}" if moved else "nothing moved"]


def update_beyond_memory(model: str, settings: list[str], accelerator: Accelerator) -> tuple[list, dict]:
    """Two updates of actors of which one or both ranks run out of memory, and of those that begin with less."""
    settings, tensors = [*settings, "optim.num_iterations=2"], {}

    def update(name: str, tokens: int, memory: AbstractContextManager) -> dict:
        """Two updates in micro-batches of `tokens`, or smaller ones if the memory is; keep the parameters by name."""
        batch = make_batch(SIZES, fraction=0.5)
        batch.old_logprobs = batch.rollout_logprobs
        config = load_config([], [*settings, f"train.max_tokens_per_microbatch={tokens}"])
        actor, generator = Actor(model, config, accelerator, max_length=64), torch.Generator().manual_seed(0)
        with memory:
            updates = [update_metrics(actor.update(batch, 3e-4, generator)) for _ in range(2)]
        logprobs, _ = actor.compute_logprobs(batch)
        tensors.update({f"{name}: {key}": tensor.clone().contiguous() for key, tensor in actor.weights()})
        return {"updates": updates, "logprobs": logprobs.tolist(), "tokens": actor.micro_batches.max_tokens}

    failed, smaller = {}, {}
    for rank, place, number in [*itertools.product((0, 1), PLACES, (0, 1)), (None, None, 23)]:
        name = "both ranks" if rank is None else f"rank {rank}, {place} {number}"
        fails = rank in (None, accelerator.process_index)
        chosen = above(number) if rank is None else at_call(number, place)
        failed[name] = update(name, BUDGET, small_memory(chosen) if fails else nullcontext())
        tokens = failed[name]["tokens"]
        if str(tokens) not in smaller:
            smaller[str(tokens)] = update(str(tokens), tokens, nullcontext())
    return [failed, smaller], tensors


def main() -> None:
    """Two updates of each case, then one without a selected token."""
    model, other, out = sys.argv[1:]
    settings = [f"model.name={model}", "rollout.max_completion_length=20"]
    decay = [*settings, "optim.weight_decay=0.01"]
    accelerator = start_accelerator(load_config([], settings))

    def save(suffix: str, records: dict | list, tensors: dict[str, torch.Tensor]) -> None:
        if accelerator.is_main_process:
            Path(f"{out}{suffix}.json").write_text(json.dumps(records))
            save_file(tensors, f"{out}{suffix}.safetensors")
        accelerator.wait_for_everyone()

    records, tensors = {}, {}
    torch.nn.Module.compile = partialmethod(torch.nn.Module.compile, backend="eager")  # generated code takes 15 s
    for name, (sizes, policy, overrides) in CASES.items():
        if name in (LORA, COMPILED) and os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
            continue
        if name == COMPILED and accelerator.num_processes > 1:
            overrides = [*overrides, "model.compile=true"]
        config = load_config([], [*decay, *overrides])
        teacher = other if config.loss.kind == DISTILL else None
        actor = Actor(model, config, accelerator, max_length=64, teacher=teacher)
        batch = make_batch(sizes, fraction=0.5)
        logprobs, entropies = actor.compute_logprobs(batch)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] or not config.model.compile
        record = {"logprobs": logprobs.tolist(), "entropies": entropies.tolist()}
        if policy == "off policy":
            noise = torch.randn(len(logprobs), generator=torch.Generator().manual_seed(1))
            batch.old_logprobs = logprobs + 0.3 * noise
        if config.loss.beta or teacher:
            batch.ref_logprobs = actor.compute_logprobs(batch, reference=True)[0]
            record["ref_logprobs"] = batch.ref_logprobs.tolist()
        generator = torch.Generator().manual_seed(0)
        record["updates"] = [update_metrics(actor.update(batch, 3e-4, generator)) for _ in range(2)]
        moved = {f"{name}: {key}": tensor.clone().contiguous() for key, tensor in actor.weights()}
        batch.selected[:] = False
        record["without a token"] = [update_metrics(actor.update(batch, 3e-4, generator))["optimizer_steps"]]
        record["moves"] = [not torch.equal(moved[f"{name}: {key}"], tensor) for key, tensor in actor.weights()]
        records[name] = record
        tensors |= moved
    rank = accelerator.process_index
    sent = [np.arange(3 * rank, dtype=np.int32), np.full(2 - rank, 0.5 + rank, np.float32), np.zeros(0, np.uint8)]
    records["arrays"] = [[array.tolist() for array in all_gather_arrays(array, accelerator)] for array in sent]
    records["errors"] = errors(model, decay, accelerator)
    records["half precision"] = in_half_precision(model, decay)
    save("", records, tensors)
    if accelerator.num_processes > 1:
        accelerator = start_accelerator(load_config([], settings))
        save("_memory", *update_beyond_memory(model, settings, accelerator))


if __name__ == "__main__":
    run_and_exit(main)
