"""Tables of a report, as Markdown and HTML: final values, equal budgets, differing settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from d3s.common import printable
from d3s.evaluation.intervals import Estimate, student_interval, welch_interval
from d3s.report.html import html_text
from d3s.report.panels import format_duration, format_value, panels_for
from d3s.report.runs import (
    AXES,
    Group,
    at_budget,
    common_budget,
    common_steps,
    differing_settings,
    final_estimate,
    finals,
)

FINALS = (  # column, metric, form
    ("reward", "reward/mean", "number"),
    ("entropy", "policy/entropy", "number"),
    ("usefulness", "selection/usefulness", "share"),
    ("s/step", "time/step", "number"),
)


@dataclass(frozen=True)
class Table:
    """A table of text cells with a title and a note on how to read it. The first column names the row."""

    title: str
    note: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        header, *rows = (" | ".join(map(markdown_text, line)) for line in (self.header, *self.rows))
        ruler = " | ".join(["---"] + ["---:"] * (len(self.header) - 1))
        table = "\n".join(f"| {line} |" for line in (header, ruler, *rows))
        return f"## {markdown_text(self.title)}\n\n{markdown_text(self.note)}\n\n{table}\n"

    def html(self) -> str:
        head = "".join(f"<th>{html_text(cell)}</th>" for cell in self.header)
        labels = [html_text(cell) for cell in self.header]  # which narrow pages show beside each cell
        lines = ([f'<td data-label="{x}">{_cell(y)}</td>' for x, y in zip(labels, row)] for row in self.rows)
        rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
        return (
            f'<h2>{html_text(self.title)}</h2><p class="note">{html_text(self.note)}</p>'
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        )


def final_table(groups: Sequence[Group]) -> Table:
    """Return the last evaluation and the last tenth of the steps of every group, with 95% intervals."""
    passes = [panel for panel in panels_for(groups) if panel.key.startswith("eval/")]
    many = len({panel.key.split("/", 1)[1].rsplit("/", 1)[0] for panel in passes}) > 1
    header = ["group", "seeds", "steps"]
    for panel in passes:
        name = f"{panel.note} {panel.title}" if many else panel.title
        header += [f"{name} before", f"{name} after"]
    header += [name for name, key, _ in FINALS if any(group.curves(key) for group in groups)]
    header += ["trained tokens", "wall time"]
    rows = []
    for group in groups:
        steps = sorted({run.last_step for run in group.runs})
        row = [group.name, str(len(group.runs)), "–".join(map(str, dict.fromkeys((steps[0], steps[-1]))))]
        for panel in passes:
            before = [float(y[0]) for x, y in group.curves(panel.key) if x[0] == 0]
            before = f"{sum(before) / len(before):.3f}{_share_of(group, before)}" if before else "–"
            row += [before, _show_final(group, panel.key)]
        for _, key, form in FINALS:
            if any(g.curves(key) for g in groups):
                row.append(_show_final(group, key, form))
        trained, generated = (mean_last(group, key) for key in ("tokens_trained", "tokens_generated"))
        share = f" [{format_value(trained / generated, 'share')}]" if trained and generated else ""
        row.append("–" if trained is None else format_value(trained, "count") + share)
        wall = mean_last(group, "wall_time")
        rows.append([*row, "–" if wall is None else format_duration(wall)])
    note = (
        "Reward, entropy, usefulness and seconds are means over the last tenth of the steps. 95% intervals are over "
        "seeds (Student's t); for the Pass@k of a single run, over problems. In brackets after the trained "
        "tokens: their share of the generated tokens."
    )
    return Table("Final values", note, header, rows)


def budget_tables(groups: Sequence[Group], axes: Sequence[str] = tuple(AXES)) -> list[Table]:
    """Return a table per benchmark: Pass@1 (the smallest k) at equal steps, trained tokens and wall time.

    Only evaluations at steps that every run has evaluated count: a curve with fewer points would be interpolated to
    lower values. The budget is the largest that every run has reached at one of them; tokens and process time are
    interpolated linearly between them. Differences are to the first group.
    """
    if len(groups) < 2:
        return []
    tables, seen = [], set()
    for panel in panels_for(groups):
        data = panel.key.rsplit("/", 1)[0]
        if not panel.key.startswith("eval/") or data in seen:
            continue
        seen.add(data)
        present = [group for group in groups if group.curves(panel.key)]
        header, rows = ["group"], [[group.name] for group in present]
        steps = common_steps(present, panel.key)
        for axis in axes if max(steps, default=0) > 0 else ():
            budget = common_budget(present, panel.key, axis, steps)
            if budget is None:
                continue
            header += [f"at {_amount(axis, budget, present)}", "difference"]
            values = [at_budget(group, panel.key, axis, budget, steps) for group in present]
            for i, row in enumerate(rows):
                comparable = i and values[i] and values[0]
                row.append(_show(student_interval(values[i])) if values[i] else "–")
                row.append(_show_difference(welch_interval(values[i], values[0])) if comparable else "–")
        note = (
            f"{panel.note}: at the largest budget that every run has reached, by evaluations at steps that all runs "
            "have evaluated; without budgets below the first evaluation of a run. Differences are to "
            f"{present[0].name}, with Welch's 95% interval over seeds; * marks an interval that excludes 0."
        )
        if len(header) == 1:
            note = f"{panel.note}: the runs have no evaluated step after 0 in common; set eval.every alike to compare."
        tables.append(Table(f"{panel.title} at equal steps, tokens and time", note, header, rows))
    return tables


def settings_table(groups: Sequence[Group]) -> list[Table]:
    """Return a table of the settings in which the groups differ, [] if there are none."""
    rows = [[key, *map(str, values)] for key, values in differing_settings(groups).items()]
    header, note = ["setting", *(group.name for group in groups)], "Settings that are not the same in all groups."
    return [Table("Differing settings", note, header, rows)] if rows else []


def mean_last(group: Group, key: str) -> float | None:
    """Return the last value of a metric, averaged over the runs of the group."""
    values = [y[-1] for _, y in group.curves(key)]
    return float(sum(values) / len(values)) if values else None


def markdown_text(text: str) -> str:
    """Escape plain text for Markdown: no markup, no HTML, no cell border."""
    text = escape(printable(text), quote=False).replace("\n", " ")
    return "".join(f"\\{character}" if character in "\\`*_{}|#" else character for character in text)


def _show(value: Estimate | None, form: str = "number") -> str:
    if value is None:
        return "–"
    write = (lambda v: format_value(v, form)) if form == "share" else (lambda v: f"{v:.3f}")
    interval = "" if value.low is None else f" [{write(value.low)}, {write(value.high)}]"
    return write(value.value) + interval


def _show_final(group: Group, key: str, form: str = "number") -> str:
    return _show(final_estimate(group, key), form) + _share_of(group, finals(group, key))


def _share_of(group: Group, values: Sequence[float]) -> str:
    """How many of the seeds have a value, where only some have one."""
    count, seeds = len(values), len(group.runs)
    return f" ({count} of {seeds} seeds)" if 0 < count < seeds else ""


def _show_difference(value: Estimate) -> str:
    if value.low is None:
        return f"{value.value:+.3f}"
    star = "*" * (value.low > 0 or value.high < 0)
    return f"{value.value:+.3f}{star} [{value.low:+.3f}, {value.high:+.3f}]"


def _amount(axis: str, budget: float, groups: Sequence[Group]) -> str:
    """Write a budget with its unit. Time is wall time x processes, which is said where a run has several."""
    if axis != "time":
        return f"{format_value(budget, 'count')} {'steps' if axis == 'step' else 'tokens'}"
    records = (record for group in groups for run in group.runs for record in run.evaluations)
    several = any(record.get("processes", 1) > 1 for record in records)
    return format_duration(budget) + (" (wall time x processes)" if several else "")


def _cell(text: str) -> str:
    """Return the HTML of a cell, with its interval in a separate element for a muted color."""
    number, bracket, interval = text.partition(" [")
    return html_text(number) + (f' <span class="interval">[{html_text(interval)}</span>' if bracket else "")
