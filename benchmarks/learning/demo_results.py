"""Write what `make demo` reached into README.md and docs/results.md, and its picture to docs/demo.png.

make demo && python -m benchmarks.learning.demo_results
"""

import json
import shutil
from pathlib import Path

from benchmarks.harness import ROOT, machine, markdown
from benchmarks.learning.ablation import DOCS, write_between_marks
from d3s.report.png import draw_demo_picture

METRICS = {"pass@1": "Pass@1", "pass@8": "Pass@8", "maj@n": "maj@8"}


def tables(run: Path) -> tuple[str, str]:
    """The README's sentence, and the section of docs/results.md, of a run directory with both evaluations."""
    before, after = (
        json.loads((run / f"eval-{when}" / "summary.json").read_text())["results"][0] for when in ("before", "after")
    )
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last, about = steps[-1], machine()
    share = last["tokens_trained"] / last["tokens_generated"]
    rows = [
        [name, *(_interval(result, metric) for metric in METRICS), f"{result['mean_length']:.1f}"]
        for name, result in (("base model", before), ("after D3S", after))
    ]
    seconds = sum(step["time/step"] for step in steps)
    picture = "![Pass@1 and Pass@8, reward, entropy, N and K, tokens trained over the run]"
    sentence = (
        f"Pass@1 goes from {before['pass@1']:.0%} to {after['pass@1']:.0%} on {after['problems']} test problems; "
    )
    sentence += f"{share:.0%} of the sampled tokens were trained (one seed).\n\n{picture}(docs/demo.png)\n"
    text = f"Seed 0, {last['step']} steps, {seconds:.0f} s of training steps ({about['cpu']}), code at "
    text += f"{about['revision']}. Of {last['tokens_generated']:,} sampled tokens {last['tokens_trained']:,} "
    text += (
        f"({share:.1%}) were trained. {after['problems']} test problems, {after['n']} samples each, in %, with 95 % "
    )
    text += f"intervals over problems:\n\n{markdown(['', *METRICS.values(), 'tokens'], rows)}\n"
    return sentence, text


def _interval(result: dict, metric: str) -> str:
    return f"{100 * result[metric]:.1f} ({' to '.join(f'{100 * end:.1f}' for end in result[f'{metric}_ci'])})"


def main() -> None:
    run = ROOT / "runs" / "demo"
    sentence, text = tables(run)
    shutil.copy(draw_demo_picture(run), DOCS / "demo.png")
    write_between_marks(ROOT / "README.md", "demo", sentence)
    write_between_marks(DOCS / "results.md", "demo", text)


if __name__ == "__main__":
    main()
