"""The rows of the results are valid, distinct, and can be compared with each other."""

import pytest

from research.beyond import SECTIONS
from research.claims import CLAIMS, HEAVY
from research.comparisons import POOR
from research.jobs import SEEDS_PER_BASE, SWEEP_SEED, Job, Setting, config_of
from research.records import RESEARCH
from research.rows import (
    ALL,
    BY_NAME,
    D3S_SHAPED,
    GRPO_BEST,
    GRPO_SHAPED,
    HALF_WARMUP,
    HEAVY_ROWS,
    PARTS,
    ROWS,
    STUDIES,
)
from research.tests.experiments import without_base_models

SHAPED = {GRPO_SHAPED: 512, D3S_SHAPED: 256}  # rows with another number of responses a step, and so of steps


def test_names_are_unique():
    beyond = [row for section in SECTIONS.values() for row in section.rows]
    assert len(BY_NAME) == len(ALL) + len(beyond) and len(ALL) == len(ROWS) + len(HEAVY_ROWS) + len(STUDIES)
    assert [row for rows in PARTS.values() for row in rows] == ALL


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
    schedule = config_of(Job("compare", row, row.bases[0], 0, Setting(1e-4)).arguments()).schedule
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
    assert all(row.steps >= 60 for row in ROWS if row.name not in SHAPED)
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
        config = config_of(Job("compare", row, row.bases[0], 0, Setting(1e-4)).arguments())
        responses = config.train.prompts_per_step * config.rollout.num_generations
        assert responses == SHAPED.get(row.name, 32 if row.name == "GRPO, 8 problems x 4 responses" else 128)


@pytest.mark.parametrize("name", SECTIONS)
def test_section_rows_are_valid_and_distinct(name, monkeypatch):
    """Labels, settings and references of a section beyond the paper; the page has marks for it."""
    without_base_models(monkeypatch)
    section = SECTIONS[name]
    for base in section.rows[0].bases:
        jobs = [Job("compare", row, base, 0, Setting(row.rate)) for row in section.rows]
        assert len({config_of(job.arguments()).model_dump_json() for job in jobs}) == len(jobs)
    assert set(section.references) <= {row.name for row in section.rows} and all(row.rate for row in section.rows)
    assert f"<!-- {name} -->" in (RESEARCH / "beyond-tables.md").read_text()
