"""Removed options: messages that name the successor, and translation of the config.yaml of old runs.

A run directory of an earlier version holds a config.yaml with all options of that version. It is translated to options
that compute the same, so that the run can be resumed. Hand-written files and overrides are not: they must be edited.
"""

from collections.abc import Iterator

from d3s.common import UserError
from d3s.config.schema import Config

REMOVED = {
    "schedule.shape": "set schedule.n_shape and schedule.k_shape",
    "eval.top_p": "evaluations during training sample with top_p 1; eval.py has --top-p",
    "loss.epsilon_high_is_bound": "with loss.kind: cispo loss.epsilon_high is the upper bound of the ratio, with other "
    "losses 1 + loss.epsilon_high is",
}
LATER_SECTIONS = {"sft"}  # that the versions with removed options did not have


def update_options(content: dict, source: str) -> dict:
    """Check the content of a file or override, {section: {key: value}}, for removed options.

    Returns: the content; translated if it is the config.yaml of an old run, recognized by having every section.
    Raises: UserError for removed options in other files, and for values of old runs that have no equivalent.
    """
    content = _one_function(content, source)
    used = [key for key in REMOVED if _has(content, key)]
    if not used:
        return content
    if not all(content.get(section) for section in Config.model_fields if section not in LATER_SECTIONS):
        raise UserError("; ".join(f"{key}: removed; {REMOVED[key]}" for key in used))
    translated = {section: dict(values) for section, values in content.items()}
    if problems := list(_translate(translated)):
        raise UserError(f"{source}: " + "; ".join(problems))
    return translated


def _one_function(content: dict, source: str) -> dict:
    """The content with `reward.function: NAME`, which may still be written for one function, as a list of functions."""
    if not _has(content, "reward.function"):
        return content
    if _has(content, "reward.functions"):
        raise UserError(f"{source}: got both reward.function and reward.functions; remove reward.function")
    reward = {("functions" if key == "function" else key): value for key, value in content["reward"].items()}
    return content | {"reward": reward | {"functions": [reward["functions"]]}}


def _has(content: dict, key: str) -> bool:
    section, _, name = key.partition(".")
    return name in (content.get(section) or {})


def _translate(content: dict) -> Iterator[str]:
    """Replace removed options in place. Yields a clause for each value without an equivalent."""
    schedule, loss = content["schedule"], content["loss"]
    shape = schedule.pop("shape", "linear")
    for key in ("n_shape", "k_shape"):
        schedule[key] = schedule.get(key) or shape
    if content["eval"].pop("top_p", 1.0) != 1.0:
        yield f"eval.top_p: removed; {REMOVED['eval.top_p']}"
    yield from _translate_buffer(content)
    is_bound, high = loss.pop("epsilon_high_is_bound", False), loss.get("epsilon_high")
    if loss.get("kind") == "cispo":
        if isinstance(high, int | float) and not is_bound:
            loss["epsilon_high"] = 1.0 + high
    elif is_bound:
        yield f"loss.epsilon_high_is_bound: removed; no equivalent with loss.kind: {loss.get('kind')}"
    if loss.get("kl_estimator") == "k1":
        if loss.get("beta"):
            yield "loss.kl_estimator: k1 was removed, as its expected gradient is 0; k2 and k3 compute something else"
        loss["kl_estimator"] = "k3"  # not read with loss.beta: 0


def _translate_buffer(content: dict) -> Iterator[str]:
    """Replace reward.overlong_buffer in tokens by the shortest decimal fraction that gives as many tokens."""
    tokens, length = content["reward"].get("overlong_buffer", 0), content["rollout"].get("max_completion_length", 0)
    if not isinstance(tokens, int | float) or not isinstance(length, int) or not 0 < tokens <= length:
        return
    if tokens != int(tokens):
        yield f"reward.overlong_buffer: got {tokens} tokens, expected an integer; the option is a fraction now"
        return
    fractions = (round(tokens / length, digits) for digits in range(20))
    content["reward"]["overlong_buffer"] = next(f for f in fractions if 0 < f <= 1 and round(f * length) == tokens)
