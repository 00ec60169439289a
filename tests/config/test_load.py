"""Loading of configurations: merge order, YAML errors, hints and dumps, against stated messages."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from d3s.config import yaml12
from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from tests.helpers.configs import BASES, METHODS, ROOT, SFT, flat, rejection


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- merging ---------------------------------------------------------------------------------------------------------


def test_later_files_and_overrides_win_key_by_key(tmp_path):
    one = write(tmp_path / "one.yaml", "train: {steps: 5, seed: 1}\nloss: {beta: 0.1}\n")
    two = write(tmp_path / "two.yaml", "train:\n  seed: 2\nmodel:\n")
    config = load_config([one, two], ["train.seed=3", "rollout.max_num_seqs=4"])
    assert (config.train.steps, config.train.seed, config.loss.beta, config.rollout.max_num_seqs) == (5, 3, 0.1, 4)
    assert load_config([two, one]).train.seed == 1
    assert load_config([]) == Config()


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optim.learning_rate=1e-5", 1e-5),
        ("eval.data=[gsm8k, math500=files/math.jsonl]", ["gsm8k", "math500=files/math.jsonl"]),
        ("schedule.n_init=null", None),
        ("data.limit=", None),
        ("rollout.sleep=false", False),
        ("model.name=1:30", "1:30"),
        ("data.path=a=b.jsonl", "a=b.jsonl"),
    ],
)
def test_overrides_have_the_types_of_their_keys(override, expected):
    value = flat(load_config([], [override]))[override.partition("=")[0]]
    assert value == expected
    assert type(value) is type(expected)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("loss.epsilon_hi", "loss.epsilon_high"),
        ("optim.lerning_rate", "optim.learning_rate"),
        ("train.learning_rate", "optim.learning_rate"),
        ("optm.learning_rate", "optim"),
        ("model.name.x", "model.name"),
    ],
)
def test_unknown_key_names_the_nearest_key(key, meant):
    assert rejection(f"{key}=1").endswith(f"did you mean {meant}?")


def test_unknown_key_without_likeness_lists_the_keys():
    assert rejection("optim.lr=1") == (
        "optim.lr: unknown key; the keys of optim are " + ", ".join(Config().optim.model_dump())
    )
    assert rejection("quux.zzz=1") == "quux: unknown section; sections are " + ", ".join(Config.model_fields)
    assert "did you mean loss.epsilon_high?" in rejection("epsilon_high=0.3")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("loss.beta", ["'loss.beta'", "section.key=value"]),
        ("=1", ["section.key=value"]),
        ("loss.beta=[1", ["'loss.beta=[1'", "YAML"]),
        (f"train.seed={'9' * 5000}", ["'train.seed=9999", "not valid YAML"]),
    ],
)
def test_malformed_override_is_rejected(override, parts):
    message = rejection(override)
    assert all(part in message for part in parts), message


def test_all_errors_are_reported_at_once():
    message = rejection("optim.learning_rate=0", "los.beta=1", "train.steps=0")
    assert all(key in message for key in ("optim.learning_rate", "los", "train.steps"))
    message = rejection("schedule.n_final=64", "optim.warmup_steps=200", "eval.k=[9]")
    assert all(key in message for key in ("schedule.n_final", "optim.warmup_steps", "eval.k"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"loss: [1\n", "invalid YAML in line 2"),
        (b"loss:\n  beta: 1\n  beta: 2\n", "invalid YAML in line 3 (duplicate key beta)"),
        (b"loss: {beta: 1}\ntrain: {seed: 1}\nloss: {kind: grpo}\n", "invalid YAML in line 3 (duplicate key loss)"),
        (b"loss:\n  ? [a, b]\n  : 1\n", "invalid YAML in line 2 (a key must be plain text)"),
        (b"train: {seed: !!int 1:30}\n", "invalid YAML"),
        (b"loss: 1\n", "expected sections"),
        (b"- loss\n", "expected sections"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
    ],
)
def test_invalid_file_is_named_with_the_line(tmp_path, content, problem):
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    assert rejection(files=[file]).startswith(f"{file}: {problem}")


def test_long_values_are_shortened():
    message = rejection(f"model.name=[{'1, ' * 1000}]")
    assert message.startswith("model.name: got [1, 1, 1") and message.endswith(", expected text") and len(message) < 130


# --- dumps -----------------------------------------------------------------------------------------------------------


def test_dump_keeps_the_order_of_the_schema(tmp_path):
    dump_config(Config(), tmp_path / "config.yaml")
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert {section: list(values) for section, values in written.items()} == {
        section: list(field.annotation.model_fields) for section, field in Config.model_fields.items()
    }
    assert list(written) == list(Config.model_fields)


@pytest.mark.parametrize("file", [*BASES, *SFT, *METHODS], ids=lambda path: path.stem)
def test_dump_loads_as_the_same_configuration(tmp_path, file):
    config = load_config([file], ["tracker.mirrors=[wandb]", "data.limit=7"])
    dump_config(config, tmp_path / "config.yaml")
    assert load_config([tmp_path / "config.yaml"]) == config


@given(st.floats(min_value=5e-324, max_value=1e300), st.text(max_size=20))
def test_dump_keeps_numbers_and_text_exactly(rate, name):
    config = Config.model_validate({"optim": {"learning_rate": rate}, "model": {"name": name}})
    written = yaml12.dump(config.model_dump(mode="json", include={"optim", "model"}))
    assert Config.model_validate(yaml12.load(written)) == config


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_command_line_prints_one_line_and_exits_with_2():
    command = [sys.executable, "train.py", "--config", "configs/tiny.yaml", "configs/method/podz.yaml"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("error: configs/method/podz.yaml: cannot be read")


@pytest.mark.slow
def test_loading_imports_no_heavy_library():
    code = (
        "import sys; from d3s.config.load import load_config; load_config(['configs/tiny.yaml']);"
        "print({'torch', 'transformers', 'vllm', 'accelerate', 'numpy'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "set()", run.stderr
