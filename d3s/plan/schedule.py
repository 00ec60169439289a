"""Describe the schedule of a run for `--dry-run`: N, K and trained tokens over training, and what the run decides."""

from collections.abc import Iterator

from rich.table import Table

from d3s.config.schema import Config
from d3s.plan.memory import token_share
from d3s.schedule import (
    FOLLOW_RULES,
    MOVES,
    follow_has,
    learning_rate,
    schedule_at,
    schedule_bounds,
    training_progress,
)


def first_and_last_n(config: Config) -> tuple[int, int]:
    """N of the first and the last step; with schedule.follow, the smallest and the largest N."""
    if follow_has(config, *MOVES):
        return schedule_bounds(config)[0]
    return schedule_at(config, 0)[0], schedule_at(config, config.train.steps - 1)[0]


def controller_rows(config: Config) -> Iterator[tuple[str, str]]:
    """Label and text of each quantity that the run adapts to its training."""
    (n_low, n_high), (k_low, k_high) = schedule_bounds(config)
    if config.schedule.follow != "none":
        yield "follow", FOLLOW_RULES.rule(config.schedule.follow).summary
    if follow_has(config, *MOVES):
        n_text = f"N between {n_low} and {n_high}" if n_low < n_high else f"N {n_low}"
        yield "", f"{n_text}, K between {k_low:.1%} and {k_high:.1%}" if k_low < k_high else f"{n_text}, K {k_low:.1%}"
    metric, stop_at = config.eval.metric, config.eval.stop_at
    if stop_at is not None:
        yield "end", f"after {config.train.steps:,} steps, or an evaluation in which {metric} is at least {stop_at:g}"


def schedule_table(config: Config) -> Table:
    """N, K, rollouts and tokens at five steps; with schedule.follow, at most."""
    steps, optim, g = config.train.steps, config.optim, config.rollout.num_generations
    longest = config.rollout.max_completion_length
    share, most = token_share(config), "≤ " if follow_has(config, *MOVES) else ""
    trained = share * g * config.train.prompts_per_step * steps * longest
    total = f"total: {most}{share:.2%} of the sampled tokens, at most {trained:,.0f}"
    table = Table(title="Selection over training", caption=f"{total} (responses of {longest:,} tokens)")
    for heading in ("progress", "step", "N of G", "rollouts", "K", "tokens, at most", "learning rate"):
        table.add_column(heading, justify="right")
    for step in sorted({round(progress * (steps - 1)) for progress in (0, 0.25, 0.5, 0.75, 1)}):
        n, k = schedule_at(config, step)
        rollouts = n * config.train.prompts_per_step
        rate = learning_rate(step, steps, optim.learning_rate, optim.lr_schedule, optim.warmup_steps)
        cells = f"{most}{n} of {g}", f"{most}{rollouts:,}", f"{most}{k:.1%}"
        table.add_row(
            f"{training_progress(step, steps):.0%}",
            f"{step + 1:,}",
            *cells,
            f"{k * rollouts * longest:,.0f}",
            f"{rate:.2g}",
        )
    return table
