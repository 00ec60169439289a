"""Comparison of two files of samples, against differences computed by hand."""

import random

import pytest

from d3s.common import exit_code
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.evaluate.compare import compare, main
from d3s.evaluate.files import Sample, SampleFile


def write_samples(path, correct, n=4, first=0, wrong_answer=None):
    """Write n samples for problem `first + p`: first the wrong ones, then `correct[p]` correct ones."""
    problems = [Problem(f"p{i}", f"problem {i}?", "2", "unit") for i in range(first, first + len(correct))]
    prompts = EncodedPrompts(problems, [p.problem for p in problems], [[1]] * len(problems), 0)
    with SampleFile(path, "unit", prompts, n) as file:
        for p, c in sorted(enumerate(correct), reverse=True):
            wrong, right = Sample("", wrong_answer, 0.0, 5, True), Sample("", "2", 1.0, 5, True)
            file.append(p, [wrong] * (n - c) + [right] * c)


def test_paired_differences_use_common_problems(tmp_path):
    hard = [random.Random(i).choice([0, 1, 3]) for i in range(200)]
    write_samples(tmp_path / "a.jsonl", [*hard, 4, 4])
    write_samples(tmp_path / "b.jsonl", [c + (i % 4 == 0) for i, c in enumerate(hard)])
    common, rows = compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", (1, 4))
    a, b, difference = rows["pass@1"]
    assert common == 200
    assert a.value == pytest.approx(sum(hard) / 800) and b.value - a.value == pytest.approx(50 / 800)
    assert difference.value == pytest.approx(50 / 800) and difference.low > 0
    assert difference.high - difference.low < 0.4 * (a.high - a.low)
    reverse = compare(tmp_path / "b.jsonl", tmp_path / "a.jsonl", (1,))[1]["pass@1"][2]
    assert reverse.value == pytest.approx(-difference.value)


def test_both_files_have_the_same_number_of_voters(tmp_path):
    """Both files have the same eight samples; eight more in the second would change every majority."""
    write_samples(tmp_path / "a.jsonl", [3] * 6, n=8, wrong_answer="3")
    write_samples(tmp_path / "b.jsonl", [11] * 6, n=16, wrong_answer="3")
    for first, second in ("ab", "ba"):
        _, rows = compare(tmp_path / f"{first}.jsonl", tmp_path / f"{second}.jsonl", (1,))
        assert list(rows) == ["pass@1", "avg", "maj@8"]
        assert [e.value for e in rows["maj@8"]] == [0, 0, 0]
        assert sorted(e.value for e in rows["avg"][:2]) == [3 / 8, 11 / 16]  # unbiased with any number of samples
    assert [e.value for e in compare(*[tmp_path / "b.jsonl"] * 2, (1,))[1]["maj@16"]] == [1, 1, 0]


@pytest.mark.parametrize(
    ("other", "k", "expected"),
    [
        ("c.jsonl", "1", "c.jsonl: no common problem; expected two evaluations of the same data"),
        ("b.jsonl", "8", "--k: got pass@8, expected at most the 4 samples per problem that both files have"),
        ("missing.jsonl", "1", "missing.jsonl: cannot be read"),
    ],
)
def test_command_exits_with_2_on_mistakes(tmp_path, capsys, other, k, expected):
    write_samples(tmp_path / "a.jsonl", [1, 2])
    write_samples(tmp_path / "b.jsonl", [2, 4])
    write_samples(tmp_path / "c.jsonl", [1], first=7)
    assert exit_code(lambda: main([str(tmp_path / "a.jsonl"), str(tmp_path / other), "--k", k])) == 2
    assert expected in capsys.readouterr().err
