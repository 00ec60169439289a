"""Words of the dry run about the selection, against the options."""

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
        ([], "kept rollouts", "N x B of the batch; max_variance: Largest variance of the adv"),
        ([], "kept tokens", "the fraction K of the batch; advantage_entropy: |advantage| x entropy"),
        (["selector.token_scope=sample"], "kept tokens", "the fraction K of each response; advantage_entropy: "),
        (["selector.cross_share=0.5"], "kept rollouts", "N x B of the batch, 50% of them across problems"),
        (["configs/method/grpo.yaml"], "kept rollouts", "all"),
        (["configs/method/grpo.yaml"], "kept tokens", "all"),
        (["schedule.k_init=1"], "kept tokens", "advantage_entropy"),  # K falls to 0.2
        (["schedule.k_init=1", "schedule.k_shape=constant"], "kept tokens", "all"),
        (["selector.cross_share=auto"], "kept rollouts", "N x B of the batch, across problems as far as the gradient"),
        (["configs/method/pods.yaml"], "advantages", "of the kept rollouts alone"),
        (
            ["configs/method/cppo.yaml"],
            "kept rollouts",
            "N of each problem; d3s.methods.cppo:largest: Select",
        ),
        (["configs/method/nat.yaml"], "kept tokens", "d3s.methods.nat:nat: Keep each token with its probability"),
        (["configs/method/nat_prefix.yaml"], "kept tokens", "d3s.methods.nat:nat (prefix True): Keep"),
        (["configs/method/maxrl.yaml"], "advantages", "mean of the group (MaxRL)"),
        (["configs/method/pass_at_k.yaml"], "advantages", "for Pass@4"),
        (["configs/method/variance_mass.yaml"], "kept rollouts", "d3s.methods.ragen:variance_mass (share 0.9): "),
    ],
)
def test_selection_is_said_in_words(arguments, label, words):
    assert words in rows(*arguments)[label]
