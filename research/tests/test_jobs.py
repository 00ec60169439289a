"""Configurations of runs keep what their rows say; the search of settings, on made-up scores."""

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import yaml

from benchmarks.harness import ROOT
from d3s.reward import RewardFunction
from research.fresh_problems import PATH
from research.jobs import (
    CLIPS,
    CLOSE_RUNS,
    RATES,
    SWEEP_SEED,
    Job,
    Search,
    Setting,
    compared_jobs,
    config_of,
    folder_of,
    frontier,
    in_fork,
    plain_name,
    searched_row,
    train,
)
from research.row import COMMON, GRPO, TASKS, Row, shape
from research.rows import ALL, BY_NAME, HALF_WARMUP, RANDOM_REWARD
from research.step_rewards import random_reward
from research.tests.experiments import make_record, without_base_models

ROW, CLIPPED_ROW = Row("a", (GRPO,)), Row("b", ("configs/method/gspo.yaml",), clips=True)


@pytest.fixture(autouse=True)
def no_base_models(monkeypatch):
    without_base_models(monkeypatch)


def known_scores(row: Row, scores: dict[Setting, int], clipped: dict[Setting, float] | None = None) -> dict:
    """The records of a search, by mean counts of right answers of 8; the base models lie above and below the mean."""
    known = {}
    for setting, right in scores.items():
        for job, count in zip(Search(row, {}).jobs(setting), [right + 1, right - 1] * row.searches, strict=True):
            record = make_record([0, row.steps], [[8], [count]])
            record.logged["clipped"][:] = (clipped or {}).get(setting, 0.0) * (count > right)  # on one of them
            known[job.identity()] = record
    return known


def wanted(search: Search) -> list[Setting]:
    """The settings of the runs to try next."""
    return list(dict.fromkeys(job.setting for job in search.wanted()))


def known_rates(scores: dict[float, int]) -> dict:
    return known_scores(ROW, {Setting(rate): right for rate, right in scores.items()})


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scores, expected",
    [
        ({}, [2, 4, 8]),
        ({4: 1, 2: 3}, [8]),
        ({2: 1, 4: 3, 8: 2}, []),
        ({2: 3, 4: 2, 8: 1}, [1]),
        ({2: 1, 4: 2, 8: 3}, [16]),
        ({2: 3, 4: 2, 8: 1, 1: 2}, []),
        ({2: 3, 4: 3, 8: 1}, [1]),  # the smallest of equal values is the best
        ({2: 1, 4: 3, 8: 3}, []),
        ({2: 0, 4: 0, 8: 0}, []),  # no direction to follow
        ({2: 3, 4: 2, 8: 1, 1: 3}, [0.5]),
    ],
)
def test_frontier_extends_where_the_best_is_an_end(scores, expected):
    assert frontier(scores, (2, 4, 8), 2) == expected


def test_search_ends_at_an_interior_rate():
    scores = dict(zip(RATES, (5, 4, 3)))
    search = Search(ROW, known_rates(scores))
    assert wanted(search) == [Setting(RATES[0] / 2)]
    assert search.chosen() == Setting(RATES[0])
    search = Search(ROW, known_rates(scores | {RATES[0] / 2: 4, RATES[0] / 4: 7}))
    assert wanted(search) == [] and search.chosen() == Setting(RATES[0])  # what the search did not ask for is not read


def test_search_goes_on_at_a_tie():
    """Equal scores at both ends of a step: the smaller rate is the best, and the one below it is tried and read."""
    scores = dict(zip(RATES, (5, 4, 3))) | {RATES[0] / 2: 5}
    assert wanted(Search(ROW, known_rates(scores))) == [Setting(RATES[0] / 4)]
    search = Search(ROW, known_rates(scores | {RATES[0] / 4: 2}))
    assert search.chosen() == Setting(RATES[0] / 2) and set(search.close_rates()) == {RATES[0], RATES[0] / 2}


def test_close_rates_get_more_runs():
    """Equal after one run on each task; after three the upper one is better, so the search goes on beyond it."""
    known = known_rates(dict(zip(RATES, (3, 4, 4))))
    search = Search(ROW, known)
    close = [Setting(RATES[1]), Setting(RATES[2])]
    assert search.wanted() == [job for setting in close for job in search.jobs(setting, CLOSE_RUNS)]
    assert len(search.wanted()) == 2 * CLOSE_RUNS * len(TASKS) and search.chosen() == close[0]
    for setting, right in zip(close, (3, 5)):
        for job in search.jobs(setting, CLOSE_RUNS)[1:]:
            known.setdefault(job.identity(), make_record([0, 60], [[8], [right]], logged={"clipped": np.zeros(1)}))
    assert wanted(search) == [Setting(2 * RATES[2])] and search.chosen() == close[1]
    assert search.final_rates() == pytest.approx(dict(zip(RATES, (3 / 8, (2 * 4 + 4 * 3) / 48, (2 * 4 + 4 * 5) / 48))))
    known |= known_rates({2 * RATES[2]: 4})
    assert wanted(search) == [] and search.chosen() == close[1]
    assert {job.identity() for job in search.jobs_so_far()} == known.keys()


def test_search_tries_what_is_missing():
    assert wanted(Search(ROW, {})) == [Setting(rate) for rate in RATES]
    partial = Search(ROW, known_rates({RATES[1]: 4}))
    assert wanted(partial) == [Setting(RATES[0]), Setting(RATES[2])] and partial.chosen() == Setting(RATES[1])
    with pytest.raises(ValueError, match="a: no run"):
        Search(ROW, {}).chosen()


def test_score_is_the_mean_of_both_tasks():
    known = known_rates({RATES[0]: 3})
    assert Search(ROW, known).score(Setting(RATES[0])) == pytest.approx(3 / 8)
    known.popitem()
    assert Search(ROW, known).score(Setting(RATES[0])) is None


def test_score_is_the_mean_of_all_runs():
    """`searches` runs on each task score a rate, with other seeds each."""
    row = replace(ROW, searches=2)
    jobs, first = Search(row, {}).jobs(Setting(RATES[0])), Search(ROW, {}).jobs(Setting(RATES[0]))
    assert [job.base for job in jobs] == [base for base in TASKS for _ in range(2)]
    assert len({job.seed for job in jobs}) == 4 and jobs[::2] == [replace(job, row=row) for job in first]
    still = {"clipped": np.zeros(1)}
    known = {
        job.identity(): make_record([0, 60], [[0], [right]], logged=still) for job, right in zip(jobs, (1, 2, 3, 6))
    }
    assert Search(row, known).score(Setting(RATES[0])) == pytest.approx(3 / 8)
    known.pop(jobs[1].identity())
    assert Search(row, known).score(Setting(RATES[0])) is None


def test_clip_is_searched_before_the_rate():
    assert wanted(Search(CLIPPED_ROW, {})) == [Setting(RATES[1], clip) for clip in CLIPS]
    clips = {Setting(RATES[1], clip): right for clip, right in zip(CLIPS, (4, 3, 2))}
    assert wanted(Search(CLIPPED_ROW, known_scores(CLIPPED_ROW, clips))) == [Setting(RATES[1], CLIPS[0] / 3)]
    clips |= {Setting(RATES[1], CLIPS[0] / 3): 1}
    at_best = [Setting(rate, CLIPS[0]) for rate in (RATES[0], RATES[2])]
    assert wanted(Search(CLIPPED_ROW, known_scores(CLIPPED_ROW, clips))) == at_best
    search = Search(CLIPPED_ROW, known_scores(CLIPPED_ROW, clips | dict.fromkeys(at_best, 2)))
    assert wanted(search) == [] and search.chosen() == Setting(RATES[1], CLIPS[0])


def test_setting_that_clips_much_is_not_chosen():
    """The best score clips more than a fifth of the tokens on one of the tasks."""
    scores = {Setting(RATES[1], clip): right for clip, right in zip(CLIPS, (7, 3, 2))}
    for share, best in ((0.19, CLIPS[0]), (0.21, CLIPS[1])):
        clipped = {Setting(RATES[1], CLIPS[0]): share}
        assert Search(CLIPPED_ROW, known_scores(CLIPPED_ROW, scores, clipped)).best_clip() == best


def test_clips_keep_their_ratio():
    assert Setting(1e-4, 0.03).overrides() == (
        "optim.learning_rate=0.0001",
        "loss.epsilon=0.03",
        "loss.epsilon_high=0.04",
    )


# --- configurations --------------------------------------------------------------------------------------------------


@cache
def jobs_of(row: Row) -> list[Job]:
    """The compared runs of a row, with the middle rate and clip chosen."""
    searched = searched_row(row)
    setting = Setting(RATES[1], CLIPS[1] if searched.clips else None)
    around = {Setting(rate, setting.clip): 2 for rate in RATES}
    around |= {Setting(RATES[1], clip): 2 for clip in CLIPS} if searched.clips else {}
    return compared_jobs(row, known_scores(searched, around | {setting: 4}))


def test_searches_share_nothing_with_comparisons():
    compared = {job.seed for row in ALL for job in jobs_of(row)}
    for row, steps in ((ROW, ROW.steps), (replace(CLIPPED_ROW, search_steps=20), 20)):
        jobs = Search(row, {}).jobs(Setting(RATES[0]))
        assert [job.base for job in jobs] == list(TASKS) and len({job.seed for job in jobs}) == len(jobs)
        assert min(job.seed for job in jobs) == SWEEP_SEED > max(compared)
        for job in jobs:
            config = config_of(job.arguments())
            assert (config.eval.split, config.eval.limit, config.train.steps) == ("validation", 256, steps)
            assert config.eval.data == [config.data.path] and config.data.path.startswith("synthetic:")


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_compared_jobs_are_those_of_the_row(row):
    jobs = jobs_of(row)
    assert len({(job.base, job.seed) for job in jobs}) == len(jobs) == row.seeds * len(row.bases)
    assert [job.base for job in jobs[: len(row.bases)]] == list(row.bases)  # seed by seed
    seeds = {base: {job.seed for job in jobs if job.base == base} for base in row.bases}
    assert len(set.union(*seeds.values())) == len(jobs)  # no two base models share a seed
    for job in jobs[: len(row.bases)]:
        config, task = config_of(job.arguments()), "countdown" if "countdown" in job.base else "precedence"
        assert config.data.path == f"synthetic:{task}"
        expected = (
            ("synthetic:countdown", "test") if task == "countdown" else (str(PATH), "validation")
        )  # a file has no split
        assert (config.eval.data, config.eval.split) == ([expected[0]], expected[1])
        assert (config.eval.limit, config.eval.every, config.eval.n) == (row.problems, row.every, 8)
        assert (config.train.steps, config.optim.learning_rate) == (row.steps, row.rate or RATES[1])


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_arguments_of_a_row_survive(row):
    """Every value of a row's overlays and overrides is that of the resolved configuration, and those of COMMON else."""
    (job, *_) = jobs_of(row)
    config = config_of(job.arguments()).model_dump(mode="json")
    expected = {}
    overlays = [argument for argument in row.arguments if "=" not in argument]
    for name in overlays:
        for section, values in yaml.safe_load((ROOT / name).read_text()).items():
            expected |= {(section, key): value for key, value in values.items()}
    for argument in (*COMMON, *(argument for argument in row.arguments if "=" in argument)):
        name, _, value = argument.partition("=")
        expected[tuple(name.split("."))] = yaml.safe_load(value)
    if job.setting.clip is not None:
        expected[("loss", "epsilon")], expected[("loss", "epsilon_high")] = job.setting.clip, 0.04
    assert {(section, key): config[section][key] for section, key in expected} == expected


@pytest.mark.parametrize("row", [row for row in ALL if RANDOM_REWARD in row.arguments], ids=lambda row: row.name)
@pytest.mark.parametrize(
    "base, answer, right, wrong",
    [
        ("tiny:precedence", "21", r"6*3=18;3+18=21 \boxed{21}", r"3+6=9;9*3=27 \boxed{27}"),
        ("tiny:countdown", "2,3,5->13", r"2*5=10;10+3=13 \boxed{(2*5)+3}", r"2+3=5;5+5=10 \boxed{(2+3)+5}"),
    ],
)
def test_random_rewards_train_and_verifier_evaluates(row, base, answer, right, wrong):
    job = next(job for job in jobs_of(row) if job.base == base)
    config = config_of(job.arguments())
    reward_function = RewardFunction(config.reward, 64)
    try:
        score = next(iter(reward_function.score_functions().values()))
        assert [score(text, answer).result() for text in (right, wrong)] == [1, 0]
        texts = [f"{text} {i}" for i in range(8) for text in (right, wrong)]
        rewards = [reward_function.submit(text, answer)().reward for text in texts]
    finally:
        reward_function.close()
    assert rewards == [random_reward(text, answer) for text in texts] and len(set(rewards)) == 2


def test_base_models_are_made_from_built_in_ones():
    assert plain_name(HALF_WARMUP) == "tiny:precedence"
    assert plain_name("tiny:countdown@1+32k") == "tiny:countdown@1"
    assert plain_name("tiny:countdown@1") == "tiny:countdown@1"


def test_searched_rows_are_searched_themselves():
    assert all(searched_row(row).rate_of is None for row in ALL)
    assert searched_row(BY_NAME["schedule: cosine"]).name == "D3S"


# --- training --------------------------------------------------------------------------------------------------------

SMALL = ("optim.warmup_steps=0", *shape(4, 2), "schedule.n_init=2", "schedule.n_final=2", "eval.k=[1,2]")


def test_fork_returns_the_exit_code():
    assert [in_fork(sys.exit, code) for code in (0, 3)] == [0, 3]


def test_finished_run_is_not_trained_again(tied_model, tmp_path, monkeypatch):
    without_base_models(monkeypatch, tied_model)
    row = Row("two steps: a trial", (*SMALL, "rollout.max_completion_length=8"), 2, 2, problems=2)
    job = Job("sweep", replace(row, arguments=(*row.arguments, "data.limit=4")), "tiny:precedence", 3, Setting(1e-3))
    folder = train(job, tmp_path)
    assert folder == folder_of(job, tmp_path) and folder.parent.name.startswith("two-steps-a-trial-")
    before = (folder / "metrics.jsonl").stat().st_mtime_ns
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert train(job, tmp_path) == folder and (folder / "metrics.jsonl").stat().st_mtime_ns == before
    others = (replace(job, setting=Setting(1e-9)), replace(job, seed=4), replace(job, part="compare"))
    assert len({folder_of(other, tmp_path) for other in (job, *others)}) == 4
    without_base_models(monkeypatch, "nowhere")
    with pytest.raises(RuntimeError, match="nowhere"):
        train(job, tmp_path)
