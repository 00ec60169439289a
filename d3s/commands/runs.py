"""The model of a run and the settings of its evaluations, for eval.py --run.

Imports of torch and transformers wait until a checkpoint is converted.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from d3s.common import UserError, writing
from d3s.config.load import load_config
from d3s.config.schema import Config

MODELS = "models"  # folder of a run with the models of checkpoints
CONVERTED = "checkpoint.json"  # the manifest of the checkpoint that a model was made from


def read_run(run: Path) -> Config:
    """The configuration of a run. Raises UserError if there is none."""
    if not (run / "config.yaml").is_file():
        raise UserError(f"--run: got {run}, expected the directory of a run, with config.yaml")
    return load_config([run / "config.yaml"])


def run_options(config: Config) -> dict[str, Any]:
    """The options of eval.py with which a run evaluates, by their names there; eval.data aside."""
    options = config.eval.model_dump(include={"n", "k", "split", "limit", "reward"})
    options |= config.data.model_dump(include={"options", "template", "system_prompt", "chat_template_kwargs"})
    options |= config.model.model_dump(include={"dtype", "head_dtype"})
    return options | {
        "seed": config.train.seed,
        "max_tokens": config.rollout.max_completion_length,
        "engine": config.rollout.engine,
        "extraction": config.reward.extraction,
        "limits": config.reward,
        "overlong_prompts": "drop",
    }


def find_run_model(run: Path, step: int | None) -> Path:
    """The directory of a run's trained model, or of that of the checkpoint of `step`, which is written to models/.

    Raises: UserError if there is none.
    """
    from d3s.checkpoint import damage, saved_steps, step_of

    if step is None and (run / "model" / "config.json").exists():
        return run / "model"
    checkpoints = {step_of(path): path for path in saved_steps(run)}
    if step not in checkpoints:
        absent = "model/, as the run has not ended" if step is None else f"checkpoint of step {step}"
        known = f"name a checkpoint, --step {', '.join(map(str, checkpoints))}"
        remedy = known if checkpoints else "train it up to its first checkpoint"
        raise UserError(f"{run}: has no {absent}; {remedy}")
    if reason := damage(checkpoints[step]):
        raise UserError(f"{checkpoints[step]}: is damaged ({reason}); name another checkpoint")
    with _sole_writer(run / MODELS):
        return _convert(checkpoints[step], read_run(checkpoints[step]), run / MODELS / checkpoints[step].name)


def _convert(checkpoint: Path, config: Config, path: Path) -> Path:
    """Write the model of a checkpoint as transformers and vLLM load it, with adapters merged, unless it is there."""
    import torch
    from safetensors.torch import load_file

    from d3s.actor.lora import attach_adapter, merged_weights
    from d3s.actor.zero3 import full_weights, read_shards
    from d3s.checkpoint import MANIFEST, read_state, write_model
    from d3s.pretrained import load_model, read_tokenizer
    from d3s.tiny import find_model
    from d3s.tracking.fingerprint import WEIGHTS, differences, hash_contents, model_contents

    base, dtype, lora = find_model(config.model.name), getattr(torch, config.model.dtype), bool(config.lora.rank)
    state, misfit = read_state(checkpoint), f"{checkpoint}: does not fit model.name, {config.model.name}"
    changed = differences(state.get("fingerprint", {}), hash_contents(model_contents(base)))
    if not lora:  # all weights are those of the checkpoint
        changed.pop(WEIGHTS, None)
    if changed:
        raise UserError(f"{misfit}, with other {' and '.join(changed)}; restore the files of that run")
    files = json.loads((checkpoint / MANIFEST).read_text())
    with suppress(OSError, ValueError):  # a damaged one is written again
        if json.loads((path / CONVERTED).read_text()) == files:
            return path
    lm = load_model(base, dtype=dtype if lora else torch.float32)
    if lora:
        attach_adapter(lm, base, config.lora, config.train.seed)
    saved = read_shards(checkpoint) if state["zero3"] else load_file(checkpoint / "model.safetensors")
    trained = {name: parameter for name, parameter in lm.named_parameters() if parameter.requires_grad}
    if trained.keys() - saved.keys() or any(saved[name].shape != p.shape for name, p in trained.items()):
        raise UserError(f"{misfit}; restore the model of that run")
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(saved[name])
    weights = {name: weight.to(dtype) for name, weight in (merged_weights(lm) if lora else full_weights(lm))}
    write_model(lm, weights, read_tokenizer(base), config.model.dtype, path, {CONVERTED: files})
    return path


@contextmanager
def _sole_writer(folder: Path) -> Iterator[None]:
    """Make a folder, and wait until no other process converts a model in it."""
    with writing(folder, "evaluate a copy of the run"):
        folder.mkdir(exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115 (held as long as the block)
    with lock:
        with suppress(OSError):  # a network file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
