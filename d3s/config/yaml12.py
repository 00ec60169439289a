"""YAML with the scalars of version 1.2: 010 is ten, 1:30 and yes are text, 1e-6 is a number.

PyYAML reads version 1.1, where they are eight, ninety, true and text. `dump` quotes what either version would not read
as the text that it is.
"""

import re
from typing import Any

import yaml

# YAML 1.2, section 10.3.2 (core schema), each with the characters that it begins with; << is the merge key of 1.1
SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    "merge": (r"<<", ["<"]),
}


class _Loader(yaml.SafeLoader):
    """PyYAML's loader with these scalars. A duplicate key is an error: its second value would replace the first."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (none of PyYAML's)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value}", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, which knows the scalars of 1.1, with those of 1.2."""


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_integer)
for name, (pattern, first) in SCALARS.items():
    for kind in (_Loader, _Dumper):
        kind.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(rf"(?:{pattern})\Z"), first)


def load(text: str) -> Any:
    """Read one document. Raises yaml.YAMLError, also for duplicate keys; ValueError for too many digits."""
    return yaml.load(text, _Loader)


def dump(value: Any) -> str:
    """Write a document in the order of its keys, which reads the same under both versions."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False)
