"""Files of samples, against their exact text; comparison of two, against differences computed by hand."""

import json
import random

import pytest

from d3s.common import UserError, exit_code
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.evaluation.compare import compare, main
from d3s.evaluation.files import Sample, SampleFile, open_output, read_samples
from tests.helpers.scripted_engine import make_prompts

SAMPLE = Sample("a \\boxed{2}", "2", 1.0, 9, True)
# as written by all versions so far
LINE = (
    '{"data": "u", "index": 0, "id": "p0", "problem": "problem 0?", "prompt": "problem 0?", "answer": "2", '
    '"sample": 0, "response": "a \\\\boxed{2}", "extracted": "2", "score": 1.0, "tokens": 9, "finished": true}\n'
)


def test_files_written_before_are_read(tmp_path):
    path = tmp_path / "u.jsonl"
    second = LINE.replace('"sample": 0', '"sample": 1').replace('"2", "score": 1.0', 'null, "score": 0.5')
    path.write_text(LINE + second)
    expected = [Sample("", "2", 1.0, 9, True), Sample("", None, 0.5, 9, True)]  # the texts of responses are not kept
    assert read_samples(path) == {("problem 0?", "2", 1): expected}
    with SampleFile(path, "u", make_prompts(2), 2) as file:
        assert file.groups == {0: expected}


def test_incomplete_problems_are_not_read(tmp_path):
    path = tmp_path / "u.jsonl"
    with SampleFile(path, "u", make_prompts(2), 3) as file:
        file.append(0, [SAMPLE] * 3)
        file.append(1, [SAMPLE] * 3)
    path.write_bytes(path.read_bytes()[:-20])
    assert list(read_samples(path)) == [("problem 0?", "2", 1)]


def test_other_files_have_no_samples(tmp_path):
    without_tokens, text_index = LINE.replace('"tokens": 9, ', ""), LINE.replace('"index": 0', '"index": "0"')
    for damage in (LINE[:-1], "garbage\n", "[1]\n", LINE.replace("1.0", "NaN"), without_tokens, text_index):
        (tmp_path / "u.jsonl").write_text(damage)
        with pytest.raises(UserError, match=r"u.jsonl: no samples found; expected a file written by eval.py"):
            read_samples(tmp_path / "u.jsonl")
    with pytest.raises(UserError, match=r"cannot be read \(not a regular file\)"):
        read_samples(tmp_path)


def test_output_directories_are_resumed_or_refused(tmp_path, monkeypatch):
    out = tmp_path / "a" / "b"
    assert open_output(out, {"n": 8, "temperature": 1.0, "data": {"x": "a"}}) == out
    (out / "x.jsonl").write_text("")
    assert open_output(out, {"n": 8, "temperature": 1.0, "data": {"y": "b"}}) == out  # further data
    assert json.loads((out / "settings.json").read_text()) == {"n": 8, "temperature": 1.0, "data": {"x": "a", "y": "b"}}
    for settings, change in (
        ({"n": 8, "temperature": 1.0, "data": {"x": "a", "y": "c"}}, "rows of y: got 'c', expected 'b'"),
        ({"n": 8, "temperature": 0.5}, "temperature: got 0.5, expected 1.0"),
        ({"n": 8, "temperature": 1.0, "reward": "a:b"}, "reward: got 'a:b', expected None"),
    ):
        with pytest.raises(UserError, match=rf"settings.json: cannot resume .*\({change}\); choose"):
            open_output(out, settings)
    with pytest.raises(UserError, match=r"not empty and not an evaluation; choose another --output"):
        open_output(tmp_path, {"n": 8})
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be used for output"):
        open_output(tmp_path / "file", {"n": 8})
    for damaged in ("[1]", '{"n": 8'):
        (out / "settings.json").write_text(damaged)
        with pytest.raises(UserError, match="cannot be used for output"):
            open_output(out, {"n": 8})
    monkeypatch.chdir(tmp_path)
    folders = [open_output(None, {"n": n, "data": {str(i): ""}}) for i, n in enumerate((8, 4, 8))]
    assert folders[0] == folders[2] != folders[1] and str(folders[0].parent) == "runs/eval"


def write_samples(path, correct, n=4, first=0, wrong_answer=None):
    """Write n samples for problem `first + p`: first the wrong ones, then `correct[p]` correct ones."""
    problems = [Problem(f"p{i}", f"problem {i}?", "2", "unit") for i in range(first, first + len(correct))]
    prompts = EncodedPrompts(problems, [p.problem for p in problems], [[1]] * len(problems), 0)
    with SampleFile(path, "unit", prompts, n) as file:
        for p, c in sorted(enumerate(correct), reverse=True):
            wrong, right = Sample("", wrong_answer, 0.0, 5, True), Sample("", "2", 1.0, 5, True)
            file.append(p, [wrong] * (n - c) + [right] * c)


def test_paired_differences_use_common_problems(tmp_path, capsys):
    hard = [random.Random(i).choice([0, 1, 3]) for i in range(400)]
    write_samples(tmp_path / "a.jsonl", [*hard, 4, 4])
    write_samples(tmp_path / "b.jsonl", [c + (i % 4 == 0) for i, c in enumerate(hard)])
    counts, rows = compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", (1, 4))
    a, b, difference = rows["pass@1"]
    assert counts == [400, 402, 400]
    assert a.value == pytest.approx(sum(hard) / 1600) and b.value - a.value == pytest.approx(100 / 1600)
    assert difference.value == pytest.approx(100 / 1600) and difference.low > 0
    assert difference.high - difference.low < 0.4 * (a.high - a.low)
    reverse = compare(tmp_path / "b.jsonl", tmp_path / "a.jsonl", (1,))[1]["pass@1"][2]
    assert reverse.value == pytest.approx(-difference.value)
    assert capsys.readouterr().err == ""
    rows = (tmp_path / "b.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_bytes(b"".join([*rows[:4], b"{}\n", *rows[5:-1], rows[-1][:9]]))
    assert compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", (1,))[0] == [398, 402, 398]
    assert capsys.readouterr().err.endswith("b.jsonl: damaged lines are left out: 5\n")


def test_both_files_have_the_same_number_of_voters(tmp_path):
    """Both files have the same eight samples; eight more in the second would change every majority."""
    write_samples(tmp_path / "a.jsonl", [3] * 6, n=8, wrong_answer="3")
    write_samples(tmp_path / "b.jsonl", [11] * 6, n=16, wrong_answer="3")
    for first, second in ("ab", "ba"):
        _, rows = compare(tmp_path / f"{first}.jsonl", tmp_path / f"{second}.jsonl", (1,))
        assert list(rows) == ["pass@1", "avg", "maj@8"]
        assert [e.value for e in rows["maj@8"]] == [0, 0, 0]
        for metric in ("avg", "pass@1"):  # unbiased with any number of samples
            assert sorted(e.value for e in rows[metric][:2]) == [3 / 8, 11 / 16]
    assert [e.value for e in compare(*[tmp_path / "b.jsonl"] * 2, (1,))[1]["maj@16"]] == [1, 1, 0]


def test_command_exits_with_2_on_mistakes(tmp_path, capsys):
    write_samples(tmp_path / "a.jsonl", [1, 2])
    write_samples(tmp_path / "c.jsonl", [1], first=7)
    for other, k, expected in (
        ("c.jsonl", "1", "c.jsonl: no common problem; expected two evaluations of the same data"),
        ("a.jsonl", "8", "--k: got pass@8, expected at most the 4 samples per problem that both files have"),
    ):
        assert exit_code(lambda: main([str(tmp_path / "a.jsonl"), str(tmp_path / other), "--k", k])) == 2  # noqa: B023
        assert expected in capsys.readouterr().err
