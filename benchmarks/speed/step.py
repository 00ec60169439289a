"""A whole training step (sync, generate, reward, select, update) of d3s and of TRL, with vLLM inside both processes.

    python -m benchmarks.speed.step [--rounds 7]      (make bench-step)

The middle of the paper's schedule: N = 20 of G = 32 rollouts, K = 12.5 % of their tokens; beside it, d3s training all
of them (N = G, K = 100 %) and TRL. The same random model, prompts, reward function (a coin, so that groups are mixed),
optimizer and micro-batches. TRL needs three changes to run with vLLM on a CPU, see trl_side.patch_vllm; its
importance-sampling correction, which would cost it a scoring pass, is off.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import TRL_PYTHON, Side, median, publish, race, save_model, serve, with_spread

TRL_ENVIRONMENT = ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND", "TORCHDYNAMO_DISABLE")
PHASES = ("generate", "exchange", "score", "select", "update", "sync")


def our_side(folder: Path, keep: int, fraction: float) -> None:
    """The trainer's own step(), as train() calls it."""
    from d3s.config.load import load_config
    from d3s.trainer import Trainer

    work = json.loads((folder / "work.json").read_text())
    overrides = {
        "model.name": folder / "model",
        "rollout.num_generations": work["group"],
        "rollout.max_completion_length": work["response_tokens"],
        "reward.function": "benchmarks.harness:coin",
        "schedule.n_init": keep,
        "schedule.n_final": keep,
        "schedule.k_init": fraction,
        "schedule.k_final": fraction,
        "loss.normalizer": "selected" if fraction < 1 else "sequence",
        "optim.learning_rate": work["learning_rate"],
        "train.output_dir": folder / f"run-{keep}",
        "train.steps": 10**6,
        "train.prompts_per_step": work["rollouts"] // work["group"],
        "train.max_tokens_per_microbatch": work["micro_batch"] * work["longest"],
        "tracker.samples_every": 0,
    }
    trainer = Trainer(load_config([], [f"{key}={value}" for key, value in overrides.items()]))

    def turn() -> dict:
        trainer.seconds = {}
        metrics = trainer.step()
        trainer.state.step += 1
        tokens = {"forwarded": metrics["selection/tokens_forwarded"], "selected": metrics["selection/tokens"]}
        return {phase: trainer.seconds.get(phase, 0.0) for phase in PHASES} | tokens

    serve(turn)


def write_work(folder: Path, args: argparse.Namespace) -> None:
    """The model and what the sides are to do with it; args as of parse_arguments."""
    from d3s.data.problems import load_problems

    save_model(folder / "model", args.vocabulary, args.hidden, args.layers)
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


def ours(folder: Path, keep: int, fraction: float) -> Side:
    """Starts a side of ours."""
    side = ["--side", f"{keep}:{fraction}", "--folder", str(folder)]
    return Side([sys.executable, "-m", "benchmarks.speed.step", *side], folder / f"ours-{keep}.log")


def run(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """The turns of all sides."""
    from d3s.rollout.vllm_setup import vllm_environment

    write_work(folder, args)
    keep = args.group * 5 // 8
    sides = {
        f"D3S, N = {keep} of {args.group}, K = 12.5 %": ours(folder, keep, 0.125),
        "ours, all": ours(folder, args.group, 1.0),
    }
    if TRL_PYTHON.exists():
        command = [str(TRL_PYTHON), "-m", "benchmarks.speed.trl_side", "step", str(folder)]
        environment = {name: value for name, value in vllm_environment().items() if name in TRL_ENVIRONMENT}
        sides["TRL"] = Side(command, folder / "trl.log", environment)
    try:
        return race(sides, args.rounds, warmup=2)
    finally:
        for side in sides.values():
            side.close()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--response-tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.side:
        keep, fraction = args.side.split(":")
        our_side(args.folder, int(keep), float(fraction))
        return
    with tempfile.TemporaryDirectory() as name:
        reports = run(args, Path(name))
    base = median(next(iter(reports.values())), "cpu")
    rows = []
    for name, turns in reports.items():
        phases = [f"{median(turns, p):.2f}" if p in turns[0] else "" for p in ("generate", "update", "sync")]
        sync = f"{median(turns, 'sync') / median(turns, 'wall'):.1%}" if "sync" in turns[0] else ""
        ratio = f"{median(turns, 'cpu') / base:.1f}x"
        rows.append([name, with_spread(turns, "wall", 2), with_spread(turns, "cpu", 2), ratio, *phases, sync])
    title = (
        f"A training step: {args.prompts} x {args.group} responses of {args.response_tokens} tokens, "
        f"{args.layers} layers x {args.hidden}, vocabulary {args.vocabulary:,}, {args.rounds} turns"
    )
    columns = ["side", "seconds", "CPU seconds", "to D3S", "generate", "update", "sync and probe", "share of sync"]
    notes = "TRL's `generate` is all that comes before its update: weight sync, generation, rewards."
    publish("step", title, columns, rows, {"arguments": vars(args) | {"folder": ""}, "turns": reports}, notes)


if __name__ == "__main__":
    main()
