"""Sampled responses with the tokens that were trained and why, as a terminal table or a page.

    python -m d3s.report.samples runs/d3s [--step 40] [--limit 8] [--html samples.html] [--png step.png]

The color of a token is its priority under the rule of selector.tokens, by default |A| x H; on a page, trained tokens
are boxed. They show quickly whether a selection is sensible, and whether the template, the verifier or the entropies
are wrong. Responses may be hostile text: control characters are replaced, and markup is escaped in pages.
"""

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from d3s.common import UserError, exit_code, printable, read_json_lines, writing
from d3s.report.html import html_text, render_page
from d3s.report.method_png import draw_method_picture

PRIORITY_STYLES = ((0.66, "red"), (0.33, "yellow"), (0.0, ""))  # terminal colors by share of the highest priority
RULE_NAMES = {"advantage_entropy": "|A|×H", "entropy": "H", "random": "random number"}
LISTS = {"tokens": str, "entropies": (int, float, type(None)), "priorities": (int, float, type(None)), "trained": bool}
NUMBERS = ("reward", "advantage", "k", "threshold")


def load_samples(run_dir: Path, step: int | None = None) -> tuple[int, list[dict]]:
    """Return (step, records) of the samples of `step`, by default the newest.

    Responses with trained tokens are first, dropped ones last. Fields whose type is not the one that the tracker writes
    are left out. Raises: UserError if there are no samples.
    """
    numbered = ((path.stem.removeprefix("step_"), path) for path in sorted(Path(run_dir).glob("samples/step_*.jsonl")))
    files = {int(number): path for number, path in numbered if number.isdecimal() and path.is_file()}
    if not Path(run_dir).is_dir():
        raise UserError(f"{run_dir}: no such run directory")
    if not files:
        raise UserError(f"{run_dir}: no file samples/step_*.jsonl; train with tracker.samples_every above 0")
    if step is not None and step not in files:
        known = ", ".join(map(str, files)) if len(files) <= 12 else f"{min(files)} ... {max(files)}"
        raise UserError(f"--step: got {step}, expected a step with samples in {run_dir}: {known}")
    step = max(files) if step is None else step
    try:
        records = read_json_lines(files[step], warn=True)
    except OSError as error:
        raise UserError(f"{files[step]}: cannot be read ({error.strerror})") from error
    records = [{key: value for key, value in record.items() if _fits(key, value)} for record in records]
    if not records:
        raise UserError(f"{files[step]}: no samples in it; choose another --step")
    return step, sorted(records, key=lambda record: (not any(_trained(record)), not record.get("selected", True)))


def _fits(key: str, value: object) -> bool:
    if key in LISTS:
        return isinstance(value, list) and all(isinstance(item, LISTS[key]) for item in value)
    if key == "rank":
        return isinstance(value, list) and len(value) == 3 and all(type(place) is int for place in value)
    if key in NUMBERS:
        return isinstance(value, int | float) and abs(value) < 1e300
    return isinstance(value, {"selected": bool, "right": bool, "n": int}.get(key, str))


def token_priorities(record: dict) -> list[float | None]:
    """Return the priority of every token; None where there is none, as in dropped rollouts."""
    known = [p if p is not None and abs(p) < 1e300 else None for p in record.get("priorities") or []]  # NaN: none
    return (known + [None] * len(_tokens(record)))[: len(_tokens(record))]


def facts(record: dict) -> str:
    """Return what was decided about a response and by which numbers, in one line."""
    parts = [f"reward {record.get('reward') or 0:g}", f"A {record.get('advantage') or 0:+.2f}"]
    if "rank" in record:
        first, last, count = record["rank"]
        ties = f" to {last}" if last > first else ""
        parts[-1] += f", rank {first}{ties} of {count} in the {record.get('compared', 'batch')}"
    trained = _trained(record)
    if record.get("selected", True):
        bar = f", priority ≥ {record['threshold']:.3g}" if "threshold" in record else ""
        parts.append(f"{sum(trained)} of {len(trained)} tokens trained{bar}")
    else:
        parts.append("dropped")
    return " · ".join(parts + list(filter(None, [record.get("reason")])))


def describe_step(records: Sequence[dict]) -> str:
    """Return N and K of the step, which all records share."""
    known = [f"N = {records[0]['n']}"] if "n" in records[0] else []
    return ", ".join(known + ([f"K = {records[0]['k']:.3g}"] if "k" in records[0] else []))


def describe_rule(records: Sequence[dict]) -> str:
    """Return what the color of a token stands for; empty if the rule gave no priorities."""
    name = next((record["priority"] for record in records if record.get("priority")), "")
    return RULE_NAMES.get(name, name)


def samples_table(records: Sequence[dict], brackets: bool) -> Table:
    """Return a terminal table, one response per row. `brackets` marks trained tokens by ⟦ ⟧ where there is no color."""
    rule = describe_rule(records)
    colors = [f"color: {rule}"] * bool(rule and not brackets)
    marks = "⟦ ⟧: trained tokens" if brackets else "reversed: trained tokens"
    title = "; ".join(filter(None, [describe_step(records), *colors, marks]))
    table = Table(title=printable(title), show_lines=True, expand=True)
    table.add_column("problem", max_width=24)
    table.add_column("response", ratio=1, overflow="fold")
    low, high = _priority_range(records)
    for record in records:
        text = Text(f"{printable(facts(record))}\n", style="dim")
        tokens = Text(style="dim" * (not record.get("selected", True)))
        ends = [False, *_trained(record), False]
        for token, priority, before, keep, after in zip(
            _tokens(record), token_priorities(record), ends, ends[1:], ends[2:]
        ):
            share = 0.0 if priority is None else (priority - low) / (high - low)
            color = next(style for bound, style in PRIORITY_STYLES if share >= bound)
            marked = brackets and keep
            opened, closed = "⟦" * (marked and not before), "⟧" * (marked and not after)
            tokens.append(f"{opened}{printable(token)}{closed}", style=f"{color} {'bold reverse' * keep}".strip())
        problem = Text(printable(f"{_clip(record.get('problem', ''), 300)}\n→ {record.get('answer', '')}"))
        table.add_row(problem, Text.assemble(text, tokens))
    return table


def samples_html(records: Sequence[dict]) -> str:
    """Return the samples as an HTML fragment, grouped by problem, with every text escaped."""
    low, high = _priority_range(records)
    rule, step = describe_rule(records), describe_step(records)
    scale = f'<span class="scale"></span> {html_text(rule)} from {low:.3g} to {high:.3g} &nbsp; ' if rule else ""
    parts = [
        f'<p class="key">{html_text(step)}{" &nbsp; " * bool(step)}{scale}'
        '<span class="tok kept">trained</span> carries gradient &nbsp; '
        '<span class="dropped">faded: dropped rollout</span></p>'
    ]
    by_problem: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        by_problem.setdefault((record.get("problem", ""), record.get("answer", "")), []).append(record)
    for (problem, answer), members in by_problem.items():
        parts.append(f'<section class="problem"><h3>{html_text(_clip(problem, 2000))}</h3>')
        parts.append(f'<p class="gold">gold answer <b>{html_text(answer)}</b></p>')
        parts += [_response_html(record, low, high) for record in members]
        parts.append("</section>")
    return "\n".join(parts)


def _response_html(record: dict, low: float, high: float) -> str:
    entropies = record.get("entropies") or []
    tokens = []
    for i, (token, priority, keep) in enumerate(zip(_tokens(record), token_priorities(record), _trained(record))):
        shown = printable(token).replace("\n", "↵\n") or "·"
        known = [f"H {entropies[i]:.3f}"] if i < len(entropies) and entropies[i] is not None else []
        level = ""
        if priority is not None:
            known.insert(0, f"{describe_rule([record])} {priority:.3g}")
            share = (priority - low) / (high - low)
            level = f' style="--h:{share:.2f}"' if share >= 0.01 else ""
        tooltip = f' title="{html_text(", ".join(known))}"' if known else ""
        tokens.append(f'<span class="tok{" kept" * keep}"{level}{tooltip}>{escape(shown)}</span>')
    verdict = "right" if record.get("right") else "wrong"
    dropped = "" if record.get("selected", True) else " dropped"
    return (
        f'<article class="response {verdict}{dropped}"><p class="facts">{html_text(facts(record))}</p>'
        f'<div class="tokens">{"".join(tokens)}</div></article>'
    )


def _tokens(record: dict) -> list[str]:
    return record.get("tokens") or [record.get("response", "")]


def _trained(record: dict) -> list[bool]:
    count = len(_tokens(record))
    return ((record.get("trained") or []) + [False] * count)[:count]


def _priority_range(records: Sequence[dict]) -> tuple[float, float]:
    """The ends of the color scale: 0, or the lowest priority if it is negative, and the highest one."""
    known = [p for record in records for p in token_priorities(record) if p is not None]
    low = min([0.0, *known])
    high = max(known, default=low)
    return low, high if high > low else low + 1


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse `arguments`, by default those of the process, and show the samples."""
    parser = argparse.ArgumentParser(
        prog="python -m d3s.report.samples",
        description="Show sampled responses with the tokens that were trained, and why.",
    )
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--step", type=int, help="step of the samples (default: the newest)")
    parser.add_argument("--limit", type=int, default=8, metavar="N", help="show at most N responses (default: 8)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained page instead of a table")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the selection of the step, by all its samples")
    options = parser.parse_args(arguments)
    if options.limit < 1:
        raise UserError(f"--limit: got {options.limit}, expected at least 1")
    step, records = load_samples(options.run, options.step)
    if options.png:
        picture = options.png if options.png.suffix else options.png.with_suffix(".png")
        try:
            with writing(options.png, "choose another --png"):
                print(draw_method_picture(records, describe_rule(records), picture))
        except ValueError as error:  # the suffix names no format of matplotlib
            raise UserError(f"--png: {options.png}: {error}") from None
        return
    records = records[: options.limit]
    if not options.html:
        console = Console()
        console.print(samples_table(records, brackets=not console.is_terminal or console.no_color))
        return
    title = f"{options.run.resolve().name}: samples of step {step}"
    with writing(options.html, "choose another --html"):
        options.html.write_text(render_page(title, samples_html(records)), encoding="utf-8")
    print(options.html)


if __name__ == "__main__":
    sys.exit(exit_code(main))
