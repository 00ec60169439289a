"""Rehearse the paper's scale without a GPU: host seconds, memory and traffic of each rank beside model and engine.

    python -m benchmarks.speed.rehearsal [--ranks 8] [--steps 4]      (make bench-rehearsal)

Trains configs/qwen2.5-math-7b.yaml, 128 problems x 32 responses of up to 3,072 tokens a step, with a stub engine, which
fills responses from random arrays, and a stub network of one parameter (benchmarks/speed/rehearsal_rank.py); everything
else is the trainer's. Ranks talk over gloo. A case N:K:LENGTH keeps N of 32 rollouts and trains K of their tokens;
LENGTH is the mean of the responses. Cells are of the slowest rank, medians of the steps without the first. Ranks share
the machine's cores, so CPU seconds of each rank's main thread are what a machine with a core per rank would take, and
wall seconds mean something only where the ranks have one each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import ENVIRONMENT, ROOT, publish
from benchmarks.speed.rehearsal_rank import ENGINE
from benchmarks.speed.workload import save_model, save_wide_tokenizer

CASES = ("8:0.05:1500", "20:0.125:1500", "32:0.2:1500", "32:0.2:2660")
PHASES = ("generate", "exchange", "logprobs", "select", "update", "sync", "checkpoint")
REST = ("step", "rest")  # within a step and between two, outside of the phases: metrics, samples, logs
VOCABULARY = 30_000


def response_lengths(mean: float, limit: int, count: int = 4096) -> list[int]:
    """Lengths of a skewed distribution, a gamma of shape 4, that is cut at `limit` and then has this mean."""
    shape = np.random.default_rng(0).gamma(4.0, size=count)
    low, high = 0.0, 100.0 * limit
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(shape * middle, limit).mean() < mean else (low, middle)
    return np.minimum(shape * high, limit).astype(int).clip(16).tolist()


def write_problems(path: Path, count: int) -> None:
    """Problems whose prompts differ, with answers 0 to 3."""
    rows = [{"problem": f"Problem {i}: " + f"{i * 7919} plus x is " * 5, "answer": str(i % 4)} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_case(case: str, args: argparse.Namespace, folder: Path) -> list[dict]:
    """Train a case; the records of its ranks."""
    n, k, mean = case.split(":")
    run = folder / case.replace(":", "-")
    run.mkdir()
    overrides = {
        "model.name": folder / "model",
        "data.path": folder / "problems.jsonl",
        "data.decontaminate": "[]",
        "rollout.num_generations": args.group,
        "rollout.max_completion_length": args.response_tokens,
        "schedule.n_init": n,
        "schedule.n_final": n,
        "schedule.k_init": k,
        "schedule.k_final": k,
        "optim.warmup_steps": 0,
        "reward.workers": 1,
        "train.prompts_per_step": args.prompts,
        "train.steps": args.steps,
        "train.output_dir": run / "run",
        "eval.data": "[]",
        "checkpoint.every": 1,
        "tracker.samples_every": 1,
    }
    work = {
        "overrides": [f"{key}={value}" for key, value in overrides.items()],
        "vocabulary": VOCABULARY,
        "lengths": response_lengths(float(mean), args.response_tokens),
    }
    (run / "work.json").write_text(json.dumps(work))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(args.ranks)]
    with (run / "log").open("w") as log:
        done = subprocess.run(
            [sys.executable, *(launch if args.ranks > 1 else []), "-m", "benchmarks.speed.rehearsal_rank", str(run)],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | {"ACCELERATE_USE_CPU": "true"},
            stdout=log,
            stderr=log,
        )
    if done.returncode:
        raise RuntimeError(f"{case}: a rank ended with an error:\n{(run / 'log').read_text()[-3000:]}")
    return [json.loads((run / f"rank{rank}.json").read_text()) for rank in range(args.ranks)]


def slowest(ranks: list[dict], phases: tuple[str, ...], kind: str) -> float:
    """Seconds or bytes of these phases together: of the rank with most, the median of the steps without the first."""
    sums = [
        [sum(step.get(phase, {}).get(kind, 0.0) for phase in phases) for step in record["steps"][1:]]
        for record in ranks
    ]
    return statistics.median(map(max, zip(*sums)))


def rows_of(measured: dict[str, list[dict]]) -> list[list[str]]:
    """One row per phase, then totals, memory and traffic; a column per case."""
    host = (*PHASES, *REST)
    rows = [[phase, *(f"{slowest(ranks, (phase,), 'thread'):.2f}" for ranks in measured.values())] for phase in PHASES]
    rows.append(["metrics, samples, logs", *(f"{slowest(ranks, REST, 'thread'):.2f}" for ranks in measured.values())])
    for label, phases, kind in (
        ("CPU seconds of a step", host, "thread"),
        ("with the rank's other threads", host, "process"),
        ("wall seconds of a step", host, "wall"),
        ("CPU seconds of the stub engine", (ENGINE,), "thread"),
    ):
        rows.append([label, *(f"{slowest(ranks, phases, kind):.2f}" for ranks in measured.values())])
    sent = [slowest(ranks, (*host, ENGINE), "bytes") / 2**20 for ranks in measured.values()]
    rows.append(["MB sent by a rank", *(f"{value:.1f}" for value in sent)])
    peaks = [max(record["peak"] for record in ranks) / 1024 for ranks in measured.values()]
    rows.append(["GB of a rank at its peak", *(f"{value:.2f}" for value in peaks)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4, help="of each case; the first does not count (default: 4)")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--response-tokens", type=int, default=3072, help="limit of a response (default: 3072)")
    parser.add_argument("--cases", nargs="+", action="extend", metavar="N:K:LENGTH")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model", VOCABULARY, hidden=16, layers=1)
        save_wide_tokenizer(folder / "model", VOCABULARY)
        write_problems(folder / "problems.jsonl", 4 * args.prompts)
        measured = {case: run_case(case, args, folder) for case in args.cases or CASES}
    title = (
        f"Host work of a step on {args.ranks} ranks: {args.prompts} x {args.group} responses of up to "
        f"{args.response_tokens:,} tokens, {args.steps - 1} steps"
    )
    columns = ["CPU seconds of the slowest rank", *measured]
    publish("rehearsal", title, columns, rows_of(measured), {"arguments": vars(args), "measured": measured})


if __name__ == "__main__":
    main()
