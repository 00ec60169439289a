"""Gold answers: wrapped in every form they stay themselves; unreadable ones are refused before a start, counted."""

import json
from decimal import Decimal

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.dataset import read_problems
from d3s.data.golds import KEYS, final_answer, gold_problem, read_gold
from d3s.data.problems import load_problems
from tests.helpers.data_files import write_rows
from tests.helpers.evaluations import call_eval

ANSWERS = [
    "7", "-3.50", "1/2", "\\frac{1}{2}", "\\theta \\neq \\nu", "[1, 2]", "[1,2)", "{1, 2}", "{{1,2},{3}}",
    "[[1,2],[3,4]]", "\\{1,2\\}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "5\\%", "\\alpha\\beta", "[7]",
    "x^2 - 'a'", "(A)", "\\text{two words}", "Yes", "{{a}\\over b}", "St. Louis",
    "x=1\ny_2=-2", "x < 3 \\text{ or } x > 5", "1,234", "\\frac12 \\boldsymbol{i}", "北京",
]  # fmt: skip
TEXTS = [
    lambda gold: gold,
    lambda gold: f"We add. Then it doubles.\n\nHence $x = \\boxed{{{gold}}}$. \\blacksquare",
    lambda gold: f"First \\boxed{{wrong}}, then the rest.\nSo \\fbox{{{gold}}}",
    lambda gold: f"<think>a \\boxed{{0}} b</think> So \\boxed{{{gold}}}",
    lambda gold: f'["{gold}"]',  # nobody has escaped its commands
]
CONTAINERS = [
    lambda gold: gold, lambda gold: f"<answer>{gold}</answer>", lambda gold: f"[ANSWER]{gold}[/ANSWER]",
    lambda gold: json.dumps([gold]), lambda gold: f" {[gold]!r}",
    *(lambda gold, key=key: json.dumps({key: gold, "style": "rule"}) for key in KEYS),
    lambda gold: json.dumps([{"ground_truth": gold}]), lambda gold: repr({"anything": gold}),
]  # fmt: skip
UNREADABLE = {
    "First we add two and two. Then we multiply the sum by three, which gives twelve in all.": "a whole text",
    " ".join(["we compute"] * 16): "a whole text", "$$": "cannot be written", "\\frac{1}{2": "cannot be written",
    '{"a": "1", "b": "2"}': "without one of the fields", "So \\boxed{\\frac{1}{2}": "cannot be written in a box",
    "Step 1: x+1=8\nx=7": "several lines", "$$x+1=8$$ $$x=7$$": "several lines",
}  # fmt: skip


@given(st.sampled_from(ANSWERS), st.sampled_from(TEXTS), st.sampled_from(CONTAINERS))
def test_wrapped_golds_are_themselves(answer, text, container):
    gold = container(text(answer))
    assert final_answer(read_gold(gold)) == answer and gold_problem(answer) == ""


def test_alternatives_of_a_gold_stay_alternatives():
    assert final_answer(r"So \boxed{5} or \boxed{6}.") == "5 or 6"


def test_fields_of_other_types_are_read():
    golds = {"a\n#### 42": "42", "#### -1,234,567": "-1234567", "#### (1,2)": "(1,2)", "#### 3\nso #### 4": "4"}
    assert {field: read_gold(field) for field in golds} == golds
    for field, gold in (
        (["$1$", "$2$"], "1, 2"), (["$7$"], "7"), ([7], "7"), (["so\n#### 7"], "so\n#### 7"),
        ({"ground_truth": ["7"], "style": "rule"}, "7"),
        (0.5, "0.5"), ({"answer": "so\n#### 7"}, "7"),
        (Decimal("7.00"), "7"), (Decimal("100"), "100"), (Decimal("-0.1"), "-0.1"),
    ):  # fmt: skip
        assert read_gold(field) == gold, field
    for field in (
        [],
        None,
        "####",
        float("inf"),
        True,
        Decimal("NaN"),
        {"a": 1, "b": 2},
        {"answer": 1, "gold": 2},
        [1, 2],
    ):
        assert read_gold(field) == "", field


def test_unreadable_golds_are_refused_with_their_count(tmp_path, monkeypatch):
    """In training and evaluation data, by train.py and eval.py; golds for another reward are not touched."""
    rows = [{"problem": f"{i}?", "answer": answer} for i, answer in enumerate((*UNREADABLE, '["7"]', "\\boxed{8}"))]
    path, good = write_rows(tmp_path / "x.jsonl", rows), write_rows(tmp_path / "y.jsonl", rows[-2:])
    for gold, reason in UNREADABLE.items():
        assert gold_problem(final_answer(gold)).startswith(reason), gold
    own = ["reward.functions=[tests.helpers.rewards:even_length]", "eval.reward=tests.helpers.rewards:even_length"]
    message = (
        r"x.jsonl: the verifier cannot read 8 of 10 gold answers: .*line 1 'First we .*; .*line 2 .*; .*line 3 '\$\$'"
    )

    def read(train, test, *options):
        problems = read_problems(load_config([], [f"data.path={train}", f"eval.data=[{test}]", *options]))
        return [[problem.answer for problem in part] for part in (problems.train, *problems.tests.values())]

    for train, test, options in ((path, good, []), (good, path, []), (good, path, own[:1]), (path, good, own[1:])):
        with pytest.raises(UserError, match=message) as caught:
            read(train, test, *options)
        assert "line 4" not in str(caught.value)
    assert read(good, good) == [["7", "8"]] * 2
    assert read(path, good, *own) == [[row["answer"] for row in part] for part in (rows, rows[-2:])]
    assert read(path, good, "data.bad_rows=skip") == [["7", "8"]] * 2
    for words in ([], ["--reward", "verify"], ["--reward", "null"]):
        with pytest.raises(UserError, match=message):
            call_eval("--model", "m", "--data", path, *words)


def test_numbers_of_parquet_are_those_that_were_written(tmp_path):
    """float16 and float32 have the shortest text that their type reads back, also in objects and lists."""
    texts = ["0.1", "7.0", "-2.35", "1e-05", "3.1416"]
    kinds = {"half": pyarrow.float16(), "single": pyarrow.float32(), "double": pyarrow.float64()}
    columns = {name: pyarrow.array(np.array(texts, kind.to_pandas_dtype()), kind) for name, kind in kinds.items()}
    columns["decimal"] = pyarrow.array([Decimal(text) for text in texts], pyarrow.decimal128(20, 8))
    columns["object"] = pyarrow.array(
        [{"value": float(t)} for t in texts], pyarrow.struct({"value": pyarrow.float32()})
    )
    columns["list"] = pyarrow.array([[float(text)] for text in texts], pyarrow.list_(pyarrow.float32()))
    columns["missing"] = pyarrow.array([None] * len(texts), pyarrow.float32())
    pyarrow.parquet.write_table(pyarrow.table(columns | {"problem": texts}), tmp_path / "x.parquet")
    for name in ("single", "double", "decimal", "object", "list"):
        problems = load_problems(str(tmp_path / "x.parquet"), answer_field=name, verified=True)
        assert [float(problem.answer) for problem in problems] == [float(text) for text in texts], name
        assert all(len(problem.answer) < 9 for problem in problems)
    halves = [problem.answer for problem in load_problems(str(tmp_path / "x.parquet"), answer_field="half")]
    assert halves == [str(np.float16(text)) for text in texts]


def test_long_fields_of_csv_are_read(tmp_path):
    row = {"problem": "x" * 200_000, "answer": "7"}
    assert load_problems(write_rows(tmp_path / "x.csv", [row]))[0].problem == row["problem"]
