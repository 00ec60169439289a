"""Weight sync with a scripted engine and actor: gaps, retries, errors, against hand-set values.

tests/test_trainer_faults.py has the sync with a real engine.
"""

from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout.engine import Rollout, weight_checksums
from d3s.rollout.sync import PROBE_TOKENS, sync_engine

WEIGHTS = {"norm.weight": torch.tensor([1.0, 2.0]), "mlp.weight": torch.eye(2), "bias": torch.tensor([0.5])}
PROMPTS = [[1, 2], [3], [4, 5, 6]]


class FakeEngine:
    """Keeps what it is given, except in the first `lossy` loads, and reports log-probability -1 for every token."""

    def __init__(self, lossy=0, dtype=torch.float32):
        self.weights = {name: torch.zeros_like(tensor) for name, tensor in WEIGHTS.items()}
        self.lossy, self.dtype, self.calls = lossy, dtype, []

    def wake(self, tag):
        self.calls.append(tag)

    def load_weights(self, weights):
        self.calls.append("load")
        received = dict(weights)
        if self.calls.count("load") > self.lossy:
            self.weights = received

    def checksums(self):
        return weight_checksums(self.weights.items(), self.dtype)

    def generate(self, prompts, n, params, seeds, *, entropies):
        self.calls.append("generate")
        self.prompts, self.params = prompts, params
        assert n == 1 and not entropies
        return [Rollout(i, prompt, [7, 8], [-1.0, -1.0], [], True) for i, prompt in enumerate(prompts)]


def sync(engine, gaps, *options):
    """Sync with an actor whose log-probabilities differ from the engine's by `gaps`, one for each token."""
    config = load_config([], ["model.name=some/model", *options])
    actor = SimpleNamespace(weights=lambda: iter(WEIGHTS.items()))
    actor.compute_logprobs = lambda batch: (-1 + torch.tensor(gaps[: sum(map(len, batch.responses))]), None)
    return sync_engine(engine, actor, Accelerator(), PROMPTS, config, step=4, trained=True)


SMALL = [1e-4, -3e-4, 0.0, 0.0]


def test_gaps_are_those_of_all_ranks(monkeypatch):
    """Of two ranks with a probe of four tokens each, the second has a larger gap."""
    monkeypatch.setattr("d3s.rollout.sync.all_gather_objects", lambda items, accelerator: items * 2)
    metrics = sync(FakeEngine(), [*SMALL, 5e-4, -9e-4, 0.0, 0.0])
    assert metrics["sync/mean_abs_dlogp"] == pytest.approx(18e-4 / 8, rel=1e-2)
    assert metrics["sync/max_abs_dlogp"] == pytest.approx(9e-4, rel=1e-2)


def test_sync_loads_between_the_two_wakes():
    """The probe samples as training does."""
    engine = FakeEngine()
    sync(engine, SMALL, "rollout.temperature=0.7")
    assert engine.calls == ["weights", "load", "kv_cache", "generate"]
    assert all(torch.equal(engine.weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert (engine.params.temperature, engine.params.max_tokens) == (0.7, PROBE_TOKENS)
    assert engine.prompts == PROMPTS[:2]


def test_probe_reaches_every_server():
    engine, servers = FakeEngine(), "rollout.servers=[http://a:1,http://b:1,http://c:1]"
    sync(engine, [*SMALL, 0.0, 0.0], servers, "selector.entropy_source=actor")
    assert engine.prompts == PROMPTS


def test_stale_weights_name_the_parameters():
    engine = FakeEngine(lossy=2)
    with pytest.raises(UserError) as error:
        sync(engine, SMALL)
    assert str(error.value) == (
        "weight sync of step 4: the engine's values of bias, norm.weight are not the actor's, after 2 attempts; "
        "the weights are stale or wrongly loaded"
    )
    assert engine.calls.count("load") == 2


@pytest.mark.parametrize(
    ("option", "limit"),
    [("model.dtype=float32", 1e-3), ("model.dtype=bfloat16", 0.1), ("rollout.max_logprob_gap=1", 1)],
)
def test_limit_applies_to_the_mean_gap(option, limit):
    engine = FakeEngine(dtype=torch.bfloat16 if "bf" in option else torch.float32)
    sync(engine, [3.6 * limit, 0.0, 0.0, 0.0], option)  # a mean of 0.9 of the limit, and then of 1.1
    with pytest.raises(UserError, match=f"^weight sync of step 4: .* rollout.max_logprob_gap allows {limit:g}, after"):
        sync(engine, [4.4 * limit, 0.0, 0.0, 0.0], option)
