"""The forward passes that a configuration needs, against a table and over all combinations of options."""

import itertools
from dataclasses import asdict

import pytest

from d3s.actor.logprobs import forward_passes
from tests.helpers.selection import config

ACTOR, GSPO, TWO = "loss.old_logprobs=actor", "loss.kind=gspo", "optim.num_minibatches=2"
TRUNCATE = "loss.engine_correction=truncate"
ENTROPIES = "selector.entropy_source=actor"


@pytest.mark.parametrize(
    ("overrides", "passes"),
    [
        ([ACTOR], set()),  # the only update defines pi_old
        ([ACTOR, TWO], {"selected_tokens"}),
        (["loss.old_logprobs=engine", TWO], set()),
        ([ACTOR, "optim.num_iterations=2"], {"selected_tokens"}),
        ([ACTOR, ENTROPIES], {"kept_rollouts"}),
        ([ACTOR, ENTROPIES, TWO, TRUNCATE], {"kept_rollouts"}),
        ([ACTOR, TWO, "loss.beta=0.1"], {"selected_tokens", "reference"}),
        ([GSPO, ACTOR], set()),  # the ratio is 1
        ([GSPO, ACTOR, "optim.num_iterations=2"], {"selected_tokens", "full_rollouts"}),
        ([GSPO, "loss.old_logprobs=engine"], {"full_rollouts"}),  # pi_old is not the policy, even in a single update
    ],
    ids=lambda value: ",".join(o.partition("=")[2] for o in value) if isinstance(value, list) else "",
)
def test_forward_passes_match_the_table(overrides, passes):
    decided = asdict(forward_passes(config("optim.num_minibatches=1", *overrides), 0.2))
    names = ("kept_rollouts", "selected_tokens", "reference", "full_rollouts")
    assert {name for name in names if decided[name]} == passes


def test_forward_passes_never_repeat_logprobs():
    """All combinations of options have at most one pass by the actor, and one wherever its numbers are read."""
    options = [
        ("loss.engine_correction", ("none", "truncate", "token_mask", "sequence_mask")),
        ("loss.kind", ("grpo", "gspo")),
        ("optim.num_minibatches", (1, 2)),
        ("selector.entropy_source", ("engine", "actor")),
        ("selector.tokens", ("advantage_entropy", "random")),
    ]
    for values in itertools.product(*(values for _, values in options)):
        chosen = {name: value for (name, _), value in zip(options, values)}
        settings = config(ACTOR, *(f"{name}={value}" for name, value in chosen.items()))
        for k in (0.2, 1.0):
            passes = forward_passes(settings, k)
            ranked = chosen["selector.entropy_source"] == "actor" and chosen["selector.tokens"] != "random" and k < 1
            needed = ranked or chosen["loss.engine_correction"] != "none" or chosen["optim.num_minibatches"] == 2
            assert passes.kept_rollouts + passes.selected_tokens == needed
            assert passes.kept_rollouts is ranked and not passes.reference
            assert passes.full_rollouts is (chosen["loss.kind"] == "gspo" and chosen["optim.num_minibatches"] == 2)
