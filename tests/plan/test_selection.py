"""Words of the dry run about the selection, against the options."""

from itertools import product

import pytest

from d3s.config.load import load_config
from d3s.plan.selection import selection_rows


def rows(*arguments):
    files = [a for a in arguments if a.endswith(".yaml")]
    return dict(selection_rows(load_config(files, [a for a in arguments if not a.endswith(".yaml")])))


@pytest.mark.parametrize(
    ("arguments", "label", "words"),
    [
        ([], "advantages", "standard deviation of the group"),
        ([], "kept rollouts", "the N of largest variance, N x B of the batch"),
        ([], "kept tokens", "|A| x entropy, of the batch"),
        (["selector.token_scope=sample"], "kept tokens", "|A| x entropy, of each response"),
        (["selector.cross_share=0.5"], "kept rollouts", "N x B of the batch, 50% of them across problems"),
        (["configs/method/grpo.yaml"], "kept rollouts", "all"),
        (["configs/method/grpo.yaml"], "kept tokens", "all"),
        (["schedule.k_init=1"], "kept tokens", "|A| x entropy, of the batch"),  # K falls to 0.2
        (["schedule.k_init=1", "schedule.k_shape=constant"], "kept tokens", "all"),
        (["selector.cross_share=auto"], "kept rollouts", "N x B of the batch, across problems as far as the gradient"),
        (["configs/method/pods.yaml"], "advantages", "of the kept rollouts alone"),
        (["configs/method/cppo.yaml"], "kept rollouts", "the N of largest |A| (CPPO), N of each problem"),
        (["configs/method/nat.yaml"], "kept tokens", "each with probability K"),
        (["configs/method/nat_prefix.yaml"], "kept tokens", "a random prefix of each response"),
        (["configs/method/maxrl.yaml"], "advantages", "mean of the group (MaxRL)"),
        (["configs/method/pass_at_k.yaml"], "advantages", "for Pass@4"),
        (["configs/method/variance_mass.yaml"], "kept rollouts", "90% of the summed reward variance: all"),
    ],
)
def test_selection_is_said_in_words(arguments, label, words):
    assert words in rows(*arguments)[label]


def test_every_selection_has_words():
    """Every value of the options has its own text."""
    kinds = product(("max_variance", "abs_advantage", "random"), ("true", "false"))
    texts = [rows(f"selector.rollouts={kind}", f"selector.cross_group={c}")["kept rollouts"] for kind, c in kinds]
    assert len(set(texts)) == 6
    kinds = ("advantage_entropy", "entropy", "random", "nat", "nat_prefix")
    assert len({rows(f"selector.tokens={kind}")["kept tokens"] for kind in kinds}) == 5
    assert len({rows(f"reward.scale_rewards={kind}")["advantages"] for kind in ("group", "batch", "mean", "none")}) == 4
