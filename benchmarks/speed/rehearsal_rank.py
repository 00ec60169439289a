"""One rank of benchmarks.speed.rehearsal: the trainer's own loop around an engine and a network without computation.

Real: the trainer, data, prompts, verifier, collector, selection, gathering, the actor but for its network, metrics,
samples, checkpoints. Replaced: the engine (responses are random numbers), the policy (one parameter), the export.
"""

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from benchmarks.harness import ROOT, resident
from d3s import distributed
from d3s.common import silence_libraries
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.groups import Rollout
from d3s.packing import MicroBatch
from d3s.pretrained import read_config, read_tokenizer
from d3s.rollout.engine import Engine, SamplingParams

ENGINE = "stub engine"  # the phase of what the stub itself takes
COLLECTIVES = {"all_gather": 1, "all_reduce": 0}  # position of the tensor that a rank sends


class PhaseClock:
    """Seconds, and bytes sent, of this rank by phase. What an inner phase takes does not count for the outer one."""

    def __init__(self) -> None:
        self.steps: list[dict[str, dict[str, float]]] = []
        self._open, self._spent = ["rest"], defaultdict(Counter)
        self._mark = self._now()

    @staticmethod
    def _now() -> Counter:
        return Counter(wall=time.perf_counter(), thread=time.thread_time(), process=time.process_time())

    def _charge(self) -> None:
        now = self._now()
        for kind, value in now.items():
            self._spent[self._open[-1]][kind] += value - self._mark[kind]
        self._mark = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Replace d3s.distributed.phase, which it calls. A "step" begins a new entry of `steps`."""
        if name == "step":
            self.end_step()
        self._charge()
        self._open.append(name)
        with distributed.phase(name):
            yield
        self._charge()
        self._open.pop()

    def end_step(self) -> None:
        """Append what was spent since the last call to `steps`."""
        self._charge()
        self.steps.append({name: dict(spent) for name, spent in self._spent.items()})
        self._spent.clear()

    def counted(self, collective: Callable, sent: int) -> Callable:
        """A torch.distributed function that counts the bytes of its argument number `sent`."""

        def call(*args, **options):
            self._spent[self._open[-1]]["bytes"] += args[sent].nbytes
            return collective(*args, **options)

        return call


class StubEngine(Engine):
    """Fills rollouts from random arrays; the last tokens are a boxed answer of 0 to 3, each half as often as the one
    before, so that groups have both verdicts."""

    def __init__(
        self, config: Config, clock: PhaseClock, vocabulary: int, lengths: list[int], answers: list[list[int]]
    ) -> None:
        """`lengths` of responses to draw from; `answers` the token ids of each boxed answer."""
        super().__init__(config.model.name, config.rollout, dtype="float32", max_model_len=1)  # which is not used
        self._clock, self._vocabulary, self._lengths, self._answers = clock, vocabulary, lengths, answers

    def sample(
        self,
        rollouts: list[Rollout],
        params: SamplingParams,
        seeds: list[int],
        entropies: bool,
        on_finished: Callable[[Rollout], None],
    ) -> None:
        """See d3s.rollout.engine.Engine.sample."""
        with self._clock.phase(ENGINE):
            for rollout, seed in zip(rollouts, seeds):
                self._respond(rollout, params, seed)
        for rollout in rollouts:
            on_finished(rollout)

    def _respond(self, rollout: Rollout, params: SamplingParams, seed: int) -> None:
        rng = np.random.default_rng(seed)
        length = min(params.max_tokens, int(rng.choice(self._lengths)))
        answer = self._answers[min(rng.geometric(0.5), len(self._answers)) - 1]
        ids = [*rng.integers(300, self._vocabulary, max(0, length - len(answer))).tolist(), *answer][:length]
        # near the stub network's 0, so that probes and ratios pass
        rollout.response_ids, rollout.logprobs = ids, (-0.05 * rng.random(length, np.float32)).tolist()
        rollout.entropies = rng.exponential(0.3, length).astype(np.float32).tolist()
        rollout.finished = length < params.max_tokens

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Read them and forget them."""
        for _ in weights:
            pass


class StubPolicy(nn.Module):
    """Replaces d3s.policy.Policy: one parameter, 0 at first, is the log-probability of every token."""

    padded = False

    def __init__(self, path: str, *_, **__) -> None:
        super().__init__()
        self.lm = nn.Linear(1, 1, bias=False)
        self.lm.config = read_config(path)
        nn.init.zeros_(self.lm.weight)

    def accumulate_in_place(self) -> None:
        """Autograd's gradient is enough."""

    def forward(
        self,
        micro: MicroBatch,
        chosen: Tensor,
        temperature: float,
        with_unchosen: bool = False,
        entropies: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See Policy.forward."""
        value, zeros = self.lm.weight[0], torch.zeros(len(chosen))
        return value.expand(int(chosen.sum())), zeros, zeros


def replacements(clock: PhaseClock, engine: StubEngine) -> dict[str, object]:
    """What patch() puts in the place of each name."""
    replaced = {
        "d3s.trainer.build_engine": lambda *_, **__: engine,
        "d3s.training_run.export_model": lambda *_: None,
        "d3s.training_run.phase": clock.phase,
        "d3s.actor.actor.Policy": StubPolicy,
    }
    for name, sent in COLLECTIVES.items():
        counted = clock.counted(getattr(torch.distributed, name), sent)
        replaced |= {f"torch.distributed.{name}": counted, f"torch.distributed.distributed_c10d.{name}": counted}
    return replaced


def rehearse(overrides: list[str], vocabulary: int, lengths: list[int]) -> list[dict[str, dict[str, float]]]:
    """Train the shipped 7B configuration with these overrides. Returns what each step of this rank spent, by phase."""
    from d3s.trainer import Trainer

    config = load_config([ROOT / "configs" / "qwen2.5-math-7b.yaml"], overrides)
    tokenizer = read_tokenizer(config.model.name)
    answers = [[*tokenizer.encode(f" \\boxed{{{i}}}"), tokenizer.eos_token_id] for i in range(4)]
    clock = PhaseClock()
    with ExitStack() as stack:
        for name, value in replacements(clock, StubEngine(config, clock, vocabulary, lengths, answers)).items():
            stack.enter_context(patch(name, value))
        trainer = Trainer(config)
        trainer.train()
        trainer.close()
    clock.end_step()
    return clock.steps[1:]  # the first entry is the start


def main() -> None:
    silence_libraries()
    folder = Path(sys.argv[1])
    work = json.loads((folder / "work.json").read_text())
    record = {"steps": rehearse(**work), "peak": resident("VmHWM")}
    (folder / f"rank{os.environ.get('RANK', '0')}.json").write_text(json.dumps(record))
    os._exit(0)  # as train.py ends: gloo's threads can block a finished interpreter


if __name__ == "__main__":
    main()
