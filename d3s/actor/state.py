"""Weights and optimizer state of the actor: gathered for the engine, saved, loaded, resharded."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from d3s.common import UserError
from d3s.policy import decoder_layers

BUCKET_BYTES = 2**29  # of parameters gathered at once by full_weights under ZeRO-3


def is_zero3(accelerator: Accelerator) -> bool:
    """Whether DeepSpeed shards the parameters."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    return plugin is not None and plugin.zero_stage == 3


def full_weights(lm: torch.nn.Module, zero3: bool) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of every parameter, tied ones under each name, gathered bucket by bucket; then buffers.

    Under ZeRO-3 every rank must exhaust the iterator. The tensors are copies, which the caller may keep.
    """
    bucket, size = [], 0
    for name, parameter in lm.named_parameters(remove_duplicate=False):
        bucket.append((name, parameter))
        size += getattr(parameter, "ds_numel", parameter.numel()) * parameter.element_size()
        if size >= BUCKET_BYTES:
            yield from _gathered(bucket, zero3)
            bucket, size = [], 0
    yield from _gathered(bucket, zero3)
    yield from saved_buffers(lm)


def saved_buffers(lm: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, copy) of the constants that weight files hold, without which engines reload garbage (Apertus)."""
    saved = lm.state_dict().keys()
    for name, buffer in lm.named_buffers(remove_duplicate=False):
        if name in saved and buffer.is_floating_point():
            yield name, buffer.clone()


def _gathered(bucket: list[tuple[str, Tensor]], zero3: bool) -> list[tuple[str, Tensor]]:
    if zero3:
        import deepspeed

        unsharded = deepspeed.zero.GatheredParameters(list({id(p): p for _, p in bucket}.values()))
    with unsharded if zero3 else nullcontext():
        return [(name, p.data.clone()) for name, p in bucket]


def save_state(lm: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Write trained weights and optimizer state as files of one process; of frozen weights only a checksum."""
    trained = {name: p.data for name, p in lm.named_parameters() if p.requires_grad}
    save_file(trained, folder / "model.safetensors", metadata={"frozen": frozen_checksum(lm)})
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")


def load_state(lm: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Load what save_state wrote.

    Raises: UserError for other frozen weights, ValueError or RuntimeError for trained ones of other names or shapes.
    """
    weights = load_file(folder / "model.safetensors")
    trained = {name: parameter for name, parameter in lm.named_parameters() if parameter.requires_grad}
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        frozen = (file.metadata() or {}).get("frozen", "")
    if weights.keys() != trained.keys():
        raise ValueError("the trained layers are others")
    if frozen != frozen_checksum(lm):
        raise UserError(
            f"{folder}: the adapter belongs to other frozen weights; resume with the model.name and model.dtype of "
            "that run"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(weights[name])
    optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True, map_location="cpu"))


def describe_size(lm: torch.nn.Module, compiled: bool = False) -> str:
    """The number of parameters, also under ZeRO-3, of trained ones if others are frozen; what is done with layers."""
    sizes = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in lm.parameters()]
    total, trained = sum(size for size, _ in sizes), sum(size for size, needed in sizes if needed)
    recomputed = [layer.gradient_checkpointing for layer in decoder_layers(lm)]
    size = f"{total:,} parameters" + (f" ({trained:,} trained by LoRA)" if trained < total else "")
    size += f", {sum(recomputed)} of {len(recomputed)} layers recomputed" if any(recomputed) else ""
    return size + ", layers compiled when they first run" * compiled


def frozen_checksum(lm: torch.nn.Module) -> str:
    """A checksum of the frozen weights, "" if there are none.

    Sums of bit patterns depend neither on the order nor on the machine.
    """
    sums = []
    for name, parameter in lm.named_parameters():
        if not parameter.requires_grad:
            bits = parameter.detach().contiguous().view({2: torch.int16, 4: torch.int32}[parameter.element_size()])
            sums.append((name, list(parameter.shape), int(bits.sum(dtype=torch.int64))))
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest() if sums else ""


def load_resharded(engine: torch.nn.Module, folder: Path, saved_by: int, accelerator: Accelerator) -> None:
    """Reshard a ZeRO-3 checkpoint of `saved_by` ranks with DeepSpeed's converter, and load it. Collective."""
    main, universal = accelerator.is_main_process, folder / "universal"
    if main:
        shutil.rmtree(universal, ignore_errors=True)
        convert = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", folder / "zero3"]
        convert += ["--output_folder", universal, "--num_extract_workers", "1", "--num_merge_workers", "1"]
        done = subprocess.run(convert, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            reason = done.stdout.strip()[-300:]
            ranks = accelerator.num_processes
            raise UserError(
                f"{folder}: cannot reshard the ZeRO-3 checkpoint from {saved_by} to {ranks} ranks; "
                f"DeepSpeed said: {reason}"
            )
    accelerator.wait_for_everyone()
    settings = engine._config  # the option is known only after the engine was built
    settings.load_universal_checkpoint = True
    engine.load_checkpoint(str(folder), tag="universal")
    settings.load_universal_checkpoint = False
    accelerator.wait_for_everyone()
    if main:
        shutil.rmtree(universal)
        (folder / "latest_universal").unlink(missing_ok=True)
