"""Fingerprints: what changes which hash, against files changed in one place; what a resumed run tells."""

import json
import sys

import pytest
from accelerate import Accelerator

from d3s.config.load import load_config
from d3s.data.dataset import contents, read_problems
from d3s.data.problems import Problem
from d3s.tiny import byte_tokenizer
from d3s.tracking.fingerprint import differences, take_fingerprint
from tests.helpers.command_line import lines
from tests.helpers.data_files import write_rows
from tests.helpers.training import train

ROWS = [{"problem": f"{i} + 1 =", "answer": str(i + 1), "hint": {"level": i}} for i in range(8)]
OWN = "def score(response, answer):\n    return float(len(response) % {} == 0)\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Training and evaluation files, a template, modules of an own reward and rule, and the options that name them."""
    train, test = write_rows(tmp_path / "train.jsonl", ROWS), write_rows(tmp_path / "test.jsonl", ROWS[:2])
    (tmp_path / "template.txt").write_text("Q: {problem}")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_reward", "own_rule"):
        (tmp_path / f"{name}.py").write_text(OWN.format(2))
        monkeypatch.delitem(sys.modules, name, raising=False)
    return [
        f"data.path={train}", f"eval.data=[{test}, synthetic:precedence]", f"data.template={tmp_path}/template.txt",
        "reward.functions=[[own_reward:score, 2]]", "loss.kind={rule: own_rule:score, width: 2}",
    ]  # fmt: skip


def fingerprint(options):
    __import__("own_reward"), __import__("own_rule")
    config = load_config([], ["train.prompts_per_step=2", *options])
    return take_fingerprint(config, contents(config, read_problems(config), byte_tokenizer()), Accelerator(cpu=True))


CHANGES = [
    ("train.jsonl", [*ROWS[:-1], ROWS[-1] | {"answer": "9"}], "data.path"),
    ("train.jsonl", ROWS[::-1], "data.path"),
    ("train.jsonl", [*ROWS[:-1], ROWS[-1] | {"hint": {"level": 0}}], "data.path"),  # a column that no option names
    ("test.jsonl", ROWS[1:3], "test of eval.data"),
    ("changed.txt", "Q:  {problem}", "data.template"),  # another file, as templates are read once
    ("own_reward.py", OWN.format(3), "module own_reward"),
    ("own_rule.py", OWN.format(3), "module own_rule"),
]


def test_each_content_has_its_hash(files, tmp_path, monkeypatch):
    """Synthetic problems, which the options determine, have none."""
    before, modules = fingerprint(files), ["module own_reward", "module own_rule"]
    assert list(before) == ["data.path", "test of eval.data", "data.template", "VLLM_BATCH_INVARIANT", *modules]
    assert fingerprint(files) == before
    for name, content, expected in CHANGES:
        if name == "changed.txt":
            files = [option.replace("template.txt", name) for option in files]
        (tmp_path / name).write_text(content) if isinstance(content, str) else write_rows(tmp_path / name, content)
        last, before = before, fingerprint(files)
        assert list(differences(last, before)) == [expected], name
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert list(differences(before, fingerprint(files))) == ["VLLM_BATCH_INVARIANT"]


def test_objects_count_by_their_type():
    """Images of a data set have another address in every process."""

    def of_row(row):
        return take_fingerprint(load_config([]), {"data.path": [Problem("0", "p", "1", "s", row)]}, Accelerator())

    assert of_row({"image": object(), b"key": 1}) == of_row({"image": object(), b"key": 1}) != of_row({})


def test_resumption_names_what_has_changed(tied_model, files, tmp_path):
    """Once: the next checkpoint has the new content."""
    run, options = tmp_path / "run", [option for option in files if option.startswith("data")]
    options += ["reward.functions=[tests.helpers.rewards:even_length]", "data.limit=6", "checkpoint.every=1"]
    train(tied_model, run, overrides=[*options, "train.steps=1"])
    saved = json.loads((run / "checkpoints/step_000001/state.json").read_text())["fingerprint"]
    assert json.loads((run / "machine.json").read_text())["content"] == saved and len(saved) == 4
    write_rows(tmp_path / "train.jsonl", [row | {"answer": "7"} for row in ROWS])
    for step in (1, 2):
        checkpoint = run / f"checkpoints/step_{step:06d}"
        train(tied_model, run, overrides=[*options, f"train.steps={step + 1}"], checkpoint=checkpoint)
        (warning,) = (w["message"] for w in lines(run / "warnings.jsonl") if w["key"].startswith("changed/"))
        assert warning == "data.path: the content is not that of the checkpoint; the run goes on with the new one"
    first, second = (line["changed"] for line in lines(run / "resumes.jsonl"))
    assert first.keys() == {"train.steps", "data.path"} and first["data.path"]["old"] == saved["data.path"]
    assert second.keys() == {"train.steps"}
