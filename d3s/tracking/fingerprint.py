"""Fingerprint of a run: hashes of the data, the template and the code of its user, which options only name.

Ranks must agree on it and on the options, a resumed run is compared with its checkpoint, and reports show it.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects

Fingerprint = dict[str, str]  # hashes by the name of the content: data.path, `NAME of eval.data`, `module NAME`
CHANGED = "the content is not that of the checkpoint; the run goes on with the new one"
LISTED = 3  # differences that a message names


def take_fingerprint(config: Config, contents: dict[str, Iterable[Any]], accelerator: Accelerator) -> Fingerprint:
    """Hash the contents, and the modules of the functions that the options name, which must be loaded. Collective.

    Args:
        contents: items by the name of their source, as dataclasses or plain values.

    Raises: UserError on every rank if a rank has other options or another fingerprint than rank 0.
    """
    texts = {name: (json.dumps(row, default=_plain, skipkeys=True) for row in rows) for name, rows in contents.items()}
    texts["VLLM_BATCH_INVARIANT"] = [os.environ.get("VLLM_BATCH_INVARIANT", "0")]  # changes the responses
    texts |= {f"module {name}": [_source(name)] for name in _own_modules(config.model_dump())}
    fingerprint = {name: _hash(lines) for name, lines in texts.items()}
    ranks = all_gather_objects([(flat_options(config), fingerprint)], accelerator)
    for rank, (options, hashes) in enumerate(ranks):
        changed = differences(ranks[0][0], options).items()
        parts = [f"{key}: got {new!r:.80}, expected {old!r:.80}" for key, (old, new) in changed]
        parts += [f"{name}: got another content" for name in differences(ranks[0][1], hashes)]
        if parts:
            remedy = "start all ranks with the same options and files"
            raise UserError(f"rank {rank} differs from rank 0: {'; '.join(parts[:LISTED])}; {remedy}")
    return fingerprint


def flat_options(config: Config) -> dict[str, Any]:
    """{"section.key": value}, in plain values."""
    options = config.model_dump(mode="json")
    return {f"{section}.{key}": value for section, values in options.items() for key, value in values.items()}


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The values that differ, of keys in both: {key: (old, new)}."""
    return {key: (value, new[key]) for key, value in old.items() if key in new and new[key] != value}


def machine_name() -> str:
    """The GPU, or the CPU with its number of cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    file = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", file.read_text()) if file.exists() else []
    return f"{(names or [platform.machine()])[0]}, {os.cpu_count()} cores"


def _own_modules(value: Any) -> Iterator[str]:
    """The loaded modules outside d3s of all `module:function` and `LIBRARY:module:function` in an option's value."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _own_modules(item)
    for name in value.split(":")[-2:-1] if isinstance(value, str) else ():
        if name in sys.modules and not name.startswith("d3s."):
            yield name


def _source(module: str) -> str:
    """The text of a module's file, "" without one."""
    file = getattr(sys.modules[module], "__file__", None)
    return Path(file).read_text(encoding="utf-8", errors="replace") if file else ""


def _plain(value: Any) -> Any:
    """What JSON has for other values: the fields of a dataclass, the type of anything else."""
    return vars(value) if hasattr(value, "__dataclass_fields__") else type(value).__name__


def _hash(texts: Iterable[str]) -> str:
    digest = sha256()
    for text in texts:
        digest.update(text.encode(errors="surrogatepass") + b"\0")
    return digest.hexdigest()[:16]
