"""Fingerprint: hashes of what options only name, the model's files, data, template and the code of the user.

Ranks must agree on it and on the options, a resumed run is compared with its checkpoint, a merged adapter and the
samples of an evaluation with theirs, and reports show it.
"""

import ast
import inspect
import json
import os
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import file_digest, sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from d3s.common import UserError, write_json
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects
from d3s.loss import reads_reference
from d3s.pretrained import weight_files

# hashes by the name of the content: data.path, `NAME of eval.data`, `module NAME`, `function NAME`
Fingerprint = dict[str, str]
GIVEN = "d3s.rewards.given"  # the module of functions that belong to none
WEIGHTS, SETTINGS = "weights of model.name", "settings of model.name"
REFERENCE = "weights of loss.reference"
# Beside the weights, what changes the prompts, the responses or what the weights compute.
SETTINGS_FILES = ("config.json", "generation_config.json", "*token*.json", "*.model", "vocab.*", "merges.txt")
LARGE = 2**20  # bytes from which the hash of a file is kept
SETTLED_NS = 2 * 10**9  # a younger file may change once more within the resolution of its times
CHANGED = "the content is not that of the checkpoint; the run goes on with the new one"
LISTED = 3  # differences that a message names


def take_fingerprint(config: Config, contents: dict[str, Iterable[Any]], accelerator: Accelerator) -> Fingerprint:
    """Hash the contents, and the modules of the functions that the options name, which must be loaded. Collective.

    Args:
        contents: items by the name of their source, as dataclasses or plain values.

    Raises: UserError on every rank if a rank has other options or another fingerprint than rank 0.
    """
    fingerprint = hash_contents(contents)
    fingerprint["VLLM_BATCH_INVARIANT"] = _hash([os.environ.get("VLLM_BATCH_INVARIANT", "0")])  # changes the responses
    fingerprint |= hash_code(config.model_dump())
    ranks = all_gather_objects([(flat_options(config), fingerprint)], accelerator)
    for rank, (options, hashes) in enumerate(ranks):
        changed = differences(ranks[0][0], options).items()
        parts = [f"{key}: got {new!r:.80}, expected {old!r:.80}" for key, (old, new) in changed]
        parts += [f"{name}: got another content" for name in differences(ranks[0][1], hashes)]
        if parts:
            remedy = "start all ranks with the same options and files"
            raise UserError(f"rank {rank} differs from rank 0: {'; '.join(parts[:LISTED])}; {remedy}")
    return fingerprint


def changed_contents(config: Config, saved: Fingerprint, fingerprint: Fingerprint) -> dict[str, tuple[str, str]]:
    """The contents that differ from those of the checkpoint, (old, new).

    Raises: UserError for other weights of model.name or loss.reference where the run still uses them.
    """
    changed, loss = differences(saved, fingerprint), config.loss
    takes = f"{'loss.beta > 0' if loss.beta else 'loss.kind'} takes them as the reference model"
    use = "lora.rank trains adapters on them" if config.lora.rank else None
    if reads_reference(loss.kind, loss.beta) and not loss.reference:
        use = takes
    models = (
        (WEIGHTS, "model.name", config.model.name, use),
        (REFERENCE, "loss.reference", loss.reference, loss.reference and takes),
    )
    for content, option, name, used in models:
        if changed.pop(content, None) and used:
            problem = f"the weights of {name} are not those that the checkpoint began with, and {used}"
            remedy = "restore them, or start a new run with another train.output_dir"
            raise UserError(f"{option}: {problem}; {remedy}")
    return changed


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


def hash_contents(contents: dict[str, Iterable[Any]]) -> Fingerprint:
    """Hash the items of each content, which are dataclasses or plain values."""
    return {
        name: _hash(json.dumps(item, default=_plain, skipkeys=True) for item in items)
        for name, items in contents.items()
    }


# --- the files of a model --------------------------------------------------------------------------------------------


def model_contents(path: str) -> dict[str, list[tuple[str, str]]]:
    """The files of the model at `path`, a directory or hub name, as (name, SHA-256): weights, and settings."""
    weights = weight_files(path)
    settings = {file for pattern in SETTINGS_FILES for file in weights[0].parent.glob(pattern)}
    with ThreadPoolExecutor(max_workers=8) as pool:
        return {
            name: [(file.name, digest) for file, digest in zip(files, pool.map(hash_file, files))]
            for name, files in ((WEIGHTS, weights), (SETTINGS, sorted(settings)))
        }


def hash_file(path: Path) -> str:
    """The SHA-256 of a file. That of a large one is kept in the user's cache, for as long as the file is the same."""
    with path.open("rb") as file:
        identity, now = _identity(file.fileno()), time.time_ns()
        entry = _cache_entry(path) if identity["bytes"] >= LARGE else None
        if kept := _kept_hash(entry, identity):
            return kept
        digest = file_digest(file, "sha256").hexdigest()
        settled = now - max(identity["modified"], identity["changed"]) > SETTLED_NS
        if entry and settled and _identity(file.fileno()) == identity:
            with suppress(OSError, UserError):  # a read-only home
                entry.parent.mkdir(parents=True, exist_ok=True)
                write_json(entry, identity | {"sha256": digest})
    return digest


def _kept_hash(entry: Path | None, identity: dict[str, int]) -> str | None:
    """The hash in a cache entry, None if it is that of another file or damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):  # missing or damaged
        record = json.loads(entry.read_bytes()) if entry else {}
        if record == identity | {"sha256": record.get("sha256")} and re.fullmatch("[0-9a-f]{64}", record["sha256"]):
            return record["sha256"]
    return None


def _identity(handle: int) -> dict[str, int]:
    """What changes with a file's content. A copy may restore the time of modification, but not that of the change."""
    status = os.fstat(handle)
    times = {"modified": status.st_mtime_ns, "changed": status.st_ctime_ns}
    return times | {"bytes": status.st_size, "inode": status.st_ino}


def _cache_entry(path: Path) -> Path | None:
    """Where the hash of a file is kept; None for a user without a home."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return folder / "d3s" / "hashes" / f"{_hash([str(path.resolve())])}.json"


# --- the code of the user --------------------------------------------------------------------------------------------


def hash_code(value: Any) -> Fingerprint:
    """Hash the modules of all `module:function` in an option's value, and those of the user that they import.

    Imports inside functions count, those by a computed name do not. Modules of Python, d3s and site-packages are not
    the user's, unless an option names their package. A function of no module (d3s/rewards/given.py) counts by itself.

    Returns: hashes by `module NAME` and `function NAME`.
    """
    found = list(_named_objects(value))
    hashes = {f"function {name}": _hash([_source(module, name)]) for module, name in found if module == GIVEN}
    named = list(dict.fromkeys(module for module, _ in found if not module.startswith("d3s.")))
    packages = {name.partition(".")[0] for name in named}
    queue, seen = list(named), set(named)
    for name in queue:  # which grows
        file = _find_file(name)
        if name in named or (file and (name.partition(".")[0] in packages or _is_users(file))):
            source = file.read_text(encoding="utf-8", errors="replace") if file else ""
            hashes[f"module {name}"] = _hash([source])
            imported = dict.fromkeys(_imports(source, name, bool(file) and file.name == "__init__.py"))
            queue += imported.keys() - seen
            seen |= imported.keys()
    return dict(sorted(hashes.items()))


def _named_objects(value: Any) -> Iterator[tuple[str, str]]:
    """(module, function) of all `module:function` and `LIBRARY:module:function` in an option's value, if loaded."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _named_objects(item)
    module, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if (module := module.rpartition(":")[2]) in sys.modules:
        yield module, name


def _source(module: str, name: str) -> str:
    """The source text of a function or class; "" where Python keeps none."""
    with suppress(OSError, TypeError, AttributeError):
        return inspect.getsource(getattr(sys.modules[module], name))
    return ""


def _imports(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Names that the source of a module imports, of modules or of what is in them, after the packages around them."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a compiled module
        return
    parts = module.split(".")
    names = [".".join(parts[:-1])]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*around, *filter(None, [node.module])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    for name in filter(None, names):
        parts = name.split(".")
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _find_file(module: str) -> Path | None:
    """The file of a module, which need not be loaded and is not; None without one."""
    if module in sys.modules:
        file = getattr(sys.modules[module], "__file__", None)
        return Path(file) if file else None
    spec, *parts = None, *module.split(".")
    for position, part in enumerate(parts):
        folders = spec.submodule_search_locations if spec else None
        if position and folders is None:
            return None
        spec = PathFinder.find_spec(part, folders)  # by the full name it would ask for the loaded package
    return Path(spec.origin) if spec and spec.has_location else None


def _is_users(file: Path) -> bool:
    """Whether a module's file belongs to the user: not to Python, an installed package or d3s."""
    if {"site-packages", "dist-packages"} & set(file.parts):
        return False
    others = Path(sysconfig.get_path("stdlib")), Path(__file__).parents[1]
    return not any(file.resolve().is_relative_to(folder.resolve()) for folder in others)


def _plain(value: Any) -> Any:
    """What JSON has for other values: the fields of a dataclass, the type of anything else."""
    return vars(value) if hasattr(value, "__dataclass_fields__") else type(value).__name__


def _hash(texts: Iterable[str]) -> str:
    digest = sha256()
    for text in texts:
        digest.update(text.encode(errors="surrogatepass") + b"\0")
    return digest.hexdigest()[:16]
