"""Say in words how a step computes advantages and what it keeps, for --dry-run."""

from collections.abc import Iterator

from d3s.config.schema import Config
from d3s.loss import correction_bounds
from d3s.rules import rule_name

SCALES = {
    "group": "(reward - mean) / standard deviation of the group",
    "batch": "(reward - mean of the group) / standard deviation of the batch",
    "mean": "(reward - mean) / mean of the group (MaxRL); rewards must not be negative",
    "none": "reward - mean of the group",
}
ROLLOUTS = {
    "max_variance": "the N of largest variance",
    "abs_advantage": "the N of largest |A| (CPPO)",
    "random": "N at random",
}
TOKENS = {
    "advantage_entropy": "the fraction K of largest |A| x entropy",
    "entropy": "the fraction K of largest entropy",
    "random": "the fraction K at random",
    "nat": "each with probability K, its loss weighted by 1 / K; K is the mean fraction",
    "nat_prefix": "a random prefix of each response, weighted by 1 / P(kept); K is the mean fraction",
}


def selection_rows(config: Config) -> Iterator[tuple[str, str]]:
    """Labels and texts: advantages, kept rollouts, kept tokens."""
    reward, selector = config.reward, config.selector
    if reward.pass_at_k is None:
        advantages = SCALES[reward.scale_rewards]
    else:
        advantages = f"for Pass@{reward.pass_at_k} of each problem's responses; rewards must be 0 or 1"
    yield "advantages", advantages + (", of the kept rollouts alone" if selector.normalize == "after" else "")
    yield "kept rollouts", _rollouts(config)
    yield "kept tokens", _tokens(config)
    if config.loss.engine_correction == "token_mask":
        loss = config.loss
        low, high = correction_bounds("token_mask", loss.engine_correction_floor, loss.engine_correction_cap)
        yield "", f"of these, none whose pi_old / pi_engine is outside {low:g} to {high:g} (token_mask)"


def _rollouts(config: Config) -> str:
    selector, s, g = config.selector, config.schedule, config.rollout.num_generations
    text = ""
    if selector.variance_mass is not None:
        text = f"of the fewest problems with {selector.variance_mass:.0%} of the summed reward variance: "
    if (s.n_init or g) == g and (rule_name(s.n_shape) == "constant" or (s.n_final or g) == g):
        return text + "all"
    share = "N x B of the batch" if selector.cross_group else "N of each problem"
    if selector.cross_share == "auto":
        share += ", across problems as far as the gradient norm is calm"
    elif selector.cross_group and selector.cross_share < 1:
        share += f", {selector.cross_share:.0%} of them across problems"
    name = rule_name(selector.rollouts)
    return f"{text}{ROLLOUTS.get(name, f'those that {name} chooses')}, {share}"


def _tokens(config: Config) -> str:
    selector, s = config.selector, config.schedule
    if s.k_init == 1 and (rule_name(s.k_shape) == "constant" or s.k_final == 1):
        return "all"
    name = rule_name(selector.tokens)
    random = name in ("nat", "nat_prefix")
    scope = "" if random else ", of each response" if selector.token_scope == "sample" else ", of the batch"
    return TOKENS.get(name, f"those that {name} chooses; K is the fraction") + scope
