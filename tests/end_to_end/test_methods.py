"""Options train for three steps, beside those of test_overlays.py and test_trainer.py."""

import pytest

from d3s.common import UserError
from tests.helpers.training import train

COVERAGE = "schedule.follow=d3s.methods.coverage:Coverage"


def test_pass_at_k_ends_a_run_with_graded_rewards(tied_model, tmp_path):
    files, overrides = ["configs/method/pass_at_k.yaml"], ["reward.functions=[tests.helpers.rewards:graded]"]
    with pytest.raises(UserError, match=r"^reward\.advantages: got the reward 0\.5, expected 0 or 1 "):
        train(tied_model, tmp_path, files, overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["loss.beta=0.1", "loss.kl_estimator=k2", "optim.num_minibatches=1"],
        ["loss.kind=gspo", "loss.epsilon=3e-4", "loss.epsilon_high=4e-4", "optim.num_iterations=2"],
        ["selector.token_scope=sample", "loss.normalizer=sequence"],
        ["selector.tokens=random", "selector.rollouts=random", "loss.normalizer=all"],
        ["selector.cross_share=0.5", "selector.rollouts=d3s.methods.nonzero:nonzero", "reward.advantages=batch"],
        ["schedule.n_init=null", "schedule.n_final=4", "schedule.k_init=0.4"],
        [COVERAGE, "selector.entropy_source=actor", "schedule.k_final=1", "selector.cross_share=0.5"],
        [
            "reward.functions=[d3s.reward:verify, [d3s.reward:boxed, 0.5]]",
            "reward.length={rule: overlong, buffer: 0.33}",
            "optim.lr_schedule=cosine",
            "optim.warmup_steps=1",
        ],
    ],
    ids=lambda overrides: overrides[0],
)
def test_options_train(overrides, tied_model, tmp_path):
    _, steps = train(tied_model, tmp_path, overrides=overrides)
    assert all(0 < step["grad_norm"] < float("inf") for step in steps)
    assert any("beta" in o for o in overrides) == ("policy/kl_ref" in steps[-1])
    if overrides[0].startswith("loss.beta"):
        assert steps[0]["policy/kl_ref"] < 1e-9 < 1e-6 < steps[-1]["policy/kl_ref"]
