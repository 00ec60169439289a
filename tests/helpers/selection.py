"""The rewards and the configuration that the tests of down-sampling share."""

import torch

from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.downsampling import downsample_rollouts
from d3s.rollout.groups import RolloutGroups

REWARDS = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [1.0, 1, 1, 1, 1, 0, 0, 0], [0.0, 0, 0, 0, 0, 0, 0, 0]])
ALL = torch.ones(3, 8, dtype=torch.bool)


def config(*overrides: str) -> Config:
    """D3S with G = 8."""
    return load_config([], ["rollout.num_generations=8", "schedule.n_init=4", "schedule.n_final=8", *overrides])


def downsample(config: Config, rewards, eligible, n, generator, share=None) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and kept rollouts of these rewards by the options of a run; `share` replaces selector.cross_share."""
    groups = RolloutGroups([], [], rewards, rewards, rewards, eligible, rewards)
    share = config.selector.cross_share if share is None else share
    return downsample_rollouts(config.selector, config.reward, groups, eligible, share, n, generator)
