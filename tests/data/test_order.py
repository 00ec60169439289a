"""The order of problems of several sources, against counts by weight and each source's own order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.dataset import contents, read_problems
from d3s.data.order import build_order
from d3s.data.problems import Problem, problem_order
from d3s.tiny import byte_tokenizer
from tests.helpers.configs import rejection
from tests.helpers.data_files import write_rows


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 9)), min_size=2, max_size=4),
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.integers(0, 60),
)
def test_sources_are_asked_by_weight_from_any_position(sources, counts, first):
    """However the run is cut, each source has its share to one problem, in the order that it would have alone."""
    path = ", ".join(f"{{path: {i}.jsonl, weight: {weight}}}" for i, (_, weight) in enumerate(sources))
    config = load_config([], [f"data.path=[{path}]", "train.seed=3"])
    problems = [Problem(f"{i}-{k}", "", "", "", file=i) for i, (size, _) in enumerate(sources) for k in range(size)]
    taken = build_order(config, problems).take(count=first + sum(counts), position=0)
    resumed, position = build_order(config, problems), first
    for count in counts:
        assert resumed.take(count=count, position=position) == taken[position : position + count]
        position += count
    total = sum(weight for _, weight in sources)
    for i, (size, weight) in enumerate(sources):
        own = [problems[index].id for index in taken if problems[index].file == i]
        assert own == [f"{i}-{k}" for k in problem_order(size, 3, 0, len(own))]
        assert abs(len(own) - len(taken) * weight / total) < len(sources)


def test_files_are_read_by_weight_and_fingerprinted(tmp_path):
    rows = {name: [{"problem": f"{name}{i}", "answer": "1"} for i in range(4)] for name in "ab"}
    paths = [write_rows(tmp_path / f"{name}.jsonl", rows[name]) for name in rows]
    config = load_config([], [f"data.path=[{{path: {paths[0]}, weight: 3}}, {paths[1]}]", "data.limit=3"])
    problems = read_problems(config)
    expected = [(f"{name}{i}", file) for file, name in enumerate("ab") for i in range(3)]
    assert [(p.problem, p.file) for p in problems.train] == expected
    hashed = contents(config, problems, byte_tokenizer())
    assert [len(hashed[f"{path} of data.path"]) for path in paths] == [3, 3]
    taken = build_order(config, problems.train).take(count=40, position=0)
    assert sum(problems.train[i].file == 0 for i in taken) == 30
    with pytest.raises(UserError, match=rf"data.path: no problem of {paths[1]} is left"):
        build_order(config, problems.train[:3])
    own = load_config([], [f"data.path=[{paths[0]}, {paths[1]}]", "data.order=d3s.methods.mopps:Mopps"])
    with pytest.raises(UserError, match=r"data\.order: d3s\.methods\.mopps:Mopps takes no weights; use shuffle"):
        build_order(own, problems.train)
    missing = load_config([], [f"data.path=[{paths[0]}, {tmp_path / 'c.jsonl'}]"])
    with pytest.raises(UserError, match=r"c\.jsonl: no such file"):
        read_problems(missing)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("[{path: a, weight: 0}]", "a weight above 0 for a"),
        ("[{path: a, weight: .inf}]", "a weight above 0 for a"),
        ("[{path: a, weight: .nan}]", "a weight above 0 for a"),
        ("[{path: a, weight: true}]", "a weight above 0 for a"),
        ("[{path: a, weight: '2'}]", "a weight above 0 for a"),
        ("[a, {path: a, weight: 2}]", "a once"),
        *((bad, "text, or a list of {path: SOURCE, weight: NUMBER}") for bad in (
            "[]", "3", "null", "[3]", "{path: a}", "[{weight: 2}]", "[{path: a, weight: 1, x: 2}]", "[[a, 1]]",
        )),
    ],
)  # fmt: skip
def test_bad_sources_are_refused(path, expected):
    message = rejection(f"data.path={path}")
    assert message.startswith("data.path: got ") and message.endswith(f", expected {expected}")
