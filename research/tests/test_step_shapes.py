"""The search of step shapes, on made-up scores and costs."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest

from research.jobs import config_of
from research.records import TABLES
from research.row import TASK_BASES, TASKS
from research.step_shapes import (
    FINALISTS,
    METHODS,
    ORDINARY,
    START,
    TIMED_BATCHES,
    TIMED_PASSES,
    TIMED_RESPONSES,
    Climb,
    Point,
    arguments_of,
    cost_of,
    steps_of,
)
from research.tests.experiments import make_record, without_base_models


@pytest.fixture(autouse=True)
def no_base_models(monkeypatch):
    without_base_models(monkeypatch)


def seconds(responses: int, minibatches: int, passes: int) -> float:
    return 0.01 * responses * (1 + 0.3 * passes) + 0.02 * minibatches * passes


COSTS = {
    (method, task, r, b, p): seconds(r, b, p)
    for method in METHODS
    for task in TASKS
    for r in TIMED_RESPONSES
    for b in TIMED_BATCHES
    for p in TIMED_PASSES
}


def climbed(method: str, top: Point, on_second_base: Point | None = None) -> tuple[Climb, list]:
    """A finished search where right answers fall by one with each factor of two from `top`, and all its jobs."""
    known, jobs = {}, []
    while wanted := Climb(method, known, COSTS).wanted():
        for job in wanted:
            config = config_of(job.arguments())
            responses = config.train.prompts_per_step * config.rollout.num_generations
            optim = config.optim
            point = Point(responses, optim.num_minibatches, optim.num_iterations, optim.learning_rate)
            peak = on_second_base if on_second_base and job.base.endswith("@1") else top
            steps = sum(abs(log2(a / b)) for a, b in zip(vars(point).values(), vars(peak).values()))
            record = make_record([0, config.train.steps], [[0] * 80, [80 - round(8 * steps)] * 80])
            record.logged["clipped"][:] = 0
            known[job.identity()] = record
        jobs += wanted
    return Climb(method, known, COSTS), jobs


@pytest.mark.parametrize("method", METHODS)
def test_climb_ends_at_the_top_with_all_neighbors_tried(method, monkeypatch):
    monkeypatch.setitem(TABLES, 1, np.linspace(0, 1, 81))
    top = replace(START, responses=2 * START.responses, rate=START.rate / 2)
    climb, jobs = climbed(method, top)
    assert climb.best() == top and set(top.neighbors()) <= set(climb.tried())
    assert len({job.identity() for job in jobs}) == len(jobs)
    of_second = [job for job in jobs if job.base.endswith("@1")]
    assert len(of_second) == FINALISTS * len(TASKS) and {job.base for job in jobs} == set(TASK_BASES)


def test_finalists_are_decided_by_both_base_models(monkeypatch):
    monkeypatch.setitem(TABLES, 1, np.linspace(0, 1, 81))
    neighbor = replace(START, minibatches=2 * START.minibatches)
    climb, _ = climbed("GRPO", START, on_second_base=replace(neighbor, minibatches=4 * START.minibatches))
    assert climb.tried()[0] == START and climb.best() == neighbor


def test_costs_are_linear_in_minibatches_and_passes():
    for point in (Point(512, 8, 1, 1e-4), Point(256, 5, 2, 1e-4), Point(128, 4, 3, 1e-4)):
        expected = seconds(point.responses, point.minibatches, point.passes)
        assert cost_of("GRPO", point, TASKS[0], COSTS) == pytest.approx(expected)


def test_runs_take_equal_seconds():
    """In the ordinary shape as many as the measured costs of step_costs.csv allow, elsewhere by the ratio of costs."""
    for method in METHODS:
        ordinary = steps_of(method, ORDINARY, TASKS[0], COSTS)
        assert 35 <= ordinary <= 60
        for point in (START, Point(1024, 16, 2, 1e-4)):
            one = cost_of(method, point, TASKS[0], COSTS)
            spent = one * steps_of(method, point, TASKS[0], COSTS)
            other = cost_of(method, ORDINARY, TASKS[0], COSTS)
            assert abs(spent - ordinary * other) <= (one + other) / 2 + 1e-9


def test_neighbors_differ_by_a_factor_of_two():
    for neighbor in START.neighbors():
        changed = [name for name, value in vars(neighbor).items() if value != vars(START)[name]]
        assert changed in (["responses"], ["minibatches"], ["passes"], ["rate"], ["responses", "minibatches"])
    assert len(list(START.neighbors())) == 9 and not any(
        0 in vars(p).values() for p in Point(4, 1, 1, 1e-4).neighbors()
    )
    assert "optim.warmup_steps=1" in arguments_of("D3S", Point(1024, 8, 1, 1e-4))
