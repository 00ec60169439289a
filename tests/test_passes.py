"""Forward passes before an update against a table, and importance weights by hand with a stand-in of the actor."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from d3s.config.load import load_config
from d3s.packing import Batch
from d3s.passes import add_logprobs, forward_passes
from tests.helpers.selection import config

ACTOR, GSPO, TWO = "loss.old_logprobs=actor", "loss.kind=gspo", "optim.num_minibatches=2"
DISTILL = "loss.kind=d3s.methods.distill:distill"
TRUNCATE, ENTROPIES = "loss.engine_correction=truncate", "selector.entropy_source=actor"
GAPS = torch.tensor([0.4, 1.0, 3.0, 6.0])  # actor's probability over the engine's


@pytest.mark.parametrize(
    ("overrides", "passes"),
    [
        ([ACTOR], set()),  # the only update defines pi_old
        ([ACTOR, TWO], {"selected_tokens"}),
        (["loss.old_logprobs=engine", TWO], set()),
        ([ACTOR, TRUNCATE], {"selected_tokens"}),
        ([ACTOR, "optim.num_iterations=2"], {"selected_tokens"}),
        ([ACTOR, ENTROPIES], {"kept_rollouts"}),
        ([ACTOR, ENTROPIES, "selector.tokens=random"], set()),  # which reads no entropies
        ([ACTOR, ENTROPIES, TWO, TRUNCATE], {"kept_rollouts"}),
        ([ACTOR, TWO, "loss.beta=0.1"], {"selected_tokens", "reference"}),
        ([DISTILL, "selector.tokens=entropy"], {"reference"}),
        ([DISTILL, "selector.tokens=d3s.methods.distill:gap_entropy"], {"ranking_reference"}),
        ([GSPO, ACTOR], set()),  # the ratio is 1
        ([GSPO, ACTOR, "optim.num_iterations=2"], {"selected_tokens", "full_rollouts"}),
        ([GSPO, "loss.old_logprobs=engine"], {"full_rollouts"}),  # pi_old is not the policy, even in a single update
    ],
    ids=lambda value: ",".join(o.partition("=")[2] for o in value) if isinstance(value, list) else "",
)
def test_forward_passes_match_the_table(overrides, passes):
    decided = asdict(forward_passes(config("optim.num_minibatches=1", *overrides), 0.2))
    names = ("kept_rollouts", "selected_tokens", "reference", "ranking_reference", "full_rollouts")
    assert {name for name in names if decided[name]} == passes


@pytest.mark.parametrize(
    ("mode", "weights", "metrics"),
    [
        ("truncate", [0.4, 1.0, 2.0, 1.0], {"mismatch/tokens_capped": 1 / 3}),
        ("token_mask", [0.0, 1.0, 3.0, 1.0], {"mismatch/tokens_masked": 1 / 3}),
        ("tests.helpers.own_rules:halved", [0.5, 0.5, 0.5, 1.0], {"mismatch/halved": 1}),
    ],
)
def test_weights_of_trained_tokens_match_table(mode, weights, metrics, monkeypatch):
    """The fourth token is not selected, so its ratio, above every cap, is not used."""
    config = load_config([], [f"loss.engine_correction={mode}"])
    engine = torch.tensor([-1.0, -2.0, -3.0, -7.0])
    batch = Batch([[1]], [[2, 3, 4, 5]], torch.tensor([2.0, 2.0, -1.0, 3.0]), engine, torch.zeros(4))
    batch.selected = torch.tensor([True, True, True, False])

    def compute_logprobs(batch, wanted, entropies):
        assert torch.equal(wanted, batch.selected) and not entropies
        return (engine + GAPS.log()) * wanted, None

    compared = []
    monkeypatch.setattr("d3s.passes.require_equal", lambda *arguments: compared.append(arguments))
    trained = {"trained_tokens": lambda batch: batch.selected, "accelerator": None}
    actor = SimpleNamespace(config=config, compute_logprobs=compute_logprobs, **trained)
    assert add_logprobs(actor, batch, forward_passes(config, 0.5)) == pytest.approx(metrics)
    torch.testing.assert_close(batch.weights, torch.tensor(weights))
    assert compared == [("loss.engine_correction", batch.weights, None)]


def test_nothing_is_computed_without_a_trained_token():
    config = load_config([], ["loss.engine_correction=truncate", "loss.beta=0.1"])
    batch = Batch([[1]], [[2]], torch.ones(1), -torch.ones(1), torch.zeros(1))
    actor = SimpleNamespace(config=config, trained_tokens=lambda batch: torch.tensor([False]))
    assert add_logprobs(actor, batch, forward_passes(config, 0.5)) == {} and batch.ref_logprobs is None
