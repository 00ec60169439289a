"""Rollout engines: prompts in, sampled responses out. `build_engine` imports the chosen one only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from d3s.rollout.engine import Engine

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import RolloutConfig


def build_engine(
    model_path: str,
    config: RolloutConfig,
    *,
    dtype: str,
    max_model_len: int,
    seed: int,
    head_dtype: str = "auto",
    weights_folder: Path | None = None,
) -> Engine:
    """Load the model at `model_path` into the engine that `config` names, or connect to the servers that serve it.

    Args:
        max_model_len: tokens of the longest prompt plus those of the longest response.
        seed: of vLLM itself; each response has its own.
        head_dtype: model.head_dtype.
        weights_folder: where servers read new weights; only needed with rollout.servers.
    """
    settings = {"dtype": dtype, "max_model_len": max_model_len, "head_dtype": head_dtype}
    if config.servers:
        from d3s.rollout.server_engine import ServerEngine

        return ServerEngine(model_path, config, weights_folder=weights_folder, **settings)
    if config.engine == "transformers":
        from d3s.rollout.transformers_engine import TransformersEngine

        return TransformersEngine(model_path, config, **settings)
    from d3s.rollout.vllm_engine import VllmEngine

    return VllmEngine(model_path, config, seed=seed, **settings)
