"""Say how a step computes advantages and what it keeps, for --dry-run."""

from collections.abc import Iterator

from d3s.advantage import ADVANTAGE_RULES
from d3s.config.schema import Config
from d3s.loss import correction_bounds
from d3s.rules import rule_name
from d3s.schedule import follow_has
from d3s.selector import ROLLOUT_RULES, TOKEN_RULES


def selection_rows(config: Config) -> Iterator[tuple[str, str]]:
    """Labels and texts: advantages, kept rollouts, kept tokens."""
    counted = "; of the kept rollouts alone" if config.selector.normalize == "after" else ""
    yield "advantages", ADVANTAGE_RULES.rule(config.reward.advantages).summary + counted
    yield "kept rollouts", _rollouts(config)
    yield "kept tokens", _tokens(config)
    if config.loss.engine_correction == "token_mask":
        loss = config.loss
        low, high = correction_bounds("token_mask", loss.engine_correction_floor, loss.engine_correction_cap)
        yield "", f"of these, none whose pi_old / pi_engine is outside {low:g} to {high:g} (token_mask)"


def _rollouts(config: Config) -> str:
    selector, s, g = config.selector, config.schedule, config.rollout.num_generations
    keeps_all = (s.n_init or g) == g and (rule_name(s.n_shape) == "constant" or (s.n_final or g) == g)
    if keeps_all and rule_name(selector.rollouts) in ROLLOUT_RULES.builtin:
        return "all"
    share = "N x B of the batch" if selector.cross_group else "N of each problem"
    if follow_has(config, "cross_share"):
        share += ", across problems as far as schedule.follow decides"
    elif selector.cross_group and selector.cross_share < 1:
        share += f", {selector.cross_share:.0%} of them across problems"
    return f"{share}; {ROLLOUT_RULES.rule(selector.rollouts).summary}"


def _tokens(config: Config) -> str:
    selector, s = config.selector, config.schedule
    if s.k_init == 1 and (rule_name(s.k_shape) == "constant" or s.k_final == 1):
        return "all"
    scope = "each response" if selector.token_scope == "sample" else "the batch"
    return f"the fraction K of {scope}; {TOKEN_RULES.rule(selector.tokens).summary}"
