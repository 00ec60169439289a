"""Rollout engines: prompts in, sampled responses out. `build_engine` imports the chosen one only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from d3s.rollout.engine import Engine
from d3s.rollout.named import ENGINE_RULES, open_engine

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
        seed: of the engine itself; each response has its own.
        head_dtype: model.head_dtype.
        weights_folder: where servers read new weights; only needed with rollout.servers.
    """
    settings = {"config": config, "dtype": dtype, "max_model_len": max_model_len, "head_dtype": head_dtype}
    if config.servers:
        from d3s.rollout.server_engine import ServerEngine

        return ServerEngine(model_path, weights_folder=weights_folder, **settings)
    return open_engine(ENGINE_RULES, config.engine, model_path=model_path, seed=seed, **settings)
