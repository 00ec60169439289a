"""Estimate the seconds of generation that carrying unfinished responses over saves, by the extra groups in flight.

python -m research.carry_over                                             (log-normal lengths)
python -m research.carry_over --lengths runs/demo/samples/*.jsonl         (lengths of responses that a run logged)

The rule of d3s/methods/carry_over.py runs on a simulated engine of one card. A position of b responses takes
call + b token seconds, and a token that is read again takes token seconds. The defaults are a guess for 7B in bfloat16
on an H100 with the settings of configs/qwen2.5-math-7b.yaml on eight cards; nothing of it was measured.
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from d3s.config.load import load_config
from d3s.groups import Rollout
from d3s.methods.carry_over import CarryOver
from d3s.rollout.engine import Progress, SamplingParams, rollout_seeds

EXTRA = (0.0, 0.25, 0.5, 1.0)  # E/B
WARM = 5  # steps at the beginning that do not count


class SimulatedEngine:
    """Responses of drawn lengths, each token of which is the length: an engine of a rollout strategy, with a clock."""

    stop_token_ids = ()

    def __init__(self, draw: Callable[[int, int], int], slots: int, call: float = 0.0, token: float = 0.0) -> None:
        """draw: (first token of the prompt, seed) -> length, which the limit may cut; slots: rollout.max_num_seqs."""
        self.draw, self.slots, self.call, self.token, self.seconds = draw, slots, call, token, 0.0
        self.recorder, self.starts = self, {}
        self.requests: dict[int, list[int]] = {}  # number -> position, length, limit; the first ones are running

    @contextmanager
    def sampling(self, seeds: list[int]) -> Iterator[None]:
        """Enclose the requests of a strategy call."""
        self.starts = {}
        yield
        assert not self.requests

    def submit(
        self, request: int, prompt: list[int], params: SamplingParams, seed: int, *, start: int, streamed: bool
    ) -> None:
        """Add a request; a continued one has its length as the last token."""
        limit = start + params.max_tokens
        self.requests[request] = [start, min(prompt[-1] if start else self.draw(prompt[0], seed), limit), limit]
        self.starts[request] = start

    def step(self) -> list[Progress]:
        """Advance to the next end of a response."""
        running = list(self.requests.items())[: self.slots]
        ahead = min((length - position for _, (position, length, _) in running), default=0)
        self.seconds += ahead * (self.call + self.token * len(running))
        news = []
        for request, state in running:
            position, length, limit = state
            if position == self.starts[request]:
                self.seconds += self.token * position
            state[0] += ahead
            reason = None if state[0] < length else "length" if length == limit else "stop"
            logprobs = [-float(i) for i in range(position, state[0])]
            news.append(Progress(request, [length] * ahead, logprobs, [], reason))
            if reason:
                del self.requests[request]
        return news

    def abort(self, request: int) -> None:
        """Remove a request."""
        del self.requests[request]

    def write_to(self, rollouts: dict[int, Rollout]) -> None:
        """Fill in entropies, NaN for the tokens that the requests started with."""
        for request, r in rollouts.items():
            r.entropies = [float(i) if i >= self.starts[request] else math.nan for i in range(len(r.response_ids))]


def simulate(
    draw: Callable[[int, int], int], extra: float, steps: int, arguments: argparse.Namespace
) -> tuple[float, float, float]:
    """Seconds of generation per step; the share of its tokens that older weights sampled, and mean age of a group."""
    config = load_config([], ["rollout.engine=vllm", "loss.old_logprobs=engine"])
    rule = CarryOver(config, extra, arguments.max_age)
    engine = SimulatedEngine(draw, arguments.slots, arguments.call, arguments.token)
    params, position, begin, totals = SamplingParams(max_tokens=arguments.cut), 0, 0.0, {"tokens": 0}
    for step in range(steps + WARM):
        if step == WARM:
            begin, totals = engine.seconds, {"tokens": 0}
        problems = list(range(position, position + rule.problems_for(arguments.groups)))
        position += len(problems)
        seeds = rollout_seeds(0, "train", problems, arguments.n)
        prompts = [[problem] for problem in problems]
        done = rule.generate(
            engine, prompts, problems, arguments.groups, arguments.n, params, seeds, step, lambda r: None
        )
        for r in (r for group in done for r in group):
            totals["tokens"] += len(r.response_ids)
            for name, count in r.counts.items():
                totals[name] = totals.get(name, 0) + count
    age = totals["age"] / (steps * arguments.groups)
    return (engine.seconds - begin) / steps, totals["stale"] / totals["tokens"], age


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--lengths", nargs="+", type=Path, help="files of sample records, instead of log-normal lengths"
    )
    parser.add_argument("--mean", type=float, default=700, help="of log-normal lengths before they are cut")
    parser.add_argument("--sigma", type=float, default=0.9, help="deviation of their logarithm")
    parser.add_argument("--shared", type=float, default=0.5, help="share of its variance that is between problems")
    parser.add_argument("--cut", type=int, default=3072, help="rollout.max_completion_length")
    parser.add_argument("--groups", type=int, default=16, help="of a step on one card")
    parser.add_argument("--n", type=int, default=32, help="rollout.num_generations")
    parser.add_argument("--slots", type=int, default=512, help="rollout.max_num_seqs")
    parser.add_argument("--call", type=float, default=9e-3, help="seconds per position")
    parser.add_argument("--token", type=float, default=2e-5, help="seconds per token of a response")
    parser.add_argument("--max-age", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    if missing := [str(path) for path in arguments.lengths or [] if not path.is_file()]:
        parser.error(f"--lengths: no file {', '.join(missing)}")
    if arguments.steps < 1:
        parser.error(f"--steps: got {arguments.steps}, expected at least 1")
    logged = [json.loads(line) for path in arguments.lengths or [] for line in path.read_text().splitlines()]
    lengths = [len(record["tokens"]) for record in logged]

    def draw(problem: int, seed: int) -> int:
        of_problem, own = random.Random(f"problem {problem}"), random.Random(seed)
        if lengths:
            return own.choice(lengths)
        deviations = math.sqrt(arguments.shared) * of_problem.gauss() + math.sqrt(1 - arguments.shared) * own.gauss()
        return math.ceil(math.exp(math.log(arguments.mean) - arguments.sigma**2 / 2 + arguments.sigma * deviations))

    print("| E/B | seconds of generation | saved | tokens of older weights | mean age, steps |\n" + "|---" * 5 + "|")
    rows = {extra: simulate(draw, extra, arguments.steps, arguments) for extra in EXTRA}
    for extra, (seconds, stale, age) in rows.items():
        print(f"| {extra:g} | {seconds:.1f} | {1 - seconds / rows[0.0][0]:.0%} | {stale:.0%} | {age:.2f} |")


if __name__ == "__main__":
    main()
