"""Load a configuration: merge YAML files and overrides, validate, report all errors in one sentence."""

from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import get_args

import yaml
from pydantic import ValidationError

from d3s.common import UserError, shown, suggestion
from d3s.config import yaml12
from d3s.config.checks import contradictions
from d3s.config.schema import SECTIONS, Config

SHIPPED = Path(__file__).parents[1] / "configs"
BOUNDS = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
KINDS = {  # what an option expects, by pydantic's type of error or its first word
    "bool": "true or false",
    "finite": "a finite number",
    "float": "a number",
    "int": "an integer",
    "list": "a list",
    "path": "a path",
    "string": "text",
    "string_too_short": "text that is not empty",
}


def find_file(name: str | Path) -> Path:
    """The file of this name, else the shipped configuration: tiny, method/pods or configs/method/pods.yaml."""
    shipped = SHIPPED / f"{str(name).removeprefix('configs/').removesuffix('.yaml')}.yaml"
    return shipped if not Path(name).is_file() and shipped.is_file() else Path(name)


def load_config(files: list[str | Path], overrides: list[str | dict] = ()) -> Config:
    """Merge YAML files in order, then overrides `section.key=value` or {section: {key: value}}, and validate all.

    files: paths, or names of shipped configurations, see find_file.

    Raises: UserError for a missing file, invalid YAML, an unknown key, and impossible values.
    """
    merged: dict = {}
    for file in files:
        _merge(merged, _read_yaml(find_file(file)))
    for override in overrides:
        _merge(merged, _read_override(override) if isinstance(override, str) else override)
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        raise UserError(_explain(error)) from error
    if problems := list(contradictions(config)):
        raise UserError("; ".join(problems))
    return config


def dump_config(config: Config, path: Path) -> None:
    """Write the resolved configuration, which is itself a valid configuration file."""
    path.write_text(yaml12.dump(config.model_dump(mode="json")))


def _read_yaml(path: Path) -> dict:
    try:
        content = yaml12.load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        names = (str(file.relative_to(SHIPPED).with_suffix("")) for file in SHIPPED.rglob("*.yaml"))
        near = suggestion(str(path).removeprefix("configs/").removesuffix(".yaml"), names)
        raise UserError(f"{path}: cannot be read ({error.strerror}){near}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{path}: invalid YAML{line} ({error.problem})") from error
    except (yaml.YAMLError, KeyError, ValueError, RecursionError) as error:  # of `!!bool x`; of too many digits
        raise UserError(f"{path}: invalid YAML") from error
    if not isinstance(content, dict) or not all(v is None or isinstance(v, dict) for v in content.values()):
        raise UserError(f"{path}: expected sections (model:, data:, …) with keys under them")
    return content


def _read_override(override: str) -> dict:
    """`section.key=value` as {section: {key: value}}."""
    key, equals, value = override.partition("=")
    section, _, name = key.partition(".")
    if not (equals and section and name):
        hint = _nearest(key) if equals and section else ""
        raise UserError(f"override {override!r:.80}: expected section.key=value{hint}")
    try:
        read = yaml12.load(value)
        if " #" in value and read == yaml12.load(value.partition(" #")[0]):
            raise UserError(f"override {override!r:.80}: # begins a comment; quote the value, as in {key}='\"a #b\"'")
        return {section: {name: read}}
    except (yaml.YAMLError, KeyError, ValueError, RecursionError) as error:  # as in _read_yaml
        raise UserError(f"override {override!r:.80}: the value is not valid YAML") from error


def _merge(base: dict, update: dict) -> None:
    for section, values in update.items():
        base.setdefault(section, {}).update(values or {})


def _explain(error: ValidationError) -> str:
    """Describe all errors of a configuration, one clause each."""
    clauses: dict[str, str] = {}  # by key; an option that allows a word or a number has an error for each
    for problem in error.errors():
        location = problem["loc"]
        key = ".".join(str(part) for i, part in enumerate(location) if i < 2 or isinstance(part, int))
        if key in clauses:
            clauses[key] += f" or {_expected(problem)}"
        elif problem["type"] == "extra_forbidden":
            clauses[key] = f"{key}: unknown {'key' if '.' in key else 'section'}{_nearest(key)}"
        else:
            clauses[key] = f"{key}: got {shown(problem['input'])}, expected {_expected(problem)}"
    return "; ".join(clauses.values())


def _expected(problem: dict) -> str:
    """Describe the values that an option allows, and suggest the nearest one for a misspelled word."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        words = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return context["expected"] + suggestion(str(problem["input"]), words)
    if kind in ("too_long", "too_short"):
        most, bound = kind == "too_long", context["max_length" if kind == "too_long" else "min_length"]
        text = f"at {'most' if most else 'least'} {bound} item{'s' if bound != 1 else ''}"
    elif kind in BOUNDS:
        (limit,) = context.values()
        text = f"a number {BOUNDS[kind]} {int(limit) if limit == int(limit) else limit}"
    else:
        message = problem["msg"].removeprefix("expected ").replace("Input should be ", "")
        text = KINDS.get(kind) or KINDS.get(kind.partition("_")[0], message)
    section, *rest = problem["loc"]
    field = SECTIONS[section].get(rest[0]) if rest else None
    return text + (" or null" if field and type(None) in get_args(field.annotation) else "")


def _nearest(key: str) -> str:
    """A hint for an unknown key: the most similar key, or the keys that exist."""
    section, dot, leaf = key.partition(".")
    if not dot and (close := get_close_matches(key, SECTIONS, 1)):
        return f"; did you mean {close[0]}?"
    if close := get_close_matches(leaf, SECTIONS.get(section, ()), 1, 0.5):
        return f"; did you mean {section}.{close[0]}?"
    if close := get_close_matches(leaf if dot else key, list(chain(*SECTIONS.values())), 1):
        home = next(home for home, fields in SECTIONS.items() if close[0] in fields)
        return f"; did you mean {home}.{close[0]}?"
    if section in SECTIONS:
        return f"; the keys of {section} are {', '.join(SECTIONS[section])}"
    return f"; sections are {', '.join(SECTIONS)}"
