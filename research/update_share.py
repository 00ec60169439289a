"""Which method is ahead in equal time, by the share of a GRPO step that is its update.

    shares = np.linspace(0, 0.95, 20)
    gaps = gains(rows, rows["GRPO"], layers_share(qwen_shape("7B"), PROMPT, LENGTHS[0]), steps=120, shares=shares)

The measured curves of Pass@1 against steps are kept; only the cost of a step is replaced. In a step of the reference,
plain GRPO that also computes the tokens whose advantage is 0, a share u of the time is the update, 1 - u is generation
and all else. Generation costs in proportion to the generated tokens, the update in proportion to its FLOPs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.harness import markdown
from benchmarks.speed.flops import LENGTHS, PROMPT, qwen_shape, rollout_flops
from d3s.flops import ModelShape
from d3s.schedule import schedule_bounds
from d3s.shapes import TINY
from research.jobs import config_of
from research.padded_base import SUFFIX, VOCABULARY
from research.records import Record
from research.rows import BY_NAME
from research.statistics import Scores, interval, score_at

SHARES = np.linspace(0, 0.95, 20)
BASELINE = "GRPO"  # rows whose name starts with it are the rivals; they skip tokens whose advantage is 0
TINY_PROMPT, TINY_RESPONSE = 8, 35  # mean tokens of the built-in tasks

Row = dict[str, list[Record]]  # base model -> its runs


@dataclass(frozen=True)
class Mark:
    """Share of the update in a step of plain GRPO, as a range."""

    name: str
    low: float
    high: float
    sources: tuple[str, ...] = ()  # none: measured here


# Synchronous steps of GRPO that compute all tokens; the update alone, or at most that where the rest is not divided.
PUBLISHED = (
    # First source, "colocate sync", Qwen2.5-Math-7B, 16 H20, up to 20,480 and 8,192 tokens: update_actor of step is
    # 286 of 749 s with FSDP2 and 344 of 699 s with Megatron. Second, section 5.2, Qwen2.5-Math-7B, 8 L40S or 8 A100, up
    # to 4,096 tokens: at most 46 %. Third, Qwen3-8B, 32 GB200: at most 27 to 33 %, as digests of the paper quote it.
    Mark(
        "7B to 8B, 8 to 32 GPUs",
        0.27,
        0.49,
        (
            "https://github.com/volcengine/verl/blob/main/docs/advance/one_step_off.md",
            "https://arxiv.org/abs/2506.05316",
            "https://arxiv.org/abs/2604.26779",
        ),
    ),
    # Section 5.2 and table 4, Qwen2.5-Math-1.5B on the same GPUs: generation is 47 %.
    Mark("1.5B, 8 GPUs: at most", 0.53, 0.53, ("https://arxiv.org/abs/2506.05316",)),
)


def layers_share(shape: ModelShape, prompt: int, response: int) -> float:
    """alpha, the share of the FLOPs of a pass over prompt and response (in tokens) that is not the head's."""
    flops = rollout_flops(shape, prompt, response)
    return 1 - flops["head"] / sum(flops.values())


def padded_shape() -> ModelShape:
    """The shape of a built-in base model with a padded vocabulary."""
    hidden, heads = TINY["hidden_size"], TINY["num_attention_heads"]
    layers, kv_heads, intermediate = (
        TINY[key] for key in ("num_hidden_layers", "num_key_value_heads", "intermediate_size")
    )
    return ModelShape(hidden, layers, heads, kv_heads, hidden // heads, intermediate, VOCABULARY, tied=True)


@lru_cache
def kept_share(name: str) -> float:
    """Share of the generated rollouts that the runs of a row keep at most, N / G."""
    config = config_of(BY_NAME[name].arguments)
    (_, n), _ = schedule_bounds(config)
    return n / config.rollout.num_generations


# trained <= layers <= generated x N / G x share of the kept rollouts with A != 0
def layer_tokens(record: Record, reference: Sequence[Record]) -> np.ndarray:
    """Response tokens so far, [E], that an update runs through the layers where responses are long and differ.

    `Record.forwarded` also counts prompts, and counts equal beginnings of responses once: many in short responses, and
    the more the larger the group. Both go by the ratio of forwarded and trained tokens in the reference, where all
    tokens of a response are trained. A row that keeps few rollouts of a group has fewer equal beginnings, for which the
    ratio is too small; the bounds above correct that. Between them the result rather overstates the row's cost.
    """
    same = [r for r in reference if r.base == record.base]
    ratio = sum(r.forwarded[-1] for r in same) / sum(r.trained[-1] for r in same)
    useful = np.nan_to_num(record.logged["usefulness"], nan=1.0)
    trained, forwarded, generated = (np.diff(x) for x in (record.trained, record.forwarded, record.generated))
    most = kept_share(record.row) * useful * generated
    return np.concatenate([[0.0], np.cumsum(np.maximum(trained, np.minimum(forwarded / ratio, most)))])


# c(u) = (1 - u) generated + u (alpha layers + (1 - alpha) trained),   in tokens of a step of the reference
def cost(record: Record, reference: Sequence[Record], alpha: float, share: float) -> np.ndarray:
    """Time so far, [E], in mean steps of the reference on the same base model, where `share` of these is the update."""
    same = [r for r in reference if r.base == record.base]
    step = np.mean([r.generated[-1] / r.steps[-1] for r in same])
    update = alpha * layer_tokens(record, reference) + (1 - alpha) * record.trained
    return ((1 - share) * record.generated + share * update) / step


def scores_in_time(row: Row, reference: Sequence[Record], alpha: float, steps: float, share: float) -> Scores | None:
    """Pass@1 of every run and problem in the time of `steps` steps of the reference; None if a run ends before."""
    scores = {}
    for base, records in row.items():
        found = []
        for record in sorted(records, key=lambda r: r.seed):
            spent = cost(record, reference, alpha, share)
            if spent[-1] < steps * (1 - 1e-9):
                return None
            found.append(score_at(record, "steps", float(np.interp(steps, spent, record.steps))))
        scores[base] = np.stack(found)
    return scores


def mean(scores: Scores | None) -> float:
    """Mean over base models of the mean over runs and problems; NaN for None."""
    return float("nan") if scores is None else float(np.mean([values.mean() for values in scores.values()]))


def gains(
    rows: dict[str, Row], reference: Row, alpha: float, steps: float, shares: np.ndarray = SHARES
) -> dict[str, np.ndarray]:
    """Pass@1 of each row minus that of the best BASELINE row in equal time, with 95 % intervals over runs and problems.

    The best is chosen anew at every share, by the same scores, which favors it.

    Returns: of each row that is no BASELINE row, [3, shares]: difference, low and high end. NaN where one of the two is
    not measured, the ends also where a base model has one run.

    Raises: ValueError if two rows have different base models or seeds, or no row is a BASELINE row.
    """
    _check_pairs(rows)
    runs = [record for records in reference.values() for record in records]
    rivals = [name for name in rows if name.startswith(BASELINE)]
    curves = {name: np.full((3, len(shares)), np.nan) for name in rows if name not in rivals}
    for i, share in enumerate(shares):
        scores = {name: scores_in_time(row, runs, alpha, steps, share) for name, row in rows.items()}
        if any(scores[name] is None for name in rivals):
            continue
        best = scores[max(rivals, key=lambda name: mean(scores[name]))]
        for name, curve in curves.items():
            if scores[name] is not None:
                gap = interval({base: values - best[base] for base, values in scores[name].items()})
                curve[:, i] = gap.value, *(np.nan if end is None else end for end in (gap.low, gap.high))
    return curves


def _check_pairs(rows: dict[str, Row]) -> None:
    if not any(name.startswith(BASELINE) for name in rows):
        raise ValueError(f"rows: got {', '.join(rows)}, expected one whose name starts with {BASELINE}")
    seeds = {name: {b: sorted(r.seed for r in runs) for b, runs in row.items()} for name, row in rows.items()}
    first = next(iter(rows))
    for name in rows:
        if seeds[name] != seeds[first]:
            raise ValueError(f"{name}: got base models and seeds {seeds[name]}, expected those of {first}")


def measured_share(records: Sequence[Record]) -> float:
    """Share of the update in the seconds of generation and update, had it computed the tokens of advantage 0 too."""
    shares = []
    for record in records:
        generate, update = (record.logged[f"{name}_seconds"] @ np.diff(record.steps) for name in ("generate", "update"))
        full = update * record.generated[-1] / record.trained[-1]
        shares.append(float(full / (full + generate)))
    return float(np.mean(shares))


def marks(measured: Row, padded: bool) -> list[Mark]:
    """Measured and published shares for the panel of the padded vocabulary, or for that of the 7B model; ascending."""
    shares = [measured_share(records) for base, records in measured.items() if base.endswith(SUFFIX) == padded]
    found = [] if padded else list(PUBLISHED)
    if shares:
        name = "built-in tasks, padded" if padded else "built-in tasks"
        found.append(Mark(f"{name}, measured", min(shares), max(shares)))
    return sorted(found, key=lambda mark: mark.low + mark.high)


def marks_table(measured: Row) -> str:
    """The marks of both panels with their sources, as Markdown."""
    lines = [
        [
            mark.name,
            "–".join(dict.fromkeys(f"{100 * end:.0f}" for end in (mark.low, mark.high))),
            ", ".join(mark.sources),
        ]
        for mark in marks(measured, False) + marks(measured, True)
    ]
    return markdown(["step of plain GRPO", "update, %", "source"], lines)


def draw(rows: dict[str, Row], path: Path, steps: float, measured: Row) -> None:
    """Draw the differences to the best BASELINE row over the share of the update, for two kinds of models.

    Args:
        rows: the first is the reference, plain GRPO. Rows whose N or K follow a schedule do not belong here.
        steps: reference steps whose time every row gets. A line ends where a row has made all of its steps in it.
        measured: runs of plain GRPO whose shares are marked.
    """
    import matplotlib
    from matplotlib.figure import Figure

    from d3s.report.theme import INK, MUTED, style

    reference = next(iter(rows.values()))
    panels = [
        ("7B", layers_share(qwen_shape("7B"), PROMPT, LENGTHS[0]), False),
        ("Tiny, padded vocabulary", layers_share(padded_shape(), TINY_PROMPT, TINY_RESPONSE), True),
    ]
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(11, 5.6), dpi=160, facecolor="white")
        axes = figure.subplots(1, 2, sharey=True)
        for ax, (title, alpha, padded) in zip(axes, panels, strict=True):
            curves = gains(rows, reference, alpha, steps)
            _draw_panel(ax, curves, marks(measured, padded))
            ax.set_title(
                f"{title}: {alpha:.0%} of the update in the layers", loc="left", fontsize=10, fontweight="bold"
            )
            ax.set_xlabel("update, % of generation and update of plain GRPO", color=MUTED)
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(low - 0.2 * (high - low), high)  # room for the marks, which lie above the axis
        best = f"Pass@1 minus that of the best GRPO, zeros skipped,\nin the time of {steps:g} steps, points"
        axes[0].set_ylabel(best, color=INK)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4)
        figure.subplots_adjust(0.08, 0.22, 0.98, 0.93, 0.06)
        figure.savefig(path)


def distinct(curve: np.ndarray) -> np.ndarray:
    """Values of a curve [3, S] (value, low, high) where its interval excludes 0, NaN elsewhere: [S]."""
    value, low, high = curve
    return np.where((low > 0) | (high < 0), value, np.nan)


def _draw_panel(ax, curves: dict[str, np.ndarray], shown: Sequence[Mark]) -> None:
    from d3s.report.theme import INK, MUTED, SERIES

    for i, (name, curve) in enumerate(curves.items()):
        color, dash = SERIES[i % len(SERIES)], ("-", "--", ":")[i // len(SERIES) % 3]
        ax.plot(100 * SHARES, 100 * curve[0], dash, color=color, linewidth=1.2, label=name)
        ax.plot(100 * SHARES, 100 * distinct(curve), color=color, linewidth=3.5, alpha=0.6)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xlim(0, 95)
    for i, mark in enumerate(shown):
        height, transform = 0.03 + 0.05 * i, ax.get_xaxis_transform()
        ends = (100 * mark.low, 100 * mark.high)
        ax.plot(ends, (height, height), "|-", color=MUTED, linewidth=2, markersize=7, transform=transform)
        x, side = (ends[1] + 1.5, "left") if ends[1] < 60 else (ends[0] - 1.5, "right")
        ax.text(x, height, mark.name, va="center", ha=side, fontsize=7.5, color=MUTED, transform=transform)
