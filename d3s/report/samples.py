"""Sample responses and what selection kept of them: a terminal table, and a page (color = |A| x H, kept boxed).

    python -m d3s.report.samples runs/d3s [--step 40] [--limit 8] [--html samples.html]

Seeing what is kept is the fastest way to trust a selection, or to find that the template, the verifier or the entropies
are wrong. Responses are hostile text: control characters are made visible here, markup is escaped in pages.
"""

import argparse
import sys
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from d3s.common import UserError, printable, read_json_lines
from d3s.report.html import html_text, render_page

HEAT_STYLES = ((0.66, "red"), (0.33, "yellow"), (0.0, ""))  # terminal colors by share of the largest |A| x H


def load_samples(run_dir: Path, step: int | None = None) -> tuple[int, list[dict]]:
    """(step, records) of the samples of `step`, by default the newest. Raises UserError where there are none.

    Fields of another type than the tracker writes are left out of the records.
    """
    numbered = ((path.stem.removeprefix("step_"), path) for path in sorted(Path(run_dir).glob("samples/step_*.jsonl")))
    files = {int(number): path for number, path in numbered if number.isdecimal() and path.is_file()}
    if not files:
        raise UserError(f"{run_dir} has no samples: there is no file samples/step_*.jsonl (tracker.samples_every: 0?).")
    if step is not None and step not in files:
        known = ", ".join(map(str, files)) if len(files) <= 12 else f"{min(files)} ... {max(files)}"
        raise UserError(f"{run_dir} has no samples of step {step}; it has those of {known}.")
    step = max(files) if step is None else step
    try:
        records = read_json_lines(files[step])
    except OSError as error:
        raise UserError(f"{files[step]}: cannot be read ({error.strerror})") from error
    records = [{key: value for key, value in record.items() if _fits(key, value)} for record in records]
    if not records:
        raise UserError(f"{files[step]}: holds no samples")
    return step, records


def _fits(key: str, value: object) -> bool:
    if key in ("tokens", "entropies", "kept"):
        kinds = {"tokens": str, "entropies": (int, float, type(None)), "kept": (bool, int)}
        return isinstance(value, list) and all(isinstance(item, kinds[key]) for item in value)
    if key in ("reward", "advantage"):
        return isinstance(value, int | float) and abs(value) < 1e300
    return isinstance(value, bool if key == "selected" else str)


def token_heats(record: dict) -> list[float]:
    """|A| x H of every token; 0 where the entropy is not known, as in rollouts that were dropped unscored."""
    advantage = abs(record.get("advantage") or 0.0)
    entropies = record.get("entropies") or []
    heats = [advantage * h if h is not None and 0 <= h < 1e6 else 0.0 for h in entropies]  # nan: not recorded
    return (heats + [0.0] * len(_tokens(record)))[: len(_tokens(record))]


def samples_table(records: Sequence[dict], brackets: bool) -> Table:
    """A terminal table, one row a response. `brackets` marks kept tokens with ⟦ ⟧ where there is no color to do it."""
    table = Table(title="color: |A|×H, " + ("⟦kept⟧" if brackets else "reversed: kept"), show_lines=True, expand=True)
    for name, justify in (("problem", "left"), ("reward", "right"), ("A", "right"), ("kept", "right")):
        table.add_column(name, justify=justify, max_width=32 if name == "problem" else None)
    table.add_column("response", ratio=1, overflow="fold")
    top = _largest_heat(records)
    for record in records:
        kept, text = _kept(record), Text()
        for token, heat, keep in zip(_tokens(record), token_heats(record), kept):
            color = next(style for bound, style in HEAT_STYLES if heat >= bound * top)
            shown = printable(token)
            text.append(f"⟦{shown}⟧" if keep and brackets else shown, style=f"{color} {'bold reverse' * keep}".strip())
        if not record.get("selected", True):
            text.stylize("dim")
        problem = Text(printable(f"{_clip(record.get('problem', ''), 300)}\n→ {record.get('answer', '')}"))
        count = f"{sum(kept)}/{len(kept)}" if record.get("selected", True) else "dropped"
        table.add_row(problem, f"{record.get('reward') or 0:g}", f"{record.get('advantage') or 0:+.2f}", count, text)
    return table


def samples_html(records: Sequence[dict]) -> str:
    """The samples as an HTML fragment, grouped by problem. Every text in it is escaped."""
    top = _largest_heat(records)
    parts = [
        '<p class="key"><span class="scale"></span> |A|×H from 0 to '
        f'{top:.3g} &nbsp; <span class="tok kept">kept</span> carries gradient &nbsp; '
        '<span class="dropped">faded: dropped rollout</span></p>'
    ]
    for (problem, answer), members in groupby(records, key=lambda r: (r.get("problem", ""), r.get("answer", ""))):
        parts.append(f'<section class="problem"><h3>{html_text(_clip(problem, 2000))}</h3>')
        parts.append(f'<p class="gold">gold answer <b>{html_text(answer)}</b></p>')
        parts += [_response_html(record, top) for record in members]
        parts.append("</section>")
    return "\n".join(parts)


def _response_html(record: dict, top: float) -> str:
    selected, kept = record.get("selected", True), _kept(record)
    entropies = record.get("entropies") or []
    tokens = []
    for i, (token, heat, keep) in enumerate(zip(_tokens(record), token_heats(record), kept)):
        shown = printable(token).replace("\n", "↵\n") or "·"
        known = (
            f' title="H {entropies[i]:.3f}, |A|×H {heat:.3f}"'
            if i < len(entropies) and entropies[i] is not None
            else ""
        )
        level = f' style="--h:{heat / top:.2f}"' if heat >= 0.01 * top else ""
        tokens.append(f'<span class="tok{" kept" * keep}"{level}{known}>{escape(shown)}</span>')
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


def _largest_heat(records: Sequence[dict]) -> float:
    return max((heat for record in records for heat in token_heats(record)), default=0.0) or 1.0


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status: 2 for a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m d3s.report.samples", description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--step", type=int, help="step of the samples; default: the newest")
    parser.add_argument("--limit", type=int, default=8, metavar="N", help="show at most N responses (default 8)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained page instead")
    options = parser.parse_args(arguments)
    try:
        if options.limit < 1:
            raise UserError(f"--limit is {options.limit}, must be at least 1")
        step, records = load_samples(options.run, options.step)
        records = records[: options.limit]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not options.html:
        console = Console()
        console.print(samples_table(records, brackets=not console.is_terminal or console.no_color))
        return 0
    try:
        title = f"{options.run.resolve().name}: samples of step {step}"
        options.html.write_text(render_page(title, samples_html(records)), encoding="utf-8")
    except OSError as error:
        print(f"error: cannot write {options.html} ({error.strerror}); choose another --html.", file=sys.stderr)
        return 2
    print(options.html)
    return 0


if __name__ == "__main__":
    sys.exit(main())
