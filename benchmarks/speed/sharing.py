"""Measure what shared beginnings save: equal histories decoded as one row, equal beginnings run once in the update.

    python -m benchmarks.speed.sharing [--rounds 25]

Trains with the sizes of configs/ablation.yaml, D3S with N = G/2 and K = 20 %. Update: each step of the run makes its
update twice from the same weights, with packing.share_passes and without. Generation, by the trained model: n responses
to each of B problems, against one response to each of n x B problems of which n are equal, which share nothing and read
each prompt n times. CPU seconds; a ratio is the median over steps or rounds. Writes the table between the `sharing`
marks of docs/gpu.md.
"""

import argparse
import os
import statistics
import time
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch

from benchmarks.harness import ROOT, machine, markdown
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.data.synthetic import TASKS
from d3s.packing import Batch
from d3s.rollout.engine import SamplingParams
from d3s.rollout.seeds import rollout_seeds
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.tiny import byte_tokenizer
from d3s.trainer import Trainer
from research.beyond_rows import RATE, row
from research.methods import GRPO, fixed, shape
from research.tables import DOCS, write_between_marks

SHAPES = ((8, 16), (32, 4))  # problems, responses to each
STEPS = 48

Pair = tuple[float, float]  # CPU seconds without sharing, with it


def run_each(batch: Batch, sequences: list[int], lengths: list[int]) -> dict[int, list[int]]:
    """Replace packing.share_passes: every rollout has a pass of its own."""
    return {i: [i] for i in sequences if lengths[i]}


class PairedTrainer(Trainer):
    """Makes each update without sharing and with it, from the same weights, and records the CPU seconds of both."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.updates: list[Pair] = []
        self.steps: list[Pair] = []  # with the one or the other update; generation shares in both
        self._update_once, self.actor.update = self.actor.update, self._update_twice

    def step(self) -> dict[str, float]:
        """A training step whose update is made twice."""
        started = time.process_time()
        self._apart = 0.0
        metrics = super().step()
        rest = time.process_time() - started - self._apart
        without, shared = self.updates[-1]
        self.steps.append((rest + without, rest + shared))
        return metrics

    def _update_twice(self, batch: Batch, learning_rate: float, generator: torch.Generator) -> list[dict]:
        started = time.process_time()
        parts = (self.actor.policy, self.actor.optimizer)
        before, drawn = [deepcopy(part.state_dict()) for part in parts], generator.get_state()
        seconds = [0.0, 0.0]
        first = self.state.step % 2  # the second update finds warm caches, so the order alternates
        for sharing in (first, 1 - first):
            for part, state in zip(parts, before):
                part.load_state_dict(deepcopy(state))
            generator.set_state(drawn)
            with nullcontext() if sharing else patch("d3s.actor.actor.share_passes", run_each):
                begun = time.process_time()
                result = self._update_once(batch, learning_rate, generator)
                seconds[sharing] = time.process_time() - begun
        self.updates.append((seconds[0], seconds[1]))
        self._apart = time.process_time() - started
        return result


def ratio(pairs: list[Pair]) -> float:
    """The median of the seconds with sharing, over those without."""
    return statistics.median(shared / without for without, shared in pairs)


def train_ratios(method: str, problems: int, responses: int, folder: Path) -> tuple[float, float]:
    """Ratios of the update and of the step over a run in `folder`, which keeps the model."""
    options = fixed(responses // 2, 0.2) if method == "D3S" else (GRPO,)
    cell = row(method, STEPS, *options, RATE, *shape(problems * responses, responses))
    trainer = PairedTrainer(
        load_config(*cell.extended(f"train.output_dir={folder}", "eval.data=[]", "checkpoint.every=0").sources())
    )
    trainer.train()
    trainer.close()
    return ratio(trainer.updates), ratio(trainer.steps)


def generation_ratio(model: Path, problems: int, responses: int, rounds: int) -> float:
    """Ratio of generation from this model."""
    settings = load_config([], ["rollout.engine=transformers"]).rollout
    engine, tokenizer = TransformersEngine(str(model), settings, dtype="float32", max_model_len=120), byte_tokenizer()
    prompts = [tokenizer.encode(text) for text, *_ in TASKS["precedence"].draw("validation", problems, 0)]
    seeds, params = rollout_seeds(0, "sharing", list(range(problems)), responses), SamplingParams(max_tokens=64)
    single = [prompt for prompt in prompts for _ in range(responses)]
    pairs = []
    for _ in range(1 + rounds):
        seconds = []
        for requests in ((single, 1), (prompts, responses)):
            started = time.process_time()
            engine.generate(*requests, params, seeds)
            seconds.append(time.process_time() - started)
        pairs.append((seconds[0], seconds[1]))
    return ratio(pairs[1:])  # the first round warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="rounds of generation (default: 25)")
    rounds = parser.parse_args().rounds
    os.chdir(ROOT)
    rows = []
    with TemporaryDirectory() as folder:
        for problems, responses in SHAPES:
            for method in ("GRPO", "D3S"):
                path = Path(folder) / f"{method}-{problems}"
                update, step = train_ratios(method, problems, responses, path)
                generation = generation_ratio(path / "model", problems, responses, rounds)
                rows.append(
                    [f"{problems} x {responses}", method, *(f"{100 * x:.0f}" for x in (generation, update, step))]
                )
    header = ["problems x responses", "method", "generation", "update", "step with this update"]
    origin = machine()
    text = f"Code at {origin['revision']}, on {origin['cpu']}:\n\n{markdown(header, rows)}\n"
    write_between_marks(DOCS / "gpu.md", "sharing", text)
    print(text)


if __name__ == "__main__":
    main()
