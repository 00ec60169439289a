"""Say for --dry-run how a step rewards responses, what it keeps, and how N, K and the trained tokens develop."""

from collections.abc import Iterator

from rich.table import Table

from d3s.advantage import ADVANTAGE_RULES
from d3s.config.schema import Config
from d3s.loss import CORRECTION_RULES, LOSS_RULES
from d3s.memory import token_share
from d3s.reward import LENGTH_RULES
from d3s.rules import rule_label, rule_name
from d3s.schedule import (
    FOLLOW_RULES,
    K_SHAPE_RULES,
    MOVES,
    N_SHAPE_RULES,
    follow_has,
    learning_rate,
    schedule_at,
    schedule_bounds,
    training_progress,
)
from d3s.selector import ROLLOUT_RULES, TOKEN_RULES


def reward_rows(config: Config) -> Iterator[tuple[str, str]]:
    """The reward functions with their weights, and what is done with their values, where it is not the default."""
    reward, default = config.reward, type(config.reward)()
    if reward.functions != default.functions:
        terms = zip(map(rule_label, reward.rules()), reward.weights(), strict=True)
        yield "reward", " + ".join(label if weight == 1 else f"{weight:g} x {label}" for label, weight in terms)
        consequence = "ends the run" if reward.errors == "stop" else "counts as 0"
        yield "", f"a failing call {consequence}"
    if reward.length != "none":
        yield "length", LENGTH_RULES.rule(reward.length).summary
    if reward.shaper:
        yield "shaper", f"{rule_label(reward.shaper)} may change the advantages of parts of a kept response"


def selection_rows(config: Config) -> Iterator[tuple[str, str]]:
    """Labels and texts: advantages, kept rollouts, kept tokens, loss, own shapes of the schedule."""
    counted = "; of the kept rollouts alone" if config.selector.normalize == "after" else ""
    yield "advantages", ADVANTAGE_RULES.rule(config.reward.advantages).summary + counted
    yield "kept rollouts", _rollouts(config)
    yield "kept tokens", _tokens(config)
    if rule_name(config.loss.engine_correction) != "none":
        yield "", f"then by pi_old / pi_engine, {CORRECTION_RULES.rule(config.loss.engine_correction).summary}"
    yield "loss", LOSS_RULES.rule(config.loss.kind).summary
    schedule = config.schedule
    for label, contract, shape in (("N", N_SHAPE_RULES, schedule.n_shape), ("K", K_SHAPE_RULES, schedule.k_shape)):
        if rule_name(shape) not in contract.builtin:
            yield f"shape of {label}", contract.rule(shape).summary


def _rollouts(config: Config) -> str:
    selector, s, g = config.selector, config.schedule, config.rollout.num_generations
    keeps_all = (s.n_init or g) == g and (rule_name(s.n_shape) == "constant" or (s.n_final or g) == g)
    if keeps_all and rule_name(selector.rollouts) in ROLLOUT_RULES.builtin:
        return "all"
    share = "N x B of the batch" if selector.cross_share else "N of each problem"
    if follow_has(config, "cross_share"):
        share += ", across problems as far as schedule.follow decides"
    elif 0 < selector.cross_share < 1:
        share += f", {selector.cross_share:.0%} of them across problems"
    return f"{share}; {ROLLOUT_RULES.rule(selector.rollouts).summary}"


def _tokens(config: Config) -> str:
    selector, s = config.selector, config.schedule
    if s.k_init == 1 and (rule_name(s.k_shape) == "constant" or s.k_final == 1):
        return "all"
    scope = "each response" if selector.token_scope == "sample" else "the batch"
    return f"the fraction K of {scope}; {TOKEN_RULES.rule(selector.tokens).summary}"


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
    if (stop_at := config.eval.stop_at) is not None:
        yield "end", f"after {config.train.steps:,} steps, or an evaluation in which avg@n is at least {stop_at:g}"


def schedule_table(config: Config) -> Table:
    """N, K, rollouts and tokens at five steps; with schedule.follow, at most."""
    steps, g = config.train.steps, config.rollout.num_generations
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
        cells = [f"{training_progress(step, steps):.0%}", f"{step + 1:,}"]
        cells += [f"{most}{n} of {g}", f"{most}{rollouts:,}", f"{most}{k:.1%}", f"{k * rollouts * longest:,.0f}"]
        table.add_row(*cells, f"{learning_rate(step, steps, config.optim):.2g}")
    return table
