"""The rows of the results are valid, distinct, and can be compared with each other."""

import pytest

from research.claims import CLAIMS, HEAVY
from research.comparisons import POOR
from research.jobs import SEEDS_PER_BASE, SWEEP_SEED, Job, Setting, searched_row
from research.rows import ALL, BY_NAME, GRPO_BEST, HALF_WARMUP, HEAVY_ROWS, PARTS, ROWS, STUDIES
from research.tests.experiments import config_of, without_base_models


def test_names_are_unique():
    assert len(BY_NAME) == len(ALL) == len(ROWS) + len(HEAVY_ROWS) + len(STUDIES)
    assert [row for rows in PARTS.values() for row in rows] == ALL


def test_no_two_rows_share_a_run(monkeypatch):
    """Records are found by part, settings, base model and seed: two rows with the same would have one record.

    Here every search finds another rate.
    """
    without_base_models(monkeypatch)
    owners = {}
    for row in ALL:
        setting = Setting(1e-4 * (1 + ALL.index(searched_row(row))))
        for i, base in enumerate(row.bases):
            for seed in range(row.seeds):
                job = Job("compare", row, base, row.first_seed + SEEDS_PER_BASE * i + seed, setting)
                assert owners.setdefault(job.identity(), row.name) == row.name
    assert len(owners) == sum(row.seeds * len(row.bases) for row in ALL)


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_row_is_planned_consistently(row):
    assert row.steps % row.every == 0 and row.steps // row.every >= 3
    assert row.rate_of is None or BY_NAME[row.rate_of].rate_of is None
    assert row.seeds >= 2 and len(set(row.bases)) == len(row.bases)
    assert row.seeds <= SEEDS_PER_BASE
    assert row.first_seed + SEEDS_PER_BASE * len(row.bases) <= SWEEP_SEED


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_scheduled_rows_follow_the_share_of_steps(row, monkeypatch):
    """`scheduled` says whether N or K depends on how many steps are planned."""
    without_base_models(monkeypatch)
    schedule = config_of(Job("compare", row, row.bases[0], 0, Setting(1e-4)).cell()).schedule
    moves = [
        getattr(schedule, f"{name}_shape") != "constant"
        and getattr(schedule, f"{name}_init") != getattr(schedule, f"{name}_final")
        for name in "nk"
    ]
    assert row.scheduled == (any(moves) and schedule.follow == "none")


def test_steps_reach_the_budget_of_equal_steps():
    """Rows that are compared at the steps of their reference have at least as many."""
    compared = {name for claim in CLAIMS if claim.axis == "steps" for name in (claim.row, claim.reference)}
    assert all(BY_NAME[name].steps >= BY_NAME["D3S"].steps == 60 for name in compared)
    assert all(row.steps >= 60 for row in ROWS)
    assert all(row.steps >= BY_NAME[HEAVY + GRPO_BEST].steps for row in HEAVY_ROWS)


def test_references_share_their_first_seed_and_bases():
    """Pairs have the same base model and seed."""
    for rows, reference in ((ROWS, "D3S"), (HEAVY_ROWS, HEAVY + GRPO_BEST)):
        bases, first_seed = BY_NAME[reference].bases, BY_NAME[reference].first_seed
        assert all((row.bases, row.first_seed) == (bases[: len(row.bases)], first_seed) for row in rows)
    poor = [row for row in STUDIES if row.name.startswith("poor base: ")]
    assert {(row.bases, row.seeds) for row in poor} == {((HALF_WARMUP,), BY_NAME[POOR].seeds)}


def test_heavy_rows_train_128_responses(monkeypatch):
    without_base_models(monkeypatch)
    for row in (*ROWS, *HEAVY_ROWS):
        config = config_of(Job("compare", row, row.bases[0], 0, Setting(1e-4)).cell())
        responses = config.train.prompts_per_step * config.rollout.num_generations
        assert responses == (32 if row.name == "GRPO, 8 problems x 4 responses" else 128)
