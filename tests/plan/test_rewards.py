"""The dry run's words about rewards: silent about defaults, and every other option named."""

from d3s.config.load import load_config
from d3s.plan.rewards import reward_rows


def test_default_rewards_are_not_explained():
    assert list(reward_rows(load_config([]))) == []


def test_reward_options_are_explained():
    options = [
        "reward.functions=[a:b,[c.d:e,-0.5]]",
        "reward.errors=zero",
        "reward.std_floor=0.05",
        "reward.shaper=s:t",
    ]
    rows = list(reward_rows(load_config([], options)))
    assert rows[0] == ("reward", "a:b + -0.5 x c.d:e") and "counts as 0" in rows[1][1]
    assert "0.05" in rows[2][1] and rows[3][0] == "shaper" and rows[3][1].startswith("s:t ")
    split = ["reward.functions=[a:b,c:d]", "reward.aggregation=normalize_then_sum", "reward.scale_rewards=batch"]
    assert "normalized within its group" in list(reward_rows(load_config([], split)))[2][1]
