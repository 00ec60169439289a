"""What `make demo` ends with: the table before and after, the picture, and what to try next."""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from d3s.report.png import draw_demo_picture


def main(run: Path, before: Path, after: Path) -> None:
    """Reads the run directory and the two summaries that eval.py wrote."""
    results = [json.loads((folder / "summary.json").read_text())["results"][0] for folder in (before, after)]
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    table = Table(title=f"{results[0]['problems']} test problems, {results[0]['n']} samples each: %, 95 % intervals")
    for heading in ("", "Pass@1", "Pass@8", "maj@n", "tokens"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, result in zip(("base model", "after D3S"), results):
        cells = []
        for metric in ("pass@1", "pass@8", "maj@n"):
            low, high = result[f"{metric}_ci"]
            cells.append(f"{100 * result[metric]:.1f} ({100 * low:.1f}-{100 * high:.1f})")
        table.add_row(name, *cells, f"{result['mean_length']:.1f}")
    console = Console(highlight=False)
    console.print(table)
    last = steps[-1]
    share = last["tokens_trained"] / last["tokens_generated"]
    console.print(
        f"{last['step']} steps in {sum(s['time/step'] for s in steps):.0f} s: {last['tokens_generated']:,} tokens "
        f"sampled, {last['tokens_trained']:,} of them ({100 * share:.1f} %) trained."
    )
    console.print(f"The picture of it: {draw_demo_picture(run)}\n")
    console.print("Try next:")
    console.print(
        "  .venv/bin/python train.py --config configs/tiny.yaml configs/method/grpo.yaml train.output_dir=runs/grpo"
    )
    console.print(f"  .venv/bin/python -m d3s.report {run} runs/grpo")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
