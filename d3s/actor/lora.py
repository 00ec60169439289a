"""LoRA through peft: adapters on a frozen model, weights with the adapter merged, the adapter's files.

The frozen weights keep model.dtype and are never written to; adapters are float32. Dropout is never active, because
probabilities must be those that the engine sampled with.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from d3s.actor.zero3 import saved_buffers
from d3s.common import UserError, write_directory
from d3s.pretrained import meta_model

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import LoraConfig

ADAPTER = "default"  # peft's name of a model's only adapter


# W' = W + (alpha / r) B A, with A [r, in] random and B [out, r] zero at the start, so that training starts at the base
# model (arXiv 2106.09685).
def attach_adapter(lm: nn.Module, path: str, options: LoraConfig, seed: int) -> Any:
    """Freeze the transformers model `lm` and put adapters on its linear layers, in place.

    Args:
        path: the model's directory or hub name, for messages and for the files of the adapter.
        seed: of A; every rank draws the same numbers.

    Returns: peft's wrapper of `lm`, for disable_adapter() and save_adapter.
    Raises: UserError for layers that cannot be adapted.
    """
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model
    from transformers.pytorch_utils import Conv1D

    layers = target_layers(lm, path, options)
    config = PeftConfig(
        task_type="CAUSAL_LM",
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=list(layers),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in layers.values()),  # its weights are [in, out]
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        adapter = get_peft_model(lm, config)
    for name in layers:  # peft would copy each input to float32, only for autocast to round it again
        lm.get_submodule(name).cast_input_dtype_enabled = False
    return adapter


def check_targets(path: str, options: LoraConfig) -> None:
    """Raise UserError, before anything expensive is built, if LoRA is on and cannot adapt the model at `path`."""
    if options.rank:
        target_layers(meta_model(path), path, options)


def target_layers(lm: nn.Module, path: str, options: LoraConfig) -> dict[str, nn.Module]:
    """The layers of `lm` that lora.targets selects, by name. Raises: UserError for layers that cannot be adapted."""
    from transformers.pytorch_utils import Conv1D

    head = lm.get_output_embeddings()
    linear = {
        name: module
        for name, module in lm.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    }
    if options.targets == "all-linear":
        for name, module in lm.named_modules():
            matrices = [key for key, weight in module.named_parameters(recurse=False) if weight.ndim > 1]
            if matrices and name not in linear and module is not head and not isinstance(module, nn.Embedding):
                raise UserError(
                    f"lora.targets: 'all-linear' would never train {name}.{matrices[0]} of {path}, which is not a "
                    "linear layer; name the layers to adapt, or set lora.rank: null"
                )
        return linear
    for target in options.targets:
        if not any(f".{name}".endswith(f".{target}") for name in linear):
            names = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise UserError(f"lora.targets: got {target!r}, expected linear layers of {path} ({names})")
    ends = tuple(f".{target}" for target in options.targets)
    return {name: layer for name, layer in linear.items() if f".{name}".endswith(ends)}


@torch.no_grad()
def merged_weights(lm: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, W + alpha / r B A) of every parameter under its name without LoRA, tied ones under each name.

    The sum is computed in float32 and cast to the type of W. All other tensors are the parameters themselves.
    """
    for name, weight in lm.named_parameters(remove_duplicate=False):
        layer, adapted, leaf = name.partition(".base_layer.")
        if adapted and leaf == "weight":
            delta = lm.get_submodule(layer).get_delta_weight(ADAPTER)  # float32, as A and B
            yield f"{layer}.{leaf}", (weight.float() + delta).to(weight.dtype)
        elif adapted:  # a bias
            yield f"{layer}.{leaf}", weight.detach()
        elif ".lora_" not in name:
            yield name, weight.detach()
    yield from saved_buffers(lm)


def save_adapter(adapter: Any, path: Path) -> None:
    """Write the adapter as PeftModel.from_pretrained reads it. `adapter` is what attach_adapter returned."""
    from peft import get_peft_model_state_dict

    with write_directory(path) as temporary:
        tensors = get_peft_model_state_dict(adapter, save_embedding_layers=False)
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            temporary / "adapter_model.safetensors",
            metadata={"format": "pt"},
        )
        adapter.peft_config[ADAPTER].save_pretrained(temporary)
