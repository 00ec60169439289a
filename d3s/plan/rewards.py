"""What a configuration rewards, in words, for `--dry-run`."""

from collections.abc import Iterator

from d3s.config.schema import Config


def reward_rows(config: Config) -> Iterator[tuple[str, str]]:
    """The reward functions with their weights, and what is done with their values, where it is not the default."""
    reward, default = config.reward, type(config.reward)()
    if reward.functions != default.functions:
        weights = zip(reward.function_names().values(), reward.weights(), strict=True)
        yield "reward", " + ".join(path if weight == 1 else f"{weight:g} x {path}" for path, weight in weights)
        consequence = "ends the run" if reward.errors == "stop" else "counts as 0"
        yield "", f"a failing call {consequence}"
    if reward.shaper:
        yield "shaper", f"{reward.shaper} may change the advantages of parts of a kept response"
