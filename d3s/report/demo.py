"""Results of `make demo`: accuracy before and after training, tokens used, a picture, next commands.

python -m d3s.report.demo RUN
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from d3s.common import UserError, exit_code, read_json_lines
from d3s.report.png import draw_demo_picture


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse `arguments`, by default those of the process, and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m d3s.report.demo", description="Print the results of the demo: before and after training."
    )
    parser.add_argument("run", type=Path, help="run directory, with an evaluation before and after training")
    options = parser.parse_args(arguments)
    steps, evaluations = (read_json_lines(options.run / name, warn=True) for name in ("metrics.jsonl", "eval.jsonl"))
    if not steps or len(evaluations) < 2:
        raise UserError(f"{options.run}: no metrics or evaluations of a whole run; run make demo")
    console = Console(highlight=False, soft_wrap=True)
    console.print(results_table(evaluations[0], evaluations[-1]))
    console.print(f"\n{training_summary(steps)}\nPicture: {draw_demo_picture(options.run)}")
    config = options.run / "config.yaml"
    console.print(
        "\nCompare with plain GRPO:\n"
        f"  .venv/bin/python train.py --config {config} configs/method/grpo.yaml train.output_dir=runs/grpo\n"
        f"  .venv/bin/python -m d3s.report {options.run} runs/grpo\n"
        "Evaluate with more samples:\n"
        f"  .venv/bin/python eval.py --run {options.run} --limit 256 --n 32 --k 1,8,32"
    )


def results_table(before: dict, after: dict) -> Table:
    """Return a table of two lines of eval.jsonl: Pass@k, majority vote in % with 95 % intervals; length."""
    n, metrics = before["n"], [name for name in before if name.startswith(("pass@", "maj@")) and f"{name}_ci" in after]
    table = Table(
        title=f"Accuracy on {before['problems']} test problems, {n} samples each: % (95% interval)",
        caption=f"Maj@{n}: majority vote over the {n} samples; tokens: mean response length",
    )
    table.add_column("")
    for name in (*metrics, "tokens"):
        table.add_column(name.replace("@n", f"@{n}").capitalize() if "@" in name else name, justify="right")
    for name, result in (("before D3S", before), ("after D3S", after)):
        cells = []
        for metric in metrics:
            low, high = result[f"{metric}_ci"]
            cells.append(f"{100 * result[metric]:.1f} ({100 * low:.1f}-{100 * high:.1f})")
        table.add_row(name, *cells, f"{result['mean_length']:.1f}")
    return table


def training_summary(steps: Sequence[dict]) -> str:
    """Return the duration of the training, without evaluations, how many of its tokens it used, and N and K."""
    first, last, seconds = steps[0], steps[-1], sum(step["time/step"] for step in steps)
    trained, generated = last["tokens_trained"], last["tokens_generated"]
    ends = [f"N = {step['schedule/n']:.0f}, K = {step['schedule/k']:.0%}" for step in (first, last)]
    schedule = f"{ends[0]} throughout" if ends[0] == ends[1] else f"{ends[0]} at first, {ends[1]} at the end"
    return (
        f"Training took {last['step']} steps and {seconds:.0f} s, without evaluations.\n"
        f"It generated {generated:,} tokens and trained on {trained:,} of them ({100 * trained / generated:.1f}%).\n"
        f"{schedule}."
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
