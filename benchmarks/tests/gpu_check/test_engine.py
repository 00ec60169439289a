"""The stages `engine` and `recorder` of the GPU check on the vLLM of tests/rollout: they hold, and notice faults."""

import pytest
from accelerate import Accelerator

from benchmarks.gpu_check import recorder
from benchmarks.gpu_check.engine import Sides, cycles
from benchmarks.tests.stages import judged, not_held
from d3s.common import UserError
from d3s.config.load import load_config
from tests.helpers.rollouts import actor_of


@pytest.fixture
def sides(engines, tied_model, monkeypatch):
    """The engine beside an actor of its weights; what the stages change is restored."""
    engine = engines["vllm"]
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    for place, name in ((engine, "can_sleep"), (scheduler, "max_num_scheduled_tokens"), (scheduler, "schedule")):
        monkeypatch.setattr(place, name, getattr(place, name))
    monkeypatch.setattr(engine, "can_sleep", True)
    monkeypatch.setitem(recorder.REQUESTS, "cpu", 48)  # more than the KV cache of this engine holds
    monkeypatch.setattr(recorder, "BUDGET", 4000)  # so that they start together
    config = load_config([], [f"model.name={tied_model}"])
    yield Sides(engine, actor_of(tied_model), Accelerator(), config, "cpu")
    for tag in ("weights", "kv_cache"):
        engine.wake(tag)
    engine.load_weights(actor_of(tied_model).weights())


def test_engine_stage_holds(sides):
    rows = list(cycles(sides))
    assert not not_held(rows) and len(judged(rows)) == 5 + 2 * 2 + 3


def test_engine_that_ignores_new_weights_is_noticed(sides, monkeypatch):
    monkeypatch.setattr(sides.engine, "load_weights", lambda weights: [None for _ in weights])
    with pytest.raises(UserError, match=r"the engine's values of .* are not the actor's"):
        list(cycles(sides))


def test_engine_that_never_sleeps_is_noticed(sides, monkeypatch):
    monkeypatch.setattr(sides.engine, "sleep", lambda: None)
    assert not_held(cycles(sides)) == [f"sleep {cycle}: generation is refused" for cycle in (1, 2)]


def test_recorder_stage_holds(sides):
    rows = list(recorder.interrupted(sides))
    assert not not_held(rows) and len(judged(rows)) == len(rows) - 1 == 7
    assert rows[2].measured == "48"


def later(values):
    return [*values[1:], values[0]]


@pytest.mark.parametrize(
    ("wrong", "noticed"),
    [
        (
            later,
            [
                "mean error of entropies to their mean",
                "largest error of entropies to their mean",
                "mean error to that of a shift by one",
            ],
        ),
        (
            lambda values: [float("nan"), *values[1:]],
            ["entropies that are not finite", "mean error of entropies to their mean"],
        ),
        (lambda values: values[:-1], ["responses with an entropy per token"]),
    ],
)
def test_wrong_entropies_are_noticed(sides, monkeypatch, wrong, noticed):
    engine, generate = sides.engine, sides.engine.generate

    def spoiled(*args, **options):
        rollouts = generate(*args, **options)
        for rollout in rollouts:
            rollout.entropies = wrong(rollout.entropies) if rollout.entropies else []
        return rollouts

    monkeypatch.setattr(engine, "generate", spoiled)
    assert set(noticed) <= set(not_held(recorder.interrupted(sides)))
