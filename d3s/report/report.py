"""Reports of run directories: the summary of one run, or a comparison of several.

    python -m d3s.report RUN [RUN ...] [--output DIR] [--title T] [--by step,tokens,time]

Writes report.html (one file, opens offline), report.md and report.png. For several runs report.png has every curve; for
a single run it is a summary, and the curves are in curves.png. Runs that differ only in the seed form one group. Runs
may still be training.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from d3s.common import UserError, printable, writing
from d3s.config import yaml12
from d3s.report.html import html_text, render_page
from d3s.report.panels import AXIS_NAMES, format_duration, format_value, panel_svg, panels_for
from d3s.report.png import draw_demo_picture, draw_sheet
from d3s.report.runs import AXES, Group, Run, final_estimate, group_runs, is_single_run, load_runs
from d3s.report.samples import load_samples, samples_html
from d3s.report.tables import Table, budget_tables, final_table, markdown_text, mean_last, settings_table
from d3s.report.theme import SERIES
from d3s.report.timeline import timeline_svg

DECISIONS = ("schedule.follow", "stop_at")  # keys in warnings.jsonl of what the tracker calls decide
EMBEDDED_SAMPLES = 4  # responses on the page of a single run


def write_report(
    paths: Sequence[Path], output: Path | None = None, title: str | None = None, axes: Sequence[str] = tuple(AXES)
) -> Path:
    """Write report.html, report.md and the pictures into `output`. Return the path of the page.

    output: by default the directory of a single run, else `report` next to the first run.

    Raises: UserError if there is no run, a run has no metrics, or `output` cannot be written.
    """
    runs = load_runs(paths)
    groups = group_runs(runs)
    single = is_single_run(groups)
    output = Path(output or (runs[0].path if single else runs[0].path.resolve().parent / "report"))
    command = shlex.join(["python", "-m", "d3s.report", *map(str, paths)])
    title = printable(title or ", ".join([group.name for group in groups[:4]] + ["…"] * (len(groups) > 4)))
    with writing(output, "choose another --output"):
        output.mkdir(parents=True, exist_ok=True)
        pictures = ["report.png", "curves.png"] if single else ["report.png"]
        draw_sheet(groups, axes, title, output / pictures[-1])
        if single:
            draw_demo_picture(runs[0].path, output / pictures[0])
        tables = [final_table(groups), *budget_tables(groups, axes), *settings_table(groups)]
        (output / "report.md").write_text(_markdown_page(title, groups, tables, pictures, command), encoding="utf-8")
        page = output / "report.html"
        page.write_text(render_page(title, _html_body(groups, tables, axes, command)), encoding="utf-8")
    return page


def _html_body(groups: Sequence[Group], tables: Sequence[Table], axes: Sequence[str], command: str) -> str:
    runs = [run for group in groups for run in group.runs]
    parts = [f'<p class="muted">{html_text(_status(groups))}</p>']
    if len(groups) > 1:
        names = [g.name + " (dashed)" * (i >= len(SERIES)) for i, g in enumerate(groups)]
        colors = [f"var(--series-{i % len(SERIES)})" for i in range(len(groups))]
        items = (f'<li style="color:{c}">{html_text(name)}</li>' for name, c in zip(names, colors))
        parts.append(f'<ul class="legend">{"".join(items)}</ul>')
    if is_single_run(groups):
        parts.append(_tiles(groups[0]))
    parts += [_warnings(groups), *(table.html() for table in tables), _curves(groups, axes)]
    parts.append('<h2>Where the time goes</h2><p class="note">Seconds per step, by phase.</p>')
    parts.append(f'<div class="timeline">{timeline_svg(groups)}</div>')
    if is_single_run(groups):
        parts += [_samples(runs[0].path), _configuration(runs[0])]
    parts.append(f'<p class="note"><code>{html_text(command)}</code></p>')
    return "\n".join(parts)


def _curves(groups: Sequence[Group], axes: Sequence[str]) -> str:
    """Return every panel against every axis. Radio buttons select the axis without a script."""
    several = any(len(group.runs) > 1 for group in groups)
    note = "Smoothed means over seeds, up to the end of the shortest run, with a band of one standard deviation."
    if not several:
        note = "Smoothed; the faint line shows every step. The band of Pass@k is its 95% interval over problems."
    buttons, labels, grids = [], [], []
    for axis in axes:
        checked = " checked" if axis == axes[0] else ""
        buttons.append(f'<input type="radio" name="by" id="by-{axis}"{checked}>')
        labels.append(f'<label for="by-{axis}">by {AXIS_NAMES[axis]}</label>')
        figures = (
            f"<figure><figcaption><b>{html_text(panel.title)}</b>{html_text(panel.note)}</figcaption>"
            f"{panel_svg(panel, groups, axis)}</figure>"
            for panel in panels_for(groups)
            if panel.key != AXES[axis]
        )
        grids.append(f'<div class="grid by-{axis}">{"".join(figures)}</div>')
    switch = f'<div class="switch">{"".join(labels)}</div>' if len(axes) > 1 else ""
    return (
        f'<h2>Curves</h2><p class="note">{note}</p><section class="curves">'
        f"{''.join(buttons)}{switch}{''.join(grids)}</section>"
    )


def _tiles(group: Group) -> str:
    """Return the key numbers of a single run: Pass@k, tokens trained on, wall time."""
    (run,) = group.runs
    tiles = []
    for panel in panels_for([group]):
        if panel.key.startswith("eval/"):
            x, y = run.curve(panel.key)
            end = final_estimate(group, panel.key)
            start = "–" if x[0] else format_value(y[0], "share")
            values = f"<small>{start} →</small> " + (format_value(y[-1], "share") if end else "–")
            interval = f" · 95% [{end.low:.3f}, {end.high:.3f}]" if end and end.low is not None else ""
            tiles.append((f"{panel.title}, {panel.note}", values, f"step {run.evaluated(panel.key)}{interval}"))
    trained, generated = (mean_last(group, key) for key in ("tokens_trained", "tokens_generated"))
    if trained is not None and generated:
        counts = f"{format_value(trained, 'count')} of {format_value(generated, 'count')} generated"
        tiles.append(("Tokens trained on", format_value(trained / generated, "share"), counts))
    wall, seconds = mean_last(group, "wall_time"), run.curve("time/step")[1]
    if wall is not None:
        per_step = f"{seconds.mean():.3g} s per step" if len(seconds) else ""
        tiles.append(("Wall time", format_duration(wall), per_step))
    cells = (
        f"<dl class=tile><dt>{html_text(n)}</dt><dd>{v}</dd><dd class=about>{html_text(a)}</dd></dl>"
        for n, v, a in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _warnings(groups: Sequence[Group], limit: int = 10) -> str:
    """The newest warnings, and apart from them what rules decided."""
    runs = [run for group in groups for run in group.runs]
    records = [(run.path.resolve().name if len(runs) > 1 else "", w) for run in runs for w in run.warnings]
    blocks = []
    for title, decisions in (("Warnings during training", False), ("Decisions of rules", True)):
        chosen = [(name, w) for name, w in records if (w.get("key") in DECISIONS) == decisions]
        lines = (f"{name} step {w['step']}: {w.get('message', '')}".strip() for name, w in chosen[-limit:])
        items = "".join(f"<li>{html_text(line)}</li>" for line in lines)
        more = f" (the last {limit} of {len(chosen)})" if len(chosen) > limit else ""
        style = "decisions" if decisions else "warnings"
        blocks += [f'<div class="{style}"><b>{title}{more}</b><ul>{items}</ul></div>'] * bool(chosen)
    return "".join(blocks)


def _samples(path: Path) -> str:
    try:
        step, records = load_samples(path)
    except UserError:
        return ""
    more = f"python -m d3s.report.samples {shlex.quote(str(path))} --html samples.html"
    note = f'<p class="note">Samples of step {step}. More: <code>{html_text(more)}</code></p>'
    return f"<h2>What selection keeps</h2>{note}{samples_html(records[:EMBEDDED_SAMPLES])}"


def _configuration(run: Run) -> str:
    content = {"content": run.content} if run.content else {}  # hashes of the data and the code that options name
    text = yaml12.dump(run.config | content) if run.config else ""
    return f"<details><summary>Configuration</summary><pre>{html_text(text)}</pre></details>" if text else ""


def _markdown_page(
    title: str, groups: Sequence[Group], tables: Sequence[Table], pictures: Sequence[str], command: str
) -> str:
    """Return the tables and links to the pictures, which are in the same directory."""
    parts = [f"# {markdown_text(title)}\n", f"{markdown_text(_status(groups))}\n"]
    parts += [f"![{'all curves' if name == pictures[-1] else 'summary'}]({name})\n" for name in pictures]
    parts += [table.markdown() for table in tables]
    return "\n".join([*parts, f"Made by `{printable(command).replace('`', '')}`\n"])


def _status(groups: Sequence[Group]) -> str:
    """Return how many steps the runs have done, and which have not reached their last planned step."""
    runs = [run for group in groups for run in group.runs]
    behind = [run for run in runs if not run.is_finished]
    if len(runs) == 1:
        planned = f" of {runs[0].total_steps}" if runs[0].total_steps else ""
        status = f"At step {runs[0].last_step}{planned}{': not finished' if behind else ''}."
        if not (machine := runs[0].machine):
            return status
        return f"{status} {machine['processes']} process{'es' * (machine['processes'] != '1')}, {machine['machine']}."
    status = f"{len(runs)} runs in {len(groups)} group{'s' if len(groups) > 1 else ''}."
    listed = ", ".join(f"{run.path.resolve().name} (step {run.last_step} of {run.total_steps})" for run in behind[:6])
    return status + (f" Not finished: {listed}{' and more' if len(behind) > 6 else ''}." if behind else "")
