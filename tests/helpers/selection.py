"""The rewards and the configuration that the tests of down-sampling share."""

import torch

from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.downsampling import downsample_rollouts

REWARDS = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [1.0, 1, 1, 1, 1, 0, 0, 0], [0.0, 0, 0, 0, 0, 0, 0, 0]])
ALL = torch.ones(3, 8, dtype=torch.bool)


def config(*overrides: str) -> Config:
    """D3S with G = 8."""
    return load_config([], ["rollout.num_generations=8", "schedule.n_init=4", "schedule.n_final=8", *overrides])


def downsample(config: Config, *arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and kept rollouts by the options of a run."""
    return downsample_rollouts(config.selector, config.reward, *arguments)
