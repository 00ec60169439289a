"""Rollout engines: prompts in, sampled responses out."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from d3s.config.schema import RolloutConfig

if TYPE_CHECKING:
    from d3s.rollout.server_engine import ServerEngine
    from d3s.rollout.transformers_engine import TransformersEngine
    from d3s.rollout.vllm_engine import VllmEngine


def build_engine(
    model_path: str,
    config: RolloutConfig,
    *,
    dtype: str,
    max_model_len: int,
    seed: int,
    head_dtype: str = "auto",
    weights_folder: Path | None = None,
) -> "VllmEngine | TransformersEngine | ServerEngine":
    """Loads the model at `model_path` into the engine that the configuration names, or finds the servers that have it.

    `head_dtype` is model.head_dtype. `weights_folder` is where servers find new weights; other engines need none.
    """
    if config.servers:
        from d3s.rollout.server_engine import ServerEngine

        options = {"weights_folder": weights_folder, "head_dtype": head_dtype}
        return ServerEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, **options)
    if config.tensor_parallel_size > 1 and not torch.cuda.is_available():
        _remove_shared_memory(config.tensor_parallel_size)
    if config.engine == "transformers":
        from d3s.rollout.transformers_engine import TransformersEngine

        return TransformersEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, head_dtype=head_dtype)
    from d3s.rollout.vllm_engine import VllmEngine

    return VllmEngine(model_path, config, dtype=dtype, max_model_len=max_model_len, seed=seed, head_dtype=head_dtype)


def _remove_shared_memory(size: int) -> None:
    """What an earlier run has left: vLLM's CPU ranks share memory under names that are the same in every run, leave it
    there when they are killed, and do not start where it is. Each rank makes, and here removes, its own."""
    rank = int(os.environ["RANK"])
    group = range(rank - rank % size, rank - rank % size + size)
    Path(f"/dev/shm/-tp:0-[{'-'.join(map(str, group))}]-cpushm_{rank % size}").unlink(missing_ok=True)
