"""Cross-field validation: combinations of values that cannot run, although each value alone is valid.

Each check yields one clause per problem, `<key>: <problem>; <remedy>`; d3s/config/load.py joins them into one message.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from pkgutil import resolve_name

from d3s.common import UserError
from d3s.config.fields import RuleOption
from d3s.config.schema import SECTIONS, Config
from d3s.rules import Contract, Value, require_known, rule_name

RULES: dict[str, RuleOption] = {  # the options that take a rule
    f"{section}.{key}": mark
    for section, options in SECTIONS.items()
    for key, option in options.items()
    for mark in option.metadata
    if isinstance(mark, RuleOption)
}


def contract_of(option: str) -> Contract:
    """The contract of an option that takes a rule. Imports its module, and so torch."""
    return replace(resolve_name(RULES[option].contract), option=option)


def contradictions(config: Config) -> Iterator[str]:
    """Combinations of values that cannot run, or that would silently not do what they say."""
    for check in (_rule_problems, _text_problems, _engine_problems, _schedule_problems, _data_problems, _loss_problems):
        yield from check(config)


def mismatch_problem(config: Config) -> str | None:
    """A warning where the difference of engine and actor in bfloat16 biases the update."""
    loss = config.loss
    corrected = rule_name(loss.engine_correction) != "none" or loss.old_logprobs == "engine"
    if config.model.dtype != "bfloat16" or corrected:
        return None
    problem = "got none with model.dtype: bfloat16, which makes engine and actor differ"
    return f"loss.engine_correction: {problem}; set it to truncate, or loss.old_logprobs: engine"


def require_defaults(config: Config, program: str, *unread: str) -> None:
    """Require the default value of every option that a program does not read: a section, or `section.key`.

    Raises: UserError that names the first options with another value.
    """
    default = Config()
    changed = [
        f"{section}.{key}"
        for section, options in config
        for key, value in options
        if {section, f"{section}.{key}"} & set(unread) and value != getattr(getattr(default, section), key)
    ]
    if changed:
        listed = ", ".join(changed[:3]) + (", …" if len(changed) > 3 else "")
        raise UserError(f"{listed}: not read by {program}; remove {'it' if len(changed) == 1 else 'them'}")


def changed_rules(config: Config) -> Iterator[tuple[str, Value]]:
    """Each option that names another rule than its default, with every rule that it names."""
    default = Config()
    for option in RULES:
        value, usual = (reduce(getattr, option.split("."), c) for c in (config, default))
        if value != usual:
            rules = config.reward.rules() if option == "reward.functions" else [value]
            yield from ((option, rule) for rule in rules)


def _rule_problems(config: Config) -> Iterator[str]:
    """Unknown names; d3s/trials.py imports what has rules, looks at their options, and calls them."""
    for option, value in changed_rules(config):
        try:
            require_known(option, RULES[option].builtin, value)
        except UserError as error:
            yield str(error)


def _text_problems(config: Config) -> Iterator[str]:
    """Text that is impossible in a file or its name."""
    for section, values in config.model_dump().items():
        for key, value in values.items():
            texts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            for text in texts:
                if isinstance(text, str | Path) and re.search("[\0\ud800-\udfff]", str(text)):
                    yield f"{section}.{key}: got {str(text)!r}, expected Unicode text without a zero byte"


def _engine_problems(config: Config) -> Iterator[str]:
    """Options that the actor, the selected engine or servers do not support, and impossible addresses of servers."""
    rollout = config.rollout
    if config.model.compile and config.train.deterministic:  # also sizes of another run that filled torch's cache
        yield "model.compile: requires train.deterministic: false, as sizes of earlier passes shape the generated code"
    for key in ("servers", "tensor_parallel_size", "seeds") if rollout.engine != "vllm" else ():
        if getattr(rollout, key) != SECTIONS["rollout"][key].default:
            yield f"rollout.{key}: requires rollout.engine: vllm"
    for address in rollout.servers:
        if not re.fullmatch(r"https?://[^/\s]+", address):
            yield f"rollout.servers: got {address!r}, expected http://HOST:PORT"
    if len(set(rollout.servers)) < len(rollout.servers):
        yield "rollout.servers: duplicate address"
    if rollout.servers and config.selector.entropy_source == "engine":
        yield "rollout.servers: requires selector.entropy_source: actor, as servers return no entropies"
    if rollout.servers and rollout.seeds == "engine":
        yield "rollout.servers: requires rollout.seeds: request"
    if rollout.servers and (size := rollout.tensor_parallel_size) > 1:
        remedy = "start the servers with --tensor-parallel-size instead"
        yield f"rollout.tensor_parallel_size: got {size}, expected 1 with rollout.servers; {remedy}"


def _schedule_problems(config: Config) -> Iterator[str]:
    """Impossible N, K, mini-batches and warm-up."""
    g, s, b, optim = config.rollout.num_generations, config.schedule, config.train.prompts_per_step, config.optim
    for key, n in (("n_init", s.n_init), ("n_final", s.n_final)):
        if n is not None and not 2 <= n <= g:
            yield f"schedule.{key}: got {n}, expected 2 to rollout.num_generations = {g}, or null for all"
    n_ends = (s.n_init or g, (s.n_init if rule_name(s.n_shape) == "constant" else s.n_final) or g)
    if optim.num_minibatches > b * min(n_ends):
        fewest = f"the {b * min(n_ends)} rollouts kept with the smallest N (train.prompts_per_step x {min(n_ends)})"
        yield f"optim.num_minibatches: got {optim.num_minibatches}, expected at most {fewest}"
    if late := [step for step in config.train.profile_steps if step > config.train.steps]:
        yield f"train.profile_steps: got {late[0]}, expected at most train.steps = {config.train.steps}"
    if optim.warmup_steps >= config.train.steps:
        yield f"optim.warmup_steps: got {optim.warmup_steps}, expected less than train.steps = {config.train.steps}"


def _data_problems(config: Config) -> Iterator[str]:
    """Impossible prompts, rewards and evaluations."""
    if config.data.template not in ("chat", "auto"):
        for key in ("system_prompt", "chat_template_kwargs"):
            if getattr(config.data, key) not in (None, {}):
                yield f"data.{key}: requires data.template: chat"
    reward, settings = config.reward, config.eval
    used = [key for key, on in (("stop_at", settings.stop_at is not None), ("keep_best", settings.keep_best)) if on]
    if used and not (settings.data and settings.every):
        yield f"eval.{used[0]}: requires eval.data and eval.every above 0"
    if (settings.stop_at or 0) > 1 and settings.reward is None:  # that of eval.reward may be higher
        yield f"eval.stop_at: got {settings.stop_at:g}, expected a share of at most 1"
    paths = [rule_name(rule) for rule in reward.rules()]
    for path in dict.fromkeys(paths):
        if paths.count(path) > 1:
            yield f"reward.functions: got {path!r} {paths.count(path)} times, expected it once"
    if max(settings.k) > settings.n:
        yield f"eval.k: got {max(settings.k)}, expected at most eval.n = {settings.n}"


def _loss_problems(config: Config) -> Iterator[str]:
    """Combinations of options of the selection or the loss that are not defined, biased or have no effect."""
    selector, loss, rollout = config.selector, config.loss, config.rollout
    if selector.normalize == "after" and selector.cross_share:
        yield "selector.normalize: 'after' requires selector.cross_share: 0, so that every group keeps N rollouts"
    if 0 < selector.cross_share < 1 and rule_name(selector.rollouts) == "random":
        yield f"selector.cross_share: got {selector.cross_share:g}, expected 0 or 1 with selector.rollouts: random"
    if loss.overlong_filtering and rollout.max_completion_length < 2:
        yield "loss.overlong_filtering: drops every response with rollout.max_completion_length = 1"
    if rule_name(loss.engine_correction) != "none" and loss.old_logprobs == "engine":
        yield "loss.engine_correction: requires loss.old_logprobs: actor, as it corrects the engine to the actor"
    if rule_name(loss.kind) == "cispo" and loss.epsilon_high is not None and loss.epsilon_high < 1:
        yield f"loss.epsilon_high: got {loss.epsilon_high:g}, expected the upper bound of the ratio, >= 1, or null"
