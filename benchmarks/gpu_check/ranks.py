"""Train three steps on one of the ranks that a launcher started, for several.py.

    LAUNCHER benchmarks/gpu_check/ranks.py MODEL FOLDER [CHECKPOINT RANKS]

The first rank writes what it gathered, selected and trained into FOLDER/record.json, and a part of the weights before
and after into FOLDER/weights.safetensors. Several ranks save the second step in FOLDER/checkpoint. With CHECKPOINT,
saved by RANKS ranks, the third step alone is trained.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor

from d3s.actor import Actor
from d3s.config.load import load_config
from d3s.distributed import all_gather_arrays, all_gather_objects
from d3s.launch import start_accelerator
from d3s.packing import Batch
from d3s.selector import Selector
from d3s.tracking.metrics import update_metrics

STEPS, SAVED = 3, 2
FRACTION, LEARNING_RATE = 0.2, 3e-4
SEQUENCES = {
    "cuda": (32, 256, 1024),
    "cpu": (7, 16, 32),
}  # number, most tokens of a prompt or response, of a micro-batch
BYTES = {"cuda": 2**26, "cpu": 2**16}  # of each rank's array
TEXTS = 1000  # of 1 kB, of each rank
COMPARED = 2**14  # numbers of each weight


def make_batch(step: int, device: str) -> Batch:
    """Rollouts of unequal lengths with random bytes and advantages, the same on every rank."""
    g = torch.Generator().manual_seed(step)
    count, longest, _ = SEQUENCES[device]
    sizes = torch.randint(1, longest + 1, (2, count), generator=g).tolist()
    prompts, responses = ([torch.randint(0, 257, (n,), generator=g).tolist() for n in part] for part in sizes)
    advantages = torch.randn(count, generator=g).repeat_interleave(torch.tensor(sizes[1]))
    zeros = torch.zeros(len(advantages))
    return Batch(prompts, responses, advantages, zeros, zeros)


def exchange(accelerator: Accelerator) -> dict[str, float | bool]:
    """Seconds of the gathers of a step, and whether everything arrived in the order of the ranks."""
    ranks, rank, size = accelerator.num_processes, accelerator.process_index, BYTES[accelerator.device.type]
    array, texts = np.full(size, rank, np.uint8), [f"{rank:<1000}"] * TEXTS
    for _ in range(2):  # in the first round the ranks connect
        accelerator.wait_for_everyone()
        times = [time.perf_counter()]
        arrays = all_gather_arrays(array, accelerator)
        times.append(time.perf_counter())
        gathered = all_gather_objects(texts, accelerator)
        times.append(time.perf_counter())
    arrived = np.array_equal(np.concatenate(arrays), np.arange(ranks, dtype=np.uint8).repeat(size))
    arrived &= [int(text) for text in gathered] == [i // TEXTS for i in range(ranks * TEXTS)]
    return {"arrays": times[1] - times[0], "objects": times[2] - times[1], "bytes": size, "arrived": bool(arrived)}


def part_of(actor: Actor, when: str) -> dict[str, Tensor]:
    """COMPARED numbers of each weight or a few more, at equal distances; all of a smaller one. Collective."""
    parts = ((name, weight.flatten()) for name, weight in actor.weights())
    return {f"{when} {name}": weight[:: max(1, len(weight) // COMPARED)].cpu().clone() for name, weight in parts}


def main(model: str, folder: Path, checkpoint: str = "", saved_by: str = "0") -> None:
    """Run the steps that are left on this rank."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _, longest, tokens = SEQUENCES[device]
    sizes = [f"rollout.max_completion_length={longest}", f"train.max_tokens_per_microbatch={tokens}"]
    config = load_config([], [f"model.name={model}", *sizes])
    accelerator = start_accelerator(config)
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    if plugin and device == "cpu":  # else DeepSpeed keeps weights of this size on every rank
        plugin.deepspeed_config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    actor = Actor(model, config, accelerator, max_length=2 * longest)
    weights = part_of(actor, "before")
    if checkpoint:
        actor.load(Path(checkpoint), int(saved_by))
    steps = []
    for step in range(SAVED + 1 if checkpoint else 1, STEPS + 1):
        batch, g = make_batch(step, device), torch.Generator().manual_seed(step)
        _, batch.entropies = actor.compute_logprobs(batch)
        Selector(config.selector, config.reward).tokens(batch, FRACTION, g)
        started = time.perf_counter()
        metrics = update_metrics(actor.update(batch, LEARNING_RATE, g))
        seconds = time.perf_counter() - started
        selected = batch.selected.nonzero()[:, 0].tolist()
        steps.append({"selected": selected, "grad_norm": metrics["grad_norm"], "seconds": seconds})
        if step == SAVED and accelerator.num_processes > 1:
            (folder / "checkpoint").mkdir(exist_ok=True)
            actor.save(folder / "checkpoint")
    weights |= part_of(actor, "after")
    inside = any(getattr(p, "ds_secondary_tensor", None) is not None for p in actor.lm.parameters())
    record = {"ranks": accelerator.num_processes, "inside a node": inside, "steps": steps}
    record["exchange"] = exchange(accelerator)
    if accelerator.is_main_process:
        save_file(weights, folder / "weights.safetensors")
        (folder / "record.json").write_text(json.dumps(record))
    accelerator.wait_for_everyone()
    sys.stdout.flush()
    os._exit(0)  # like train.py


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
