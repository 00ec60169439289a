"""One update, from rewards to the optimizer's step: D3S, dense GRPO, and TRL's GRPOTrainer on the same rollouts.

    python -m benchmarks.speed.update [--vocabularies 1000,32000,150000] [--rounds 7]      (make bench-update)

First shows that our loss and TRL's are equal where the options coincide; ends with exit code 1 if they are not. Then
every side does one update per turn in a process of its own; a column is the median of the turns (smallest-largest).
`peak` is memory above what was resident before the update began (parameters and AdamW's moments): gradients,
activations, logits. TRL is left out, with a word, where .venv-trl is missing.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.harness import TRL_PYTHON, Side, make_rollouts, median, publish, race, save_model, with_spread

TOLERANCE = 1e-5


def write_work(folder: Path, vocabulary: int, args: argparse.Namespace, **more) -> None:
    """A model and rollouts for the sides to read; at learning rate 1e-6 every turn does the same work."""
    if not (folder / "model").exists():
        save_model(folder / "model", vocabulary, args.hidden, args.layers)
    prompts = args.rollouts // args.group
    rollouts = make_rollouts(
        vocabulary, prompts, args.group, args.prompt_tokens, args.response_tokens, more.pop("ragged", False)
    )
    work = {
        "group": args.group,
        "rollouts": args.rollouts,
        "micro_batch": args.micro_batch,
        "response_tokens": args.response_tokens,
        "temperature": 1.0,
        "learning_rate": 1e-6,
    }
    (folder / "work.json").write_text(json.dumps(work | rollouts | more))


def ours(folder: Path, kind: str) -> Side:
    log = folder / f"{kind.replace(':', '-')}.log"
    return Side([sys.executable, "-m", "benchmarks.speed.d3s_side", kind, str(folder)], log)


def trl(folder: Path, kind: str) -> Side:
    return Side([str(TRL_PYTHON), "-m", "benchmarks.speed.trl_side", kind, str(folder)], folder / "trl.log")


# --- equal? ----------------------------------------------------------------------------------------------------------


def compare_losses(args: argparse.Namespace, console: Console) -> dict:
    """Three optimizer steps on one ragged batch at temperature 0.7, by us and by TRL: losses and gradient norms."""
    outcome = {}
    for loss in ("grpo", "dapo"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            more = {"ragged": True, "loss": loss, "iterations": 3, "temperature": 0.7, "learning_rate": 1e-3}
            write_work(folder, 1000, args, **more)
            sides = [ours(folder, "losses"), trl(folder, "losses")]
            mine, theirs = (side.turn() for side in sides)
            for side in sides:
                side.close()
        gap = max(abs(a - b) for a, b in zip(mine["loss"], theirs["loss"], strict=True))
        norms = zip(mine["grad_norm"], theirs["grad_norm"], strict=True)
        outcome[loss] = {"d3s": mine, "trl": theirs, "gap": gap, "norm_gap": max(abs(a / b - 1) for a, b in norms)}
        shown = " ".join(f"{x:+.6f}" for x in mine["loss"]), " ".join(f"{x:+.6f}" for x in theirs["loss"])
        console.print(
            f"{loss}: ours {shown[0]}, TRL {shown[1]}: largest difference {gap:.1e}, "
            f"of gradient norms {outcome[loss]['norm_gap']:.1e} (relative)",
            highlight=False,
        )
    return outcome


# --- how fast? -------------------------------------------------------------------------------------------------------


def time_updates(vocabulary: int, args: argparse.Namespace) -> dict[str, list[dict]]:
    """The turns of all sides at one size of the vocabulary."""
    keep = args.group // 4
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_work(folder, vocabulary, args)
        sides = {
            "D3S, N = G/4, K = 5 %": ours(folder, f"{keep}:0.05"),
            "ours, N = G, K = 100 %": ours(folder, f"{args.group}:1.0"),
            "dense GRPO": ours(folder, "dense"),
        }
        if TRL_PYTHON.exists():
            sides["TRL"] = trl(folder, "update")
        try:
            return race(sides, args.rounds)
        finally:
            for side in sides.values():
                side.close()


def rows_of(vocabulary: int, reports: dict[str, list[dict]]) -> list[list[str]]:
    """One line per side, with how many times more it takes than D3S."""
    first = next(iter(reports.values()))
    base = {key: median(first, key) for key in ("cpu", "peak")}
    rows = []
    for name, turns in reports.items():
        ratio = median(turns, "cpu") / base["cpu"]
        memory = median(turns, "peak") / base["peak"]
        cells = [with_spread(turns, "wall"), with_spread(turns, "cpu"), f"{ratio:.1f}x", with_spread(turns, "peak", 0)]
        rows.append([f"{vocabulary:,}", name, *cells, f"{memory:.1f}x"])
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", default="1000,32000,150000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=8, help="rollouts; ours: as many tokens")
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--response-tokens", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    return parser.parse_args()


def main() -> int:
    args, console = parse_arguments(), Console()
    equal = None
    if TRL_PYTHON.exists():
        equal = compare_losses(args, console)
        if max(outcome["gap"] for outcome in equal.values()) > TOLERANCE:
            console.print(f"The losses differ by more than {TOLERANCE}: times would compare different things.")
            return 1
    else:
        console.print(".venv-trl is missing (make .venv-trl/.installed): TRL is left out.")
    rows, record = [], {}
    for vocabulary in map(int, args.vocabularies.split(",")):
        record[vocabulary] = time_updates(vocabulary, args)
        rows += rows_of(vocabulary, record[vocabulary])
    title = (
        f"One update: {args.rollouts} rollouts of {args.prompt_tokens} + {args.response_tokens} tokens, "
        f"{args.layers} layers x {args.hidden}, float32, 1 thread, {args.rounds} turns"
    )
    columns = ["vocabulary", "side", "seconds", "CPU seconds", "to D3S", "peak MB", "to D3S"]
    publish("update", title, columns, rows, {"arguments": vars(args), "equal": equal, "turns": record})
    return 0


if __name__ == "__main__":
    sys.exit(main())
