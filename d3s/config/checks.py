"""What is impossible in a configuration though every value by itself is allowed; one clause each, for one message."""

import re
from collections.abc import Iterator
from pathlib import Path

from d3s.config.schema import LOWEST_TEMPERATURE, Config


def contradictions(config: Config) -> Iterator[str]:
    """Every combination that cannot run, or would silently not do what it says."""
    yield from _text_problems(config)
    for check in (_engine_problems, _schedule_problems, _reward_problems, _loss_problems):
        yield from check(config)


def _text_problems(config: Config) -> Iterator[str]:
    """Text that no file can be named by or hold."""
    for section, values in config.model_dump().items():
        for key, value in values.items():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str | Path) and re.search("[\0\ud800-\udfff]", str(text)):
                    yield f"{section}.{key} is {str(text)!r}, must be Unicode text without a zero byte"


def _engine_problems(config: Config) -> Iterator[str]:
    """What the engine named cannot do."""
    rollout = config.rollout
    if rollout.engine == "transformers" and (rollout.servers or rollout.tensor_parallel_size > 1):
        yield "rollout.servers and rollout.tensor_parallel_size above 1 need rollout.engine: vllm"
    if 0 < config.eval.temperature < LOWEST_TEMPERATURE:
        yield f"eval.temperature is {config.eval.temperature}, must be 0 or at least {LOWEST_TEMPERATURE}"
    if rollout.seeds == "engine" and (rollout.engine != "vllm" or rollout.servers):
        yield "rollout.seeds: engine needs rollout.engine: vllm beside each rank, without rollout.servers"
    if not rollout.servers:
        return
    for address in rollout.servers:
        if not re.fullmatch(r"https?://[^/\s]+", address):
            yield f"rollout.servers contains {address!r}, must be http://HOST:PORT"
    if len(set(rollout.servers)) < len(rollout.servers):
        yield "rollout.servers contains an address twice"
    if config.selector.entropy_source == "engine":
        yield (
            "rollout.servers needs selector.entropy_source: actor, as a server's HTTP interface returns no entropies"
        )
    if rollout.tensor_parallel_size > 1:
        yield "rollout.tensor_parallel_size must be 1 with rollout.servers, which are started with their own"


def _schedule_problems(config: Config) -> Iterator[str]:
    """What is impossible about N, K and the number of steps, though each value by itself is allowed."""
    g, s, b, optim = config.rollout.num_generations, config.schedule, config.train.prompts_per_step, config.optim
    for key, n in (("n_init", s.n_init), ("n_final", s.n_final)):
        if n is not None and not 2 <= n <= g:
            yield f"schedule.{key} is {n}, must be between 2 and rollout.num_generations = {g}, or null for all"
    for name, shape in (("n", s.n_shape), ("k", s.k_shape)):
        first, last = (getattr(s, f"{name}_{end}") or g for end in ("init", "final"))
        if first > last and (shape or s.shape) != "constant":
            yield (
                f"schedule.{name}_init is {first} and schedule.{name}_final {last}, the first must be at most the "
                f"second; schedule.{name}_shape: constant stays at the first"
            )
    if optim.num_minibatches > b * (s.n_init or g):
        yield (
            f"optim.num_minibatches is {optim.num_minibatches}, must be at most the {b * (s.n_init or g)} rollouts "
            "that a step keeps (train.prompts_per_step x schedule.n_init)"
        )
    if optim.warmup_steps >= config.train.steps:
        yield f"optim.warmup_steps is {optim.warmup_steps}, must be less than train.steps = {config.train.steps}"


def _reward_problems(config: Config) -> Iterator[str]:
    """The same for rewards, the selection and the evaluation."""
    length, selector = config.rollout.max_completion_length, config.selector
    if config.reward.overlong_buffer > length:
        yield (
            f"reward.overlong_buffer is {config.reward.overlong_buffer:g}, must be at most "
            f"rollout.max_completion_length = {length}"
        )
    if not config.reward.function.partition(":")[2]:
        yield f"reward.function is {config.reward.function!r}, must name a function as module:function"
    if selector.normalize == "after" and selector.cross_group:
        yield "selector.normalize: after needs selector.cross_group: false, as many kept in every group"
    if selector.cross_share < 1 and not (selector.cross_group and selector.rollouts == "max_variance"):
        yield "selector.cross_share below 1 needs selector.cross_group: true and selector.rollouts: max_variance"
    if config.eval.k and max(config.eval.k) > config.eval.n:
        yield f"eval.k contains {max(config.eval.k)}, must be at most eval.n = {config.eval.n}"


def _loss_problems(config: Config) -> Iterator[str]:
    """The same for the objective."""
    loss, rollout = config.loss, config.rollout
    truncated = rollout.top_p < 1 or rollout.top_k > 0
    if loss.overlong_filtering and rollout.max_completion_length < 2:
        yield "loss.overlong_filtering would drop every response of rollout.max_completion_length = 1"
    if loss.engine_correction != "none" and loss.old_logprobs == "engine":
        yield "loss.engine_correction needs loss.old_logprobs: actor, to have something to correct to"
    if loss.engine_correction != "none" and truncated:
        yield "loss.engine_correction needs rollout.top_p: 1 and rollout.top_k: -1; truncated sampling biases it"
    if loss.old_logprobs == "engine" and truncated:
        yield (
            "loss.old_logprobs: engine needs rollout.top_p: 1 and rollout.top_k: -1; with truncated sampling the "
            "engine's probabilities are not the policy's"
        )
    if loss.epsilon_high_is_bound and (loss.epsilon_high is None or loss.epsilon_high < 1):
        yield "loss.epsilon_high_is_bound needs loss.epsilon_high of at least 1"
