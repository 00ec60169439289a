"""Sampled responses with the tokens that selection kept, as a terminal table or a page.

    python -m d3s.report.samples runs/d3s [--step 40] [--limit 8] [--html samples.html]

The color of a token is |A| x H; on a page, kept tokens are boxed. The kept tokens show quickly whether a selection is
sensible, and whether the template, the verifier or the entropies are wrong. Responses may be hostile text: control
characters are replaced, and markup is escaped in pages.
"""

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from d3s.common import UserError, disk_error, exit_code, printable, read_json_lines
from d3s.report.html import html_text, render_page

PRIORITY_STYLES = ((0.66, "red"), (0.33, "yellow"), (0.0, ""))  # terminal colors by share of the largest |A| x H


def load_samples(run_dir: Path, step: int | None = None) -> tuple[int, list[dict]]:
    """Return (step, records) of the samples of `step`, by default the newest.

    Responses with kept tokens are first, dropped ones last. Fields whose type is not the one that the tracker writes
    are left out. Raises: UserError if there are no samples.
    """
    numbered = ((path.stem.removeprefix("step_"), path) for path in sorted(Path(run_dir).glob("samples/step_*.jsonl")))
    files = {int(number): path for number, path in numbered if number.isdecimal() and path.is_file()}
    if not files:
        raise UserError(f"{run_dir}: no file samples/step_*.jsonl; train with tracker.samples_every above 0")
    if step is not None and step not in files:
        known = ", ".join(map(str, files)) if len(files) <= 12 else f"{min(files)} ... {max(files)}"
        raise UserError(f"--step: got {step}, expected a step with samples in {run_dir}: {known}")
    step = max(files) if step is None else step
    try:
        records = read_json_lines(files[step])
    except OSError as error:
        raise UserError(f"{files[step]}: cannot be read ({error.strerror})") from error
    records = [{key: value for key, value in record.items() if _fits(key, value)} for record in records]
    if not records:
        raise UserError(f"{files[step]}: no samples in it; choose another --step")
    return step, sorted(records, key=lambda record: (not any(_kept(record)), not record.get("selected", True)))


def _fits(key: str, value: object) -> bool:
    if key in ("tokens", "entropies", "kept"):
        kinds = {"tokens": str, "entropies": (int, float, type(None)), "kept": (bool, int)}
        return isinstance(value, list) and all(isinstance(item, kinds[key]) for item in value)
    if key in ("reward", "advantage"):
        return isinstance(value, int | float) and abs(value) < 1e300
    return isinstance(value, bool if key == "selected" else str)


def token_priorities(record: dict) -> list[float]:
    """Return |A| x H of every token, 0 if the entropy is unknown, as it may be in dropped rollouts."""
    advantage = abs(record.get("advantage") or 0.0)
    entropies = record.get("entropies") or []
    priorities = [advantage * h if h is not None and 0 <= h < 1e6 else 0.0 for h in entropies]  # NaN: not recorded
    return (priorities + [0.0] * len(_tokens(record)))[: len(_tokens(record))]


def samples_table(records: Sequence[dict], brackets: bool) -> Table:
    """Return a terminal table, one response per row. `brackets` marks kept tokens by ⟦ ⟧ for outputs without color."""
    title = "⟦ ⟧: kept tokens" if brackets else "color: |A|×H; reversed: kept tokens"
    table = Table(title=title, show_lines=True, expand=True)
    for name, justify in (("problem", "left"), ("reward", "right"), ("A", "right"), ("kept", "right")):
        table.add_column(name, justify=justify, max_width=32 if name == "problem" else None)
    table.add_column("response", ratio=1, overflow="fold")
    top = _largest_priority(records)
    for record in records:
        kept, text = _kept(record), Text()
        for token, priority, keep in zip(_tokens(record), token_priorities(record), kept):
            color = next(style for bound, style in PRIORITY_STYLES if priority >= bound * top)
            shown = printable(token)
            text.append(f"⟦{shown}⟧" if keep and brackets else shown, style=f"{color} {'bold reverse' * keep}".strip())
        if not record.get("selected", True):
            text.stylize("dim")
        problem = Text(printable(f"{_clip(record.get('problem', ''), 300)}\n→ {record.get('answer', '')}"))
        count = f"{sum(kept)}/{len(kept)}" if record.get("selected", True) else "dropped"
        table.add_row(problem, f"{record.get('reward') or 0:g}", f"{record.get('advantage') or 0:+.2f}", count, text)
    return table


def samples_html(records: Sequence[dict]) -> str:
    """Return the samples as an HTML fragment, grouped by problem, with every text escaped."""
    top = _largest_priority(records)
    parts = [
        '<p class="key"><span class="scale"></span> |A|×H from 0 to '
        f'{top:.3g} &nbsp; <span class="tok kept">kept</span> carries gradient &nbsp; '
        '<span class="dropped">faded: dropped rollout</span></p>'
    ]
    by_problem: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        by_problem.setdefault((record.get("problem", ""), record.get("answer", "")), []).append(record)
    for (problem, answer), members in by_problem.items():
        parts.append(f'<section class="problem"><h3>{html_text(_clip(problem, 2000))}</h3>')
        parts.append(f'<p class="gold">gold answer <b>{html_text(answer)}</b></p>')
        parts += [_response_html(record, top) for record in members]
        parts.append("</section>")
    return "\n".join(parts)


def _response_html(record: dict, top: float) -> str:
    selected, kept = record.get("selected", True), _kept(record)
    entropies = record.get("entropies") or []
    tokens = []
    for i, (token, priority, keep) in enumerate(zip(_tokens(record), token_priorities(record), kept)):
        shown = printable(token).replace("\n", "↵\n") or "·"
        known = i < len(entropies) and entropies[i] is not None
        tooltip = f' title="H {entropies[i]:.3f}, |A|×H {priority:.3f}"' if known else ""
        level = f' style="--h:{priority / top:.2f}"' if priority >= 0.01 * top else ""
        tokens.append(f'<span class="tok{" kept" * keep}"{level}{tooltip}>{escape(shown)}</span>')
    share = f"{sum(kept)} of {len(kept)} tokens kept" if selected else "dropped"
    facts = f"reward {record.get('reward') or 0:g} · A {record.get('advantage') or 0:+.2f} · {share}"
    verdict = "right" if (record.get("reward") or 0) > 0 else "wrong"
    return (
        f'<article class="response {verdict}{"" if selected else " dropped"}"><p class="facts">{facts}</p>'
        f'<div class="tokens">{"".join(tokens)}</div></article>'
    )


def _tokens(record: dict) -> list[str]:
    return record.get("tokens") or [record.get("response", "")]


def _kept(record: dict) -> list[bool]:
    kept, count = [bool(k) for k in record.get("kept") or []], len(_tokens(record))
    return (kept + [False] * count)[:count]


def _largest_priority(records: Sequence[dict]) -> float:
    return max((priority for record in records for priority in token_priorities(record)), default=0.0) or 1.0


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse `arguments`, by default those of the process, and show the samples."""
    parser = argparse.ArgumentParser(
        prog="python -m d3s.report.samples", description="Show sampled responses with the tokens that selection kept."
    )
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--step", type=int, help="step of the samples (default: the newest)")
    parser.add_argument("--limit", type=int, default=8, metavar="N", help="show at most N responses (default: 8)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained page instead of a table")
    options = parser.parse_args(arguments)
    if options.limit < 1:
        raise UserError(f"--limit: got {options.limit}, expected at least 1")
    step, records = load_samples(options.run, options.step)
    records = records[: options.limit]
    if not options.html:
        console = Console()
        console.print(samples_table(records, brackets=not console.is_terminal or console.no_color))
        return
    title = f"{options.run.resolve().name}: samples of step {step}"
    try:
        options.html.write_text(render_page(title, samples_html(records)), encoding="utf-8")
    except OSError as error:
        raise disk_error(options.html, error, "choose another --html") from None
    print(options.html)


if __name__ == "__main__":
    sys.exit(exit_code(main))
