"""The campaign on artificial runs: what is missing, in which order, until when, and what it refuses."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import harness
from d3s.tracking.metrics import update_metrics
from research import ablation
from research.ablation import Campaign, committed_revision
from research.jobs import RATES, Job, Search, Setting, compared_jobs, folder_of
from research.records import read
from research.row import GRPO, Row
from research.rows import BY_NAME
from research.tests.experiments import without_base_models, write_run

BASES = ("tiny:precedence", "tiny:countdown")
ROW = Row("a", (GRPO, "optim.warmup_steps=0"), 2, 1, BASES)
OTHER = Row("b", (*ROW.arguments, "data.limit=9"), 2, 1, BASES, seeds=1, rate_of="a")
SETTING = Setting(RATES[1])
BEST = {RATES[0]: 3, RATES[1]: 5, RATES[2]: 7, RATES[2] * 2: 6}  # right of 8 by learning rate


@pytest.fixture
def trained(monkeypatch) -> list[tuple[str, str, int, float]]:
    """Replace training by run directories; the list of what was trained: name, part, seed, learning rate."""
    done = []

    def train(job: Job, root: Path) -> Path:
        rate = job.setting.rate
        done.append((job.row.name, job.part, job.seed, rate))
        keys = ("selection/tokens_total", "selection/tokens", "selection/tokens_forwarded", "time/cpu")
        lines = [update_metrics([]) | dict.fromkeys(keys, 0.5) | {"step": step} for step in (1, 2)]
        evaluations = [{"step": step, "n": 8, "right": [BEST.get(rate, 0), 0]} for step in (0, 1, 2)]
        folder = folder_of(job, root)
        write_run(folder, lines, evaluations)
        return folder

    without_base_models(monkeypatch)
    monkeypatch.setattr(ablation, "train", train)
    monkeypatch.setattr(ablation, "in_fork", lambda function, *arguments: 0)
    monkeypatch.setattr(ablation, "kl_to_base", lambda run: {0: 0.0, 2: 0.5})
    monkeypatch.setattr(ablation, "committed_revision", lambda: "abc")
    monkeypatch.setitem(BY_NAME, "a", ROW)
    return done


@pytest.fixture
def start(tmp_path, trained):
    """start(minutes) opens a campaign on the files of this test; an earlier one has ended."""
    opened = []

    def campaign(minutes: float = 5) -> Campaign:
        if opened:
            opened[-1].guard.close()
        opened.append(Campaign(tmp_path / "runs.csv", tmp_path / "runs", 1, minutes))
        return opened[-1]

    yield campaign
    opened[-1].guard.close()


def jobs_of(seeds) -> list[Job]:
    return [Job("compare", ROW, BASES[0], seed, SETTING) for seed in seeds]


def test_only_missing_runs_are_trained(start, trained, tmp_path):
    assert start().run(jobs_of([0, 1, 0]))  # a job that is asked for twice runs once
    assert [seed for _, _, seed, _ in trained] == [0, 1]
    assert start().run(jobs_of([1, 2]))
    assert [seed for _, _, seed, _ in trained] == [0, 1, 2]
    before = (tmp_path / "runs.csv").read_bytes()
    assert start().run(jobs_of([2, 1, 0]))
    assert len(trained) == 3 and (tmp_path / "runs.csv").read_bytes() == before


def test_record_names_its_run(start, tmp_path):
    (job,) = jobs_of([4])
    start().run([job])
    (record,) = read(tmp_path / "runs.csv")
    assert record.identity == job.identity()
    assert (record.row, record.revision, record.arguments) == ("a", "abc", " ".join(job.arguments()))
    assert record.kl_to_base.tolist()[::2] == [0, 0.5] and record.right[-1].tolist() == [5, 0]


def test_run_keeps_the_revision_that_started_it(start, tmp_path, monkeypatch):
    """An interrupted run is resumed by later code, and names the code that has sampled its first responses."""
    train = ablation.train
    monkeypatch.setattr(ablation, "train", None)
    with pytest.raises(TypeError):
        start().run(jobs_of([0]))
    monkeypatch.setattr(ablation, "train", train)
    monkeypatch.setattr(ablation, "committed_revision", lambda: "later")
    start().run(jobs_of([0, 1]))
    assert {record.seed: record.revision for record in read(tmp_path / "runs.csv")} == {0: "abc", 1: "later"}


def test_deadline_starts_no_run(start, trained):
    assert not start(minutes=-1).run(jobs_of([0]))
    assert not trained
    assert start(minutes=-1).run([])  # nothing is missing
    assert not start(minutes=-1).sweep([ROW])


def test_records_are_written_after_each_run(start, tmp_path, monkeypatch):
    train = ablation.train

    def failing(job, root):
        if job.seed == 1:
            raise RuntimeError("train.py ended with exit code 1")
        return train(job, root)

    monkeypatch.setattr(ablation, "train", failing)
    with pytest.raises(RuntimeError, match="exit code 1"):
        start().run(jobs_of([0, 1, 2, 3]))
    assert [record.seed for record in read(tmp_path / "runs.csv")][:1] == [0]
    assert 1 not in {record.seed for record in read(tmp_path / "runs.csv")}


def test_run_without_divergence_is_not_recorded(start, monkeypatch, tmp_path):
    """The KL divergence is computed in a process of its own, which may fail; searches do not need it."""
    monkeypatch.setattr(ablation, "in_fork", lambda function, *arguments: 1)
    with pytest.raises(RuntimeError, match="KL divergence from the base model could not be computed"):
        start().run(jobs_of([0]))
    assert read(tmp_path / "runs.csv") == []
    assert start().sweep([ROW])


def test_runs_at_former_settings_leave_the_file(start, tmp_path):
    """After a change of a row's search, its old runs are in no table; other rows and other seeds stay."""
    campaign, other = start(), Row("c", (*ROW.arguments, "data.limit=7"), 2, 1, BASES)
    former = replace(SETTING, rate=SETTING.rate * 8)
    further = Job("compare", ROW, BASES[0], ROW.first_seed + ROW.seeds, former)  # of a check with other seeds
    gone = [replace(further, seed=ROW.first_seed), Job("sweep", ROW, BASES[0], 1001, former)]
    campaign.run([*gone, further, replace(gone[0], row=other)])
    assert campaign.sweep([ROW]) and campaign.compare([ROW])
    kept = {record.identity for record in read(tmp_path / "runs.csv")}
    jobs = [*Search(ROW, campaign.records).jobs_so_far(), *compared_jobs(ROW, campaign.records)]
    assert kept == {job.identity() for job in (further, replace(gone[0], row=other), *jobs)}


def test_sweep_follows_the_search(start, trained):
    """The rate is highest at the upper end, so one more is tried, on both tasks; row b has the rate of row a."""
    campaign = start()
    assert campaign.sweep([ROW, OTHER, ROW])
    assert {name for name, *_ in trained} == {"a"} and {part for _, part, _, _ in trained} == {"sweep"}
    assert [rate for *_, rate in trained] == [rate for rate in BEST for _ in BASES]
    assert {seed for _, _, seed, _ in trained} == {1000, 1010}
    assert compared_jobs(OTHER, campaign.records)[0].setting == Setting(RATES[2])
    assert start().sweep([ROW]) and len(trained) == 8


def test_comparison_goes_seed_by_seed(start, trained):
    campaign = start()
    campaign.sweep([ROW])
    del trained[:]
    assert campaign.compare([ROW, OTHER])
    assert [(name, seed) for name, _, seed, _ in trained] == [
        ("a", 0),
        ("a", 10),
        ("b", 0),
        ("b", 10),
        ("a", 1),
        ("a", 11),
    ]
    assert {(part, rate) for _, part, _, rate in trained} == {("compare", RATES[2])}


def test_second_campaign_is_refused(start, tmp_path):
    first = start()
    with pytest.raises(SystemExit, match="another campaign is running"):
        Campaign(tmp_path / "other.csv", tmp_path / "runs", 1, 5)
    first.guard.close()
    start()  # its end frees the directory


def test_changed_checkout_is_refused(tmp_path, monkeypatch):
    """A commit is named; changed pages and data are results, changed code is not."""

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setattr(ablation, "ROOT", tmp_path)
    assert committed_revision() == ""  # outside of a checkout
    (tmp_path / "docs").mkdir()
    files = [tmp_path / name for name in ("docs/page.md", "README.md", "code.py")]
    for file in files:
        file.write_text("a")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    commit = git("rev-parse", "HEAD")
    for file in files[:2]:
        file.write_text("b")
    assert committed_revision() and commit.startswith(committed_revision())
    files[2].write_text("b")
    with pytest.raises(SystemExit, match="commit them"):
        committed_revision()
