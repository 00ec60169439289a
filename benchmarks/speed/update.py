"""Time one update, from rewards to optimizer step: D3S, dense GRPO, and TRL's GRPOTrainer.

    python -m benchmarks.speed.update [--vocabularies 1000,32000,150000] [--rounds 7]      (make bench-update)
    python -m benchmarks.speed.update --distill     (the sides: distillation on 5, 20, 50 and 100 % of the tokens)

First checks that the losses of d3s and TRL are equal where their options coincide, and ends with exit code 1 if not.
Then every side runs one update per round on the same rollouts, in a process of its own; a column has the median of the
rounds (smallest-largest). `peak` is the memory above what was resident before the update (parameters and AdamW's
moments): gradients, activations, logits. TRL is omitted, with a notice, where .venv-trl is missing.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.harness import TRL_PYTHON, Side, alternate, median, publish, with_spread
from benchmarks.speed.workload import add_model_arguments, make_rollouts, model_label, place_model, results_name

TOLERANCE = 1e-5
COLUMNS = ["vocabulary", "side", "seconds", "CPU seconds", "to the first", "peak MB", "to the first"]
DISTILLED = (0.05, 0.2, 0.5, 1.0)  # fractions K


def write_work(folder: Path, vocabulary: int, args: argparse.Namespace, ragged: bool = False, **more) -> None:
    """Write a model and rollouts for the sides; at learning rate 1e-6 every round does the same work."""
    if not (folder / "model").exists():
        place_model(folder / "model", vocabulary, args)
    prompts = args.rollouts // args.group
    rollouts = make_rollouts(vocabulary, prompts, args.group, args.prompt_tokens, args.response_tokens, ragged)
    work = {
        "group": args.group,
        "rollouts": args.rollouts,
        "micro_batch": args.micro_batch,
        "response_tokens": args.response_tokens,
        "temperature": 1.0,
        "learning_rate": 1e-6,
    }
    (folder / "work.json").write_text(json.dumps(work | rollouts | more))


def start_d3s(folder: Path, kind: str) -> Side:
    log = folder / f"{kind.replace(':', '-')}.log"
    return Side(["benchmarks.speed.d3s_side", kind, str(folder)], log)


def start_trl(folder: Path, kind: str) -> Side:
    return Side(["benchmarks.speed.trl_side", kind, str(folder)], folder / "trl.log", str(TRL_PYTHON))


# --- losses ----------------------------------------------------------------------------------------------------------


def compare_losses(args: argparse.Namespace, console: Console) -> dict:
    """Losses and gradient norms of three optimizer steps on one ragged batch at temperature 0.7, by d3s and by TRL."""
    outcomes = {}
    for loss in ("grpo", "dapo"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            more = {"loss": loss, "iterations": 3, "temperature": 0.7, "learning_rate": 1e-3}
            write_work(folder, 1000, args, ragged=True, **more)
            sides = {"d3s": start_d3s(folder, "losses"), "trl": start_trl(folder, "losses")}
            reports = alternate(sides, rounds=1, warmup=0)
        d3s, trl = (reports[side][0] for side in sides)
        gap = max(abs(a - b) for a, b in zip(d3s["loss"], trl["loss"], strict=True))
        norms = zip(d3s["grad_norm"], trl["grad_norm"], strict=True)
        outcomes[loss] = {"d3s": d3s, "trl": trl, "gap": gap, "norm_gap": max(abs(a / b - 1) for a, b in norms)}
        d3s_losses, trl_losses = (" ".join(f"{x:+.6f}" for x in side["loss"]) for side in (d3s, trl))
        console.print(
            f"{loss}: d3s {d3s_losses}, TRL {trl_losses}: largest difference {gap:.1e}, "
            f"of gradient norms {outcomes[loss]['norm_gap']:.1e} (relative)",
            highlight=False,
        )
    return outcomes


# --- seconds and memory ----------------------------------------------------------------------------------------------


def time_updates(vocabulary: int, args: argparse.Namespace) -> dict[str, list[dict]]:
    """The measurements of all sides at one vocabulary size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_work(folder, vocabulary, args)
        if args.distill:
            sides = {f"distillation, K = {k:.0%}": start_d3s(folder, f"distill:{k}") for k in DISTILLED}
            return alternate(sides, args.rounds)
        sides = {
            "D3S, N = G/4, K = 5 %": start_d3s(folder, f"{args.group // 4}:0.05"),
            "d3s without selection": start_d3s(folder, f"{args.group}:1.0"),
            "dense GRPO": start_d3s(folder, "dense"),
        }
        if TRL_PYTHON.exists():
            sides["TRL"] = start_trl(folder, "update")
        return alternate(sides, args.rounds)


def rows_of(vocabulary: int, reports: dict[str, list[dict]]) -> list[list[str]]:
    """One row per side, with its seconds and memory relative to the first side."""
    first = next(iter(reports.values()))
    base = {key: median(first, key) for key in ("cpu", "peak")}
    rows = []
    for name, measurements in reports.items():
        ratios = [f"{median(measurements, key) / base[key]:.1f}x" for key in ("cpu", "peak")]
        seconds = [with_spread(measurements, key) for key in ("wall", "cpu")]
        rows.append([f"{vocabulary:,}", name, *seconds, ratios[0], with_spread(measurements, "peak", 0), ratios[1]])
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", default="1000,32000,150000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=8, help="rollouts per micro-batch; for d3s as many tokens")
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--response-tokens", type=int, default=64)
    parser.add_argument("--distill", action="store_true", help="sides: on-policy distillation by K")
    add_model_arguments(parser)
    return parser.parse_args()


def main() -> int:
    args, console = parse_arguments(), Console()
    equal = None
    if TRL_PYTHON.exists() and not args.distill:
        equal = compare_losses(argparse.Namespace(**vars(args) | {"model": None}), console)
        if max(outcome["gap"] for outcome in equal.values()) > TOLERANCE:
            console.print(f"The losses differ by more than {TOLERANCE}; the times would compare different computations")
            return 1
    elif not args.distill:
        console.print(".venv-trl is missing; TRL is omitted (make .venv-trl/.installed)")
    rows, record = [], {}
    vocabularies = map(int, args.vocabularies.split(","))
    if args.model:
        vocabularies = [json.loads((args.model / "config.json").read_text())["vocab_size"]]
    for vocabulary in vocabularies:
        record[vocabulary] = time_updates(vocabulary, args)
        rows += rows_of(vocabulary, record[vocabulary])
    title = (
        f"One update: {args.rollouts} rollouts of {args.prompt_tokens} + {args.response_tokens} tokens, "
        f"{model_label(args)}, float32, 1 thread, {args.rounds} rounds"
    )
    record = {"arguments": vars(args), "equal": equal, "measurements": record}
    publish(results_name("update-distill" if args.distill else "update", args), title, COLUMNS, rows, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
