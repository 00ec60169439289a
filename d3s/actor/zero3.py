"""All that is of DeepSpeed ZeRO-3 in the actor, in its weights and in its checkpoints.

Elsewhere launch.start_accelerator sets what DeepSpeed reads as it starts, pretrained.not_sharded loads complete
models for others than the actor, and memory.py plans.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from d3s.actor.copies import Copies
from d3s.common import UserError
from d3s.distributed import ranks_per_node
from d3s.loss import reads_reference

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config
    from d3s.policy import Policy

TAG = "zero3"  # folder of the shards in a checkpoint
BUCKET_BYTES = 2**29  # of parameters gathered at once by full_weights


class Shards(Copies):
    """DeepSpeed gathers a layer from all ranks where it runs, and exchanges the gradients of every micro-batch."""

    def __init__(self, accelerator: Accelerator, config: Config) -> None:
        """Complete DeepSpeed's settings, which transformers reads when it loads the model."""
        super().__init__(accelerator, config)
        plugin = accelerator.state.deepspeed_plugin
        settings = plugin.deepspeed_config
        settings["train_micro_batch_size_per_gpu"] = 1  # required; micro-batches are sized in tokens
        settings["gradient_clipping"] = config.optim.max_grad_norm
        if accelerator.mixed_precision == "bf16":  # bfloat16 cannot sum over many micro-batches
            settings["data_types"] = {"grad_accum_dtype": "fp32"}
        # Gather weights from the ranks of this node, each of which keeps a second shard of them. DeepSpeed 0.19.8
        # refuses it for a second model, the reference.
        if (size := ranks_per_node()) and not reads_reference(config.loss.kind, config.loss.beta):
            settings["zero_optimization"].setdefault("zero_hpz_partition_size", size)
            plugin.set_deepspeed_weakref()  # the copy that transformers reads

    def prepare(self, policy: Policy, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        """See Copies.prepare."""
        self.policy, self.optimizer = self.accelerator.prepare(policy, optimizer)
        return self.policy, self.optimizer

    def frozen(self, reference: nn.Module) -> nn.Module:
        """See Copies.frozen."""
        import deepspeed

        settings = self.accelerator.state.deepspeed_plugin.deepspeed_config
        settings = {k: settings[k] for k in ("train_micro_batch_size_per_gpu", "bf16", "fp16") if k in settings}
        return deepspeed.initialize(model=reference, config=settings | {"zero_optimization": {"stage": 3}})[0]

    def micro_batch(self) -> AbstractContextManager:
        """See Copies.micro_batch."""
        return nullcontext()

    def backward(self, loss: Tensor, last: bool) -> None:
        """See Copies.backward."""
        self.policy.set_gradient_accumulation_boundary(last)
        self.policy.backward(loss)

    def exchange_gradients(self) -> None:
        """Nothing is left to exchange."""

    def step(self, require_finite: Callable[[float], None]) -> float:
        """See Copies.step. DeepSpeed leaves the step out if the norm is not finite."""
        self.policy.step()
        norm = float(self.policy.get_global_grad_norm())
        require_finite(norm)
        return norm

    def save(self, folder: Path) -> None:
        """See Copies.save."""
        self.policy.save_checkpoint(str(folder), tag=TAG, exclude_frozen_parameters=False)

    def load(self, folder: Path, saved_by: int) -> None:
        """See Copies.load. Shards of another number of ranks go through DeepSpeed's converter."""
        if saved_by == self.accelerator.num_processes:
            self.policy.load_checkpoint(str(folder), tag=TAG)
            return
        main, universal = self.accelerator.is_main_process, folder / "universal"
        if main:
            _convert(folder, universal, f"from {saved_by} to {self.accelerator.num_processes} ranks")
        self.accelerator.wait_for_everyone()
        settings = self.policy._config  # the option is known only after the engine was built
        settings.load_universal_checkpoint = True
        self.policy.load_checkpoint(str(folder), tag="universal")
        settings.load_universal_checkpoint = False
        self.accelerator.wait_for_everyone()
        if main:
            shutil.rmtree(universal)
            (folder / "latest_universal").unlink(missing_ok=True)


def choose_placement(accelerator: Accelerator, config: Config) -> Copies:
    """How this launch places parameters."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    return (Shards if plugin is not None and plugin.zero_stage == 3 else Copies)(accelerator, config)


def _convert(folder: Path, universal: Path, change: str) -> None:
    """Write the shards of a checkpoint as a universal one."""
    shutil.rmtree(universal, ignore_errors=True)
    convert = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", folder / TAG]
    convert += ["--output_folder", universal, "--num_extract_workers", "1", "--num_merge_workers", "1"]
    done = subprocess.run(convert, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise UserError(
            f"{folder}: cannot reshard the ZeRO-3 checkpoint {change}; DeepSpeed said: {done.stdout.strip()[-300:]}"
        )


def size_of(parameter: Tensor) -> int:
    """The number of entries, of all shards under ZeRO-3."""
    return getattr(parameter, "ds_numel", parameter.numel())


def is_sharded(parameter: Tensor) -> bool:
    """Whether ranks hold parts of a parameter."""
    return hasattr(parameter, "ds_id")


def gathered(parameters: Iterable[Tensor]) -> AbstractContextManager:
    """Within it these parameters are complete, on every rank if they are sharded. Collective then."""
    distinct = list({id(p): p for p in parameters}.values())
    if not any(map(is_sharded, distinct)):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(distinct)


def full_weights(lm: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of every parameter, tied ones under each name, gathered bucket by bucket; then buffers.

    Under ZeRO-3 every rank must exhaust the iterator, and the tensors are copies. Else they are the parameters
    themselves, which the next update changes.
    """
    bucket, size = [], 0
    for name, parameter in lm.named_parameters(remove_duplicate=False):
        bucket.append((name, parameter))
        size += size_of(parameter) * parameter.element_size()
        if size >= BUCKET_BYTES:
            yield from _gathered(bucket)
            bucket, size = [], 0
    yield from _gathered(bucket)
    yield from saved_buffers(lm)


def saved_buffers(lm: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, buffer) of the constants that weight files hold, without which engines reload garbage (Apertus)."""
    saved = lm.state_dict().keys()
    for name, buffer in lm.named_buffers(remove_duplicate=False):
        if name in saved and buffer.is_floating_point():
            yield name, buffer


def _gathered(bucket: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    with gathered([p for _, p in bucket]):
        return [(name, p.data.clone() if is_sharded(p) else p.data) for name, p in bucket]


def read_shards(checkpoint: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint of Shards, by their names in the transformers model."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    saved = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint), tag=TAG)
    return {name.removeprefix("lm."): tensor for name, tensor in saved.items()}  # of Policy
