"""Time full training steps of d3s and of TRL, each with vLLM in its process.

    python -m benchmarks.speed.step [--rounds 7]      (make bench-step)

A step is sync, generate, reward, select and update. D3S in the middle of the paper's schedule (N = 20 of G = 32
rollouts, K = 12.5 % of their tokens), d3s without selection (N = G, K = 100 %), and TRL. All have the same random
model, prompts, reward function (a coin, so that groups have unequal rewards), optimizer and micro-batches. TRL needs
three changes to run with vLLM on a CPU, see trl_side.patch_vllm; its importance-sampling correction, which would cost
it a forward pass, is off.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.harness import TRL_PYTHON, Side, alternate, median, publish, serve, with_spread
from benchmarks.speed.workload import add_model_arguments, model_label, place_model, results_name

TRL_ENVIRONMENT = ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND", "TORCHDYNAMO_DISABLE")
PHASES = ("generate", "exchange", "logprobs", "select", "update", "sync")
COLUMNS = ["side", "seconds", "CPU seconds", "to D3S", "generate", "update", "sync and probe", "share of sync"]


def serve_d3s(folder: Path, n: int, k: float) -> None:
    """Measure the trainer's own steps, as its loop makes them."""
    from d3s.config.load import load_config
    from d3s.trainer import Trainer

    work = json.loads((folder / "work.json").read_text())
    overrides = {
        "model.name": folder / "model",
        "data.template": "plain",
        "rollout.num_generations": work["group"],
        "rollout.max_completion_length": work["response_tokens"],
        "reward.functions": "[benchmarks.speed.workload:coin]",
        "schedule.n_init": n,
        "schedule.n_final": n,
        "schedule.k_init": k,
        "schedule.k_final": k,
        "loss.normalizer": "selected" if k < 1 else "sequence",
        "optim.learning_rate": work["learning_rate"],
        "train.output_dir": folder / f"run-{n}",
        "train.steps": 10**6,
        "train.prompts_per_step": work["rollouts"] // work["group"],
        "train.max_tokens_per_microbatch": work["micro_batch"] * work["longest"],
        "tracker.samples_every": 0,
    }
    trainer = Trainer(load_config([], [f"{key}={value}" for key, value in overrides.items()]))

    def step() -> dict:
        trainer.seconds = {}
        metrics = trainer.advance()
        tokens = {"forwarded": metrics["selection/tokens_forwarded"], "selected": metrics["selection/tokens"]}
        return {phase: trainer.seconds.get(phase, 0.0) for phase in PHASES} | tokens

    serve(step)


def write_work(folder: Path, args: argparse.Namespace) -> None:
    """Write the model and the settings of the sides, from arguments as in parse_arguments."""
    from d3s.data.problems import load_problems

    place_model(folder / "model", args.vocabulary, args)
    work = {
        "group": args.group,
        "rollouts": args.prompts * args.group,
        "micro_batch": args.micro_batch,
        "response_tokens": args.response_tokens,
        "longest": args.response_tokens + 16,
        "temperature": 1.0,
        "learning_rate": 1e-6,
        "texts": [p.problem for p in load_problems("synthetic:precedence", split="train", limit=256)],
    }
    (folder / "work.json").write_text(json.dumps(work))


def start_d3s(folder: Path, n: int, k: float) -> Side:
    """Start a process that runs d3s steps with N = n and K = k."""
    return Side(["benchmarks.speed.step", "--side", f"{n}:{k}", "--folder", str(folder)], folder / f"d3s-{n}.log")


def start_trl(folder: Path) -> Side:
    """Start TRL's process. It gets those of d3s's vLLM settings that change how fast an engine in the process runs."""
    from d3s.rollout.vllm_setup import vllm_environment

    environment = {name: value for name, value in vllm_environment().items() if name in TRL_ENVIRONMENT}
    module = ["benchmarks.speed.trl_side", "step", str(folder)]
    return Side(module, folder / "trl.log", str(TRL_PYTHON), environment)


def time_steps(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """The measurements of all sides."""
    write_work(folder, args)
    n, k = args.kept or args.group * 5 // 8, args.fraction
    sides = {
        f"D3S, N = {n} of {args.group}, K = {100 * k:g} %": start_d3s(folder, n, k),
        "d3s without selection": start_d3s(folder, args.group, 1.0),
    }
    if TRL_PYTHON.exists():
        sides["TRL"] = start_trl(folder)
    return alternate(sides, args.rounds, warmup=2)


def rows_of(reports: dict[str, list[dict]]) -> list[list[str]]:
    """One row per side, with its CPU seconds relative to the first side."""
    base = median(next(iter(reports.values())), "cpu")
    rows = []
    for name, measurements in reports.items():
        measured = measurements[0].keys()
        phases = [f"{median(measurements, p):.2f}" if p in measured else "" for p in ("generate", "update", "sync")]
        share = median(measurements, "sync") / median(measurements, "wall") if "sync" in measured else None
        ratio = f"{median(measurements, 'cpu') / base:.1f}x"
        seconds = [with_spread(measurements, key, 2) for key in ("wall", "cpu")]
        rows.append([name, *seconds, ratio, *phases, "" if share is None else f"{share:.1%}"])
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--response-tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--kept", type=int, help="N of D3S (default: 5/8 of G)")
    parser.add_argument("--fraction", type=float, default=0.125, help="K of D3S")
    add_model_arguments(parser)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.side:
        n, k = args.side.split(":")
        serve_d3s(args.folder, int(n), float(k))
        return
    with tempfile.TemporaryDirectory() as name:
        reports = time_steps(args, Path(name))
    title = (
        f"A training step: {args.prompts} x {args.group} responses of {args.response_tokens} tokens, "
        f"{model_label(args, args.vocabulary)}, {args.rounds} rounds"
    )
    record = {"arguments": vars(args), "measurements": reports}
    notes = "TRL's `generate` is everything before its update: weight sync, generation, rewards."
    publish(results_name("step", args), title, COLUMNS, rows_of(reports), record, notes)


if __name__ == "__main__":
    main()
