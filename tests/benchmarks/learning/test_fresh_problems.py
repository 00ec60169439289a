"""Fresh problems are in no set that earlier experiments have used."""

import json

import pytest

from benchmarks.learning import fresh_problems
from benchmarks.learning.fresh_problems import ensure
from d3s.data.problems import load_problems


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The problems of both tasks, written to a repository without any."""
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fresh_problems, "ROOT", folder)
        ensure.cache_clear()
        yield {task: load_problems(str(folder / ensure(task))) for task in ("precedence", "countdown")}
    ensure.cache_clear()


@pytest.mark.parametrize("task, count", [("precedence", 256), ("countdown", 148)])
def test_problems_were_never_shown(task, count, fresh):
    texts = {problem.problem for problem in fresh[task]}
    assert len(texts) == len(fresh[task]) == count
    for split in ("train", "validation", "test"):
        shown = load_problems(f"synthetic:{task}", split=split)
        assert len(shown) >= 256 and texts.isdisjoint(problem.problem for problem in shown)


def test_answers_are_those_of_the_task(fresh):
    """Python has the same precedence; the problems of countdown contain their answers."""
    for problem in fresh["precedence"]:
        assert str(eval(problem.problem.removesuffix("="))) == problem.answer
    for problem in fresh["countdown"]:
        assert problem.answer == problem.problem.removesuffix(":")


def test_problems_leave_the_reward_to_the_run(fresh):
    """Evaluations then count the first reward function of the configuration."""
    assert all(problem.reward is None for problems in fresh.values() for problem in problems)


def test_file_is_reused_and_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(fresh_problems, "ROOT", tmp_path)
    monkeypatch.setattr(fresh_problems, "DRAWN", {"precedence": {"test": 260}})
    draw = ensure.__wrapped__  # without the cache
    path = tmp_path / draw("precedence")
    content, written = path.read_bytes(), path.stat().st_mtime_ns
    assert content.count(b"\n") == 4 and not draw("precedence").is_absolute()  # equal in every copy of the repository
    assert path.stat().st_mtime_ns == written
    path.write_text(json.dumps({"problem": "1", "answer": "1"}))
    draw("precedence")
    assert path.read_bytes() == content
