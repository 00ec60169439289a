"""Configurations in tests: the shipped files, flat views, and the message of a rejected configuration."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import Config
from tests.helpers.warm_python import ROOT

SFT = sorted((ROOT / "configs").glob("sft*.yaml"))  # of train_sft.py
BASES = sorted(set((ROOT / "configs").glob("*.yaml")) - set(SFT))
OVERLAYS = ("mixed", "countdown", "code", "ablation", "lora", "strong")
REAL = [path for path in BASES if path.stem not in ("tiny", "smollm2", *OVERLAYS)]  # of models on the hub
SMALL = [ROOT / "configs/tiny.yaml", ROOT / "tests/helpers/small.yaml"]
METHODS = sorted((ROOT / "configs/method").glob("*.yaml"))


def flat(config: Config) -> dict[str, Any]:
    """{"section.key": value}."""
    return {f"{s}.{key}": value for s, fields in config.model_dump().items() for key, value in fields.items()}


def rejection(*overrides: str, files: list[Path] = ()) -> str:
    """The message with which a configuration is rejected: one line."""
    with pytest.raises(UserError) as rejected:
        load_config(files, list(overrides))
    assert "\n" not in str(rejected.value)
    return str(rejected.value)


def printed(print_plan: Callable[[Config, Console], None], *words: str | Path, width: int = 100) -> str:
    """The text that --dry-run prints for these files and overrides."""
    overrides, out = [word for word in words if "=" in str(word)], io.StringIO()
    print_plan(load_config([w for w in words if w not in overrides], overrides), Console(file=out, width=width))
    return out.getvalue()
