"""Time an update with and without model.compile, in turns in one process.

    python -m benchmarks.speed.compile [--hidden 512] [--layers 8] [--dtype float32] [--rounds 7]

Prints medians of the rounds after the first, which compiles: seconds, CPU seconds, and their ratios.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.gpu_check.memory import make_batch
from benchmarks.speed.workload import save_model
from d3s.actor import Actor
from d3s.config.load import load_config
from d3s.launch import start_accelerator

TOKENS, LENGTH, VOCABULARY = 1024, 256, 1000  # of a micro-batch, of which there are two; of a sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    actors = {}
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), VOCABULARY, args.hidden, args.layers)
        for flag in ("false", "true"):
            words = [f"model.compile={flag}", f"model.dtype={args.dtype}", f"train.max_tokens_per_microbatch={TOKENS}"]
            config = load_config([], words)
            actors[flag] = Actor(folder, config, start_accelerator(config), LENGTH)
    batch, rounds = make_batch(TOKENS, LENGTH, VOCABULARY), {flag: [] for flag in actors}
    for _ in range(1 + args.rounds):
        for flag, actor in actors.items():
            before = time.perf_counter(), time.process_time()
            actor.update(batch, 1e-6, torch.Generator().manual_seed(0))
            rounds[flag].append((time.perf_counter() - before[0], time.process_time() - before[1]))
    medians = {flag: [median(column) for column in zip(*values[1:])] for flag, values in rounds.items()}
    for name, eager, compiled in zip(("seconds", "CPU seconds"), medians["false"], medians["true"]):
        print(
            f"{name} of an update: {eager:.2f} without, {compiled:.2f} with model.compile, ratio {eager / compiled:.2f}"
        )
    print(f"seconds of the first one: {rounds['false'][0][0]:.1f} without, {rounds['true'][0][0]:.1f} with")


if __name__ == "__main__":
    main()
