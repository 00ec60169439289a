"""The rewards and the configuration that the tests of down-sampling share."""

import torch

from d3s.config.load import load_config
from d3s.config.schema import Config, RewardConfig, SelectorConfig
from d3s.groups import RolloutGroups
from d3s.selector import Selection, Selector

REWARDS = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [1.0, 1, 1, 1, 1, 0, 0, 0], [0.0, 0, 0, 0, 0, 0, 0, 0]])
ALL = torch.ones(3, 8, dtype=torch.bool)


def config(*overrides: str) -> Config:
    """D3S with G = 8."""
    return load_config([], ["rollout.num_generations=8", "schedule.n_init=4", "schedule.n_final=8", *overrides])


def select(config: Config, rewards, eligible, n, generator, share=None) -> Selection:
    """What the options of a run select of these rewards; `share` replaces selector.cross_share."""
    groups = RolloutGroups([], [], rewards, rewards, rewards, eligible, rewards)
    share = config.selector.cross_share if share is None else share
    selector = Selector(config.selector, config.reward)
    return selector.rollouts(groups, selector.advantages(groups), eligible, share, n, generator)


def advantages_of(reward: RewardConfig, rewards, parts=None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Advantages and divisors of rewards [B, G] by these options."""
    groups = RolloutGroups([], [], rewards, rewards, rewards, rewards, rewards, parts or {})
    return Selector(SelectorConfig(), reward).advantages(groups)


def downsample(*arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """The advantages and kept rollouts of `select`."""
    selection = select(*arguments)
    return selection.advantages, selection.kept


def selection_of(advantages: torch.Tensor, kept: torch.Tensor, **fields) -> Selection:
    """A selection with these advantages and kept rollouts."""
    fields = {"n": 1, "cross_share": 1.0, "eligible": torch.ones_like(kept), "all_advantages": advantages} | fields
    return Selection(**fields, advantages=advantages, divisors=None, kept=kept)
