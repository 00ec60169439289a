"""Fingerprints: what changes which hash, against files changed in one place; what a resumed run tells."""

import json
import os
import random
import shutil
import sys
import time

import pytest
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from d3s.commands.runs import find_run_model
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.dataset import contents, read_problems
from d3s.data.problems import Problem
from d3s.rewards import given
from d3s.tiny import byte_tokenizer
from d3s.tracking import fingerprint as hashes
from d3s.tracking.fingerprint import SETTINGS, WEIGHTS, differences, hash_code, model_contents, take_fingerprint
from tests.helpers.command_line import lines
from tests.helpers.data_files import write_rows
from tests.helpers.training import train


def change_layers(model):
    """Change the MLP layers alone, which are neither first nor last in the file."""
    tensors = load_file(model / "model.safetensors")
    save_file({n: t + 0.01 * ("mlp" in n) for n, t in tensors.items()}, model / "model.safetensors", {"format": "pt"})


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


IMPORTS = [
    "import helper", "import helper as h", "from helper import value", "from helper import *",
    "def late():\n    import helper", "try:\n    import absent\nexcept ImportError:\n    import helper",
    "import package.helper", "from package import helper", "from package.helper import value",
    "import package.deep.helper as h", "from package.deep import helper", "import through",
]  # fmt: skip
RELATIVE = ["from . import helper", "from .helper import value", "from .. import helper", "from ..deep import helper"]
FOREIGN = ["import installed", "import json", "from d3s import common", "import absent", "x = 'helper'", "not Python"]


@pytest.mark.parametrize("statement", IMPORTS + RELATIVE + FOREIGN)
def test_code_counts_with_what_it_imports_of_the_user(statement, tmp_path, monkeypatch):
    """A change of helper.py changes the hashes if, and only if, it is imported and the user's own."""
    owner = "package.sub.own_reward" if ".." in statement else "package.own_reward" if "from ." in statement else "own"
    folders = [tmp_path / "package/deep", tmp_path / "package/sub", tmp_path / "site-packages"]
    for folder in folders:
        folder.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "package", *folders):
        (folder / "helper.py").write_text("value = 1")
    (tmp_path / "through.py").write_text("from helper import value")
    (tmp_path / "site-packages/installed.py").write_text("import helper")
    (tmp_path / f"{owner.replace('.', '/')}.py").write_text(statement)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(folders[-1]), *sys.path])
    monkeypatch.setitem(sys.modules, owner, type(sys)(owner))
    sys.modules[owner].__file__ = str(tmp_path / f"{owner.replace('.', '/')}.py")
    before = hash_code({"rule": f"{owner}:score"})
    assert f"module {owner}" in before and hash_code([f"{owner}:score", 2]) == before
    for helper in tmp_path.rglob("helper.py"):
        helper.write_text("value = 2")
    changed = differences(before, hash_code(f"{owner}:score"))
    assert [name.rpartition(".")[2].removeprefix("module ") for name in changed] == ["helper"] * (
        statement not in FOREIGN
    )
    assert not any(name.split()[1].partition(".")[0] in ("json", "d3s", "installed") for name in before)


def test_code_of_a_function_without_module_counts(monkeypatch):
    monkeypatch.setattr(given, "mine", lambda response: 1.0, raising=False)
    before = hash_code(["d3s.rewards.given:mine"])
    monkeypatch.setattr(given, "mine", lambda response: 2.0)
    assert list(differences(before, hash_code(["d3s.rewards.given:mine"]))) == ["function mine"]


def test_every_byte_of_a_model_counts(tied_model, tmp_path, monkeypatch):
    """Also one that changes neither size nor time; hashes of large files are read from the user's cache."""
    model = shutil.copytree(tied_model, tmp_path / "model")
    file, cache = model / "model.safetensors", tmp_path / "cache"
    monkeypatch.setattr(hashes, "LARGE", 0)
    monkeypatch.setattr(hashes, "SETTLED_NS", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def change(path, position):
        content = bytearray(path.read_bytes())
        content[position] ^= 1
        status = path.stat()
        time.sleep(0.02)  # more than the resolution of file times
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        time.sleep(0.02)

    for position in random.Random(0).sample(range(file.stat().st_size), 4):
        before = model_contents(str(model))
        assert model_contents(str(model)) == before
        change(file, position)
        assert list(differences(before, model_contents(str(model)))) == [WEIGHTS]
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        before = model_contents(str(model))
        change(model / name, -1)
        assert list(differences(before, model_contents(str(model)))) == [SETTINGS], name
    before = model_contents(str(model))
    (model / "README.md").write_text("another")
    entry = max(cache.rglob("*.json"), key=lambda path: json.loads(path.read_text())["bytes"])
    record = json.loads(entry.read_text())
    entry.write_text(json.dumps(record | {"sha256": "0" * 64}))
    assert model_contents(str(model))[WEIGHTS] == [(file.name, "0" * 64)]  # read, not computed
    for damage in ("", "[]", "null", "1", json.dumps(record | {"sha256": 1}), json.dumps(record | {"bytes": 1})):
        entry.write_text(damage)
        assert model_contents(str(model)) == before
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", "/proc/none"):  # where nothing can be written
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        assert model_contents(str(model)) == before


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
    assert json.loads((run / "machine.json").read_text())["content"] == saved and len(saved) == 6
    write_rows(tmp_path / "train.jsonl", [row | {"answer": "7"} for row in ROWS])
    for step in (1, 2):
        checkpoint = run / f"checkpoints/step_{step:06d}"
        train(tied_model, run, overrides=[*options, f"train.steps={step + 1}"], checkpoint=checkpoint)
        (warning,) = (w["message"] for w in lines(run / "warnings.jsonl") if w["key"].startswith("changed/"))
        assert warning == "data.path: the content is not that of the checkpoint; the run goes on with the new one"
    first, second = (line["changed"] for line in lines(run / "resumes.jsonl"))
    assert first.keys() == {"train.steps", "data.path"} and first["data.path"]["old"] == saved["data.path"]
    assert second.keys() == {"train.steps"}


def test_resumption_refuses_another_teacher(tied_model, gqa_model, tmp_path):
    """A teacher frees the weights of the policy, which are in the checkpoint."""
    model, teacher = shutil.copytree(tied_model, tmp_path / "model"), shutil.copytree(gqa_model, tmp_path / "teacher")
    options = [f"loss.reference={teacher}", "loss.beta=0.1", "checkpoint.every=1"]
    train(model, tmp_path / "run", overrides=[*options, "train.steps=1"])
    change_layers(model)
    checkpoint = tmp_path / "run/checkpoints/step_000001"
    train(model, tmp_path / "run", overrides=[*options, "train.steps=2"], checkpoint=checkpoint)
    change_layers(teacher)
    checkpoint = tmp_path / "run/checkpoints/step_000002"
    with pytest.raises(UserError, match=f"^loss.reference: the weights of {teacher} are not those that the checkpoint"):
        train(model, tmp_path / "run", overrides=[*options, "train.steps=3"], checkpoint=checkpoint)


def test_resumption_refuses_another_reference_model(tied_model, tmp_path):
    """And other frozen weights under adapters. What nothing uses any more may change, other files with a word."""
    for name, option in (("beta", "loss.beta=0.1"), ("lora", "lora.rank=2"), ("none", "data.limit=6")):
        model, run = shutil.copytree(tied_model, tmp_path / name), tmp_path / f"run-{name}"
        options = [option, "rollout.num_generations=4", "schedule.n_init=2", "schedule.n_final=4", "checkpoint.every=1"]
        train(model, run, overrides=[*options, "train.steps=1"])
        change_layers(model)
        (model / "generation_config.json").write_text((model / "generation_config.json").read_text() + "\n")
        resumed = {"overrides": [*options, "train.steps=2"], "checkpoint": run / "checkpoints/step_000001"}
        if name == "none":
            train(model, run, **resumed)
            changed = [w["key"] for w in lines(run / "warnings.jsonl") if w["key"].startswith("changed/")]
            assert changed == [f"changed/{SETTINGS}"]
        else:
            expected = (
                f"model.name: the weights of {model} are not those that the checkpoint began with, and .*{option[:9]}"
            )
            with pytest.raises(UserError, match=expected):
                train(model, run, **resumed)
        if name != "beta":
            with pytest.raises(
                UserError, match=r"does not fit model.name, .*, with other (weights of model.name and )?s"
            ):
                find_run_model(run, 1)
