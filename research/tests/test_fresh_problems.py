"""Fresh problems are in no set that earlier experiments have used."""

import json

import pytest

from d3s.data.problems import load_problems
from research import fresh_problems
from research.fresh_problems import PATH, overrides

ensure = fresh_problems.ensure.__wrapped__  # without the cache


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The problems, written to a repository without any."""
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fresh_problems, "ROOT", folder)
        return load_problems(str(folder / ensure()))


def test_problems_were_never_shown(fresh):
    texts = {problem.problem for problem in fresh}
    assert len(texts) == len(fresh) == 256
    for split in ("train", "validation", "test"):
        shown = load_problems("synthetic:precedence", split=split)
        assert len(shown) >= 256 and texts.isdisjoint(problem.problem for problem in shown)


def test_answers_are_those_of_the_task(fresh):
    """Python has the same precedence. The reward is left to the run, whose first function then counts."""
    for problem in fresh:
        assert str(eval(problem.problem.removesuffix("="))) == problem.answer and problem.reward is None


def test_countdown_is_evaluated_on_its_test_split():
    assert overrides("countdown") == ("eval.data=[synthetic:countdown]", "eval.split=test")
    assert overrides("precedence") == (f"eval.data=[{PATH}]",)


def test_file_is_reused_and_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(fresh_problems, "ROOT", tmp_path)
    path = tmp_path / ensure()
    content, written = path.read_bytes(), path.stat().st_mtime_ns
    assert content.count(b"\n") == 256 and not ensure().is_absolute()  # equal in every copy of the repository
    assert path.stat().st_mtime_ns == written
    path.write_text(json.dumps({"problem": "1", "answer": "1"}))
    ensure()
    assert path.read_bytes() == content
