"""Loading of configurations: merge order, YAML errors, hints and dumps, against stated messages."""

import subprocess
import sys

import pytest
import yaml

from d3s.config.load import dump_config, load_config
from d3s.config.schema import Config
from tests.helpers.configs import BASES, METHODS, ROOT, SFT, flat, rejection
from tests.helpers.processes import run_python


def test_later_files_and_overrides_win_key_by_key(tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("train: {steps: 5, seed: 1}\nloss: {beta: 0.1}\n")
    two.write_text("train:\n  seed: 2\nmodel:\n")
    config = load_config([one, two], ["train.seed=3", "rollout.max_num_seqs=4"])
    assert (config.train.steps, config.train.seed, config.loss.beta, config.rollout.max_num_seqs) == (5, 3, 0.1, 4)
    assert load_config([two, one]).train.seed == 1
    assert load_config([]) == Config()


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optim.learning_rate=1e-5", 1e-5),
        ("eval.data=[gsm8k, math500=files/math.jsonl]", ["gsm8k", "math500=files/math.jsonl"]),
        ("data.limit=", None),
        ("rollout.sleep=false", False),
        ("data.path=a=b.jsonl", "a=b.jsonl"),
    ],
)
def test_overrides_have_the_types_of_their_keys(override, expected):
    value = flat(load_config([], [override]))[override.partition("=")[0]]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("override", "end"),
    [
        ("loss.epsilon_hi=1", "; did you mean loss.epsilon_high?"),
        ("train.learning_rate=1", "; did you mean optim.learning_rate?"),
        ("optm.learning_rate=1", "; did you mean optim?"),
        ("model.name.x=1", "; did you mean model.name?"),
        ("epsilon_high=0.3", "; did you mean loss.epsilon_high?"),
        ("loss.eps=0.3", "; did you mean loss.epsilon?"),
        ("optim.lr=1", "optim.lr: unknown key; the keys of optim are " + ", ".join(Config().optim.model_dump())),
        ("quux.zzz=1", "quux: unknown section; sections are " + ", ".join(Config.model_fields)),
    ],
)
def test_unknown_key_names_the_nearest_key_or_all(override, end):
    assert rejection(override).endswith(end)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.beta", "override 'loss.beta': expected section.key=value"),
        ("=1", "override '=1': expected section.key=value"),
        (".=1", "override '.=1': expected section.key=value"),
        ("loss.beta=[1", "override 'loss.beta=[1': the value is not valid YAML"),
        ("data.system_prompt=You are #1", "override 'data.system_prompt=You are #1': # begins a comment; quote"),
        ("model.compile=!!bool x", "override 'model.compile=!!bool x': the value is not valid YAML"),
        (f"train.seed={'9' * 5000}", "override 'train.seed=9999"),
    ],
)
def test_malformed_override_is_rejected(override, message):
    assert rejection(override).startswith(message) and len(rejection(override)) < 120


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
        (b"train: {seed: !!bool x}\n", "invalid YAML"),
        (b"loss: 1\n", "expected sections"),
        (b"loss: false\n", "expected sections"),
        (b"- loss\n", "expected sections"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
    ],
)
def test_invalid_file_is_named_with_the_line(tmp_path, content, problem):
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    assert rejection(files=[file]).startswith(f"{file}: {problem}")


def test_paths_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    keys = ("model.name", "data.path", "data.template", "train.output_dir")
    words = [*(f"{key}=~/x" for key in keys), "eval.data=[A=~/x, ~/y, z~]", "data.decontaminate=[~/x]"]
    config = load_config([], words)
    assert {str(flat(config)[key]) for key in keys} == {"/home/ada/x"}
    assert (config.eval.data, config.data.decontaminate) == (["A=/home/ada/x", "/home/ada/y", "z~"], ["/home/ada/x"])


@pytest.mark.parametrize("file", [*BASES, *SFT, *METHODS], ids=lambda path: path.stem)
def test_dump_loads_as_the_same_configuration(tmp_path, file):
    """In the order of the schema."""
    config = load_config([file], ["tracker.mirrors=[wandb]", "data.limit=7"])
    dump_config(config, tmp_path / "config.yaml")
    assert load_config([tmp_path / "config.yaml"]) == config
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert [(s, list(values)) for s, values in written.items()] == [(s, list(dict(values))) for s, values in Config()]


def test_loading_needs_no_torch():
    """Of every shipped file, alone and over another, with the rules of packages and of a user's own that they name."""
    files = [str(file) for file in (*BASES, *SFT)]
    code = (
        "import sys\n"
        "from d3s.config.load import load_config\n"
        f"for files in {[*([file] for file in files), *([files[0], str(file)] for file in METHODS)]}:\n"
        "    load_config(files, ['reward.functions=[no_such_module:f]'])\n"
        "sys.exit(10 * bool({'torch', 'numpy', 'd3s.methods', 'no_such_module'} & set(sys.modules)))"
    )
    run_python(code, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "refusal", "heavy"),
    [
        (
            "train.py --config tiny configs/method/podz.yaml",
            "configs/method/podz.yaml: cannot be read (No such file or directory) (did you mean 'method/pods'?)",
            {"torch", "transformers", "numpy"},
        ),
        ("eval.py --model m --data d --n 4 --k 8", "--k: got pass@8, expected at most", {"torch", "transformers"}),
    ],
)
def test_refusals_are_one_line_before_heavy_imports(command, refusal, heavy):
    """With exit code 2, before torch is imported."""
    code = (
        f"import os, runpy, sys; sys.argv = {command.split()}; os._exit = sys.exit\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end:\n"
        f"    sys.exit(end.code + 10 * bool({heavy} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith(f"error: {refusal}")
