"""Load a configuration: merge YAML files and overrides, validate, and explain every mistake in one sentence."""

import difflib
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from d3s.common import UserError
from d3s.config.checks import contradictions
from d3s.config.schema import Config, Switch


def load_config(files: list[str | Path], overrides: list[str] = ()) -> Config:
    """Merges YAML files in order, then `section.key=value` overrides, and validates the result.

    Raises: UserError for a missing file, bad YAML, an unknown key or an impossible value.
    """
    merged: dict = {}
    for file in files:
        _merge(merged, _read_yaml(Path(file)))
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise UserError(f"override {override!r:.80} must have the form section.key=value")
        section, dot, name = key.partition(".")
        if not dot:
            raise UserError(f"override {override!r:.80} must have the form section.key=value{_nearest(key)}")
        try:
            _merge(merged, {section: {name: yaml.safe_load(value)}})
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date, too many digits
            raise UserError(f"override {override!r:.80}: the value is not valid YAML") from error
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        raise UserError(_explain(error)) from error
    if problems := list(contradictions(config)):
        raise UserError("configuration: " + "; ".join(problems))
    share = config.reward.overlong_buffer
    if 0 < share < 1:
        config.reward.overlong_buffer = max(1, round(share * config.rollout.max_completion_length))
    return config


def dump_config(config: Config, path: Path) -> None:
    """Writes the resolved configuration, which is itself a valid configuration file."""
    path.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))


def _read_yaml(path: Path) -> dict:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys) or {}
    except OSError as error:
        raise UserError(f"configuration file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"configuration file {path} is not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}," if error.problem_mark else ""
        raise UserError(f"configuration file {path}{where} is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date, too many digits
        raise UserError(f"configuration file {path} is not valid YAML") from error
    if not isinstance(content, dict) or not all(isinstance(v or {}, dict) for v in content.values()):
        raise UserError(f"configuration file {path} must hold sections (model:, data:, …) with keys under them")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a repeated key is an error: the second would silently replace the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: Switch = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} appears twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _merge(base: dict, update: dict) -> None:
    for section, values in update.items():
        base.setdefault(section, {}).update(values or {})


def _explain(error: ValidationError) -> str:
    """All problems of a configuration, one clause each."""
    clauses = []
    for problem in error.errors():
        place = problem["loc"][:-1] if problem["type"] == "missing" else problem["loc"]  # of a pair's second number
        key = ".".join(str(part) for part in place)
        if problem["type"] == "extra_forbidden":
            clauses.append(f"unknown key {key}{_nearest(key)}")
        else:
            clauses.append(f"{key} is {_shown(problem['input'])}, {_allowed(problem)}{_also(problem)}")
    return "configuration: " + "; ".join(clauses)


def _shown(value: Any) -> str:
    """A value as a message shows it; Python refuses to write out integers of thousands of digits."""
    try:
        return f"{value!r:.80}"
    except ValueError:
        return "a number of thousands of digits"


def _allowed(problem: dict) -> str:
    """What a value must be, in words."""
    context = problem.get("ctx", {})
    match problem["type"]:
        case "path_type":
            return "must be a path"
        case "missing" | "tuple_type":
            return "must be a list of two numbers"
        case "too_long" | "too_short" as kind:
            bound = context["max_length" if kind == "too_long" else "min_length"]
            return f"must have at {'most' if kind == 'too_long' else 'least'} {bound} item{'s' if bound != 1 else ''}"
    words = problem["msg"].replace("Input should be", "must be")
    return words[0].lower() + words[1:]


def _also(problem: dict) -> str:
    """What else is to say about a bad value: that null would do, or which word was probably meant."""
    if problem["type"] == "literal_error":
        words = problem["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        hits = difflib.get_close_matches(str(problem["input"]), words, 1)
        return f"; did you mean {hits[0]!r}?" if hits else ""
    section, *rest = problem["loc"]
    field = Config.model_fields[section].annotation.model_fields.get(rest[0]) if rest else None
    return ", or null" if field and type(None) in get_args(field.annotation) else ""


def _nearest(key: str) -> str:
    """A hint for an unknown key: the most similar one, or what there is."""
    sections = {section: field.annotation.model_fields for section, field in Config.model_fields.items()}
    section, dot, leaf = key.partition(".")
    section, leaf = (section, leaf) if dot else ("", key)
    if not section and (hits := difflib.get_close_matches(key, sections, 1)):
        return f"; did you mean {hits[0]}?"

    def likeness(name: str, word: str) -> float:
        return difflib.SequenceMatcher(None, name, word).ratio()

    similar = [(s, name) for s, fields in sections.items() for name in fields if likeness(name, leaf) >= 0.5]
    if similar:
        best = max(similar, key=lambda pair: likeness(pair[1], leaf) + likeness(pair[0], section))
        return f"; did you mean {'.'.join(best)}?"
    if section in sections:
        return f"; the keys of {section} are {', '.join(sections[section])}"
    return f"; sections are {', '.join(sections)}"
