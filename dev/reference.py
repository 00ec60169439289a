"""Generate docs/configuration.md from the options in d3s/config/.

python -m dev.reference > docs/configuration.md
"""

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from d3s.config.checks import RULES
from d3s.config.fields import MOST
from d3s.config.schema import Config

HEAD = """\
# Configuration

<!-- Written by `python -m dev.reference`; edit the classes in d3s/config/ instead. -->

    accelerate launch train.py --config configs/tiny.yaml [configs/method/pods.yaml ...] [train.steps=50 ...]

The defaults are D3S as described in docs/method.md. Files are merged from left to right, key by key: a later file
overrides an earlier one, and `section.key=value` overrides all files. Values of overrides are YAML 1.2: `1e-5`, `null`,
`true`, `[1, 8]`, `runs/two`. Integers are written without a decimal point and are at most a billion unless stated
otherwise. docs/hacking.md has the contract of each rule. An unknown or duplicate key or an impossible value ends the
program with exit code 2 before anything is loaded.

- `configs/tiny.yaml`: the synthetic task, on a CPU; `configs/mixed.yaml`, `countdown.yaml`, `code.yaml` and
  `configs/ablation.yaml` are overlays.
- `configs/smollm2.yaml`: word problems for a model of 135 million parameters, on a CPU; `configs/sft_smollm2.yaml`
  is its supervised warm-up, see docs/running.md#a-language-model-on-a-cpu.
- `configs/qwen2.5-math-1.5b.yaml`, `qwen2.5-math-7b.yaml`, `llama3.1-8b-instruct.yaml`: settings for real models; no
  full run has been made.
- `configs/lora.yaml`: an overlay that trains adapters, see docs/running.md#lora.
- `configs/sft.yaml` and its overlay `configs/sft_q_tuning.yaml`: the supervised warm-up, `train_sft.py`. It reads the
  sections model, lora, sft, optim, train, checkpoint and tracker, of data the source, its fields, limits and template,
  rollout.max_completion_length and with sft.held_out eval.every, and refuses changes of others.
- `configs/method/*.yaml`: overlays that select another method, see docs/method.md.
- `configs/accelerate/*.yaml`: hardware, for `accelerate launch --config_file`. The precision is always that of
  `model.dtype`, regardless of these files.
"""


def document() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for section, field in Config.model_fields.items():
        parts.append(f"\n## {section}\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n")
        for name, option in field.annotation.model_fields.items():
            meaning = " ".join((option.description or "").split())
            if rules := RULES.get(f"{section}.{name}"):
                names = [*(["null"] if option.default is None else []), *rules.builtin]
                allowed = ", ".join([*(f"`{rule}`" for rule in names), "or your rule"])
                if isinstance(option.default, list):
                    allowed = f"list of {allowed}, each alone or as [rule, number]"
            else:
                allowed = _words(option.annotation, option.metadata)
            cells = (f"`{section}.{name}`", f"`{_yaml(option.default)}`", allowed, meaning)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def _words(kind: Any, limits: Sequence[Any] = ()) -> str:
    """Allowed values of an option, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if limits:
        return " ".join([_words(kind), ", ".join(_bounds(limits))]).strip()
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in inner)
    if origin in (Union, types.UnionType):
        return " or ".join("`null`" if part is type(None) else _words(part) for part in inner)
    if origin is Annotated:
        return _words(inner[0], inner[1:])
    if origin is list:
        return f"list of {_words(inner[0])}"
    if origin is dict:
        return "{name: value, ...}"
    if origin is tuple:
        return "[" + ", ".join(_words(part) for part in inner) + "]"
    return {bool: "`true`, `false`", int: "integer", float: "number", str: "text", Path: "path"}[kind]


def _bounds(metadata: Sequence[Any]) -> list[str]:
    """Limits from pydantic's Field: ge=0 as ">= 0". MOST is omitted, as the head of the page states it once."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    limits = [limit for item in metadata for limit in getattr(item, "metadata", [item])]
    bounds = [(sign, getattr(limit, key)) for limit in limits for key, sign in signs.items() if hasattr(limit, key)]
    return [f"{sign} {bound}" for sign, bound in bounds if bound != MOST]


def _yaml(value: Any) -> str:
    plain = str(value) if isinstance(value, Path) else value
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


if __name__ == "__main__":
    print(document(), end="")
