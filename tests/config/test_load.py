"""Configurations: merging, overrides, what is refused and in which words, dumps, the shipped files, and their page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import dump_config, load_config
from d3s.config.reference import document
from d3s.config.schema import Config
from d3s.downsampling import schedule_at

ROOT = Path(__file__).resolve().parents[2]
BASES = sorted((ROOT / "configs").glob("*.yaml"))
METHODS = sorted((ROOT / "configs/method").glob("*.yaml"))
ACCELERATE = sorted((ROOT / "configs/accelerate").glob("*.yaml"))
ALL = {"schedule.n_init": None, "schedule.n_final": None, "schedule.k_init": 1.0, "schedule.k_final": 1.0}
DIFFERENCES = {  # from the defaults, which are D3S; what each paper says, see docs/method.md
    "grpo": ALL | {"loss.normalizer": "sequence"},
    "gspo": ALL
    | {
        "loss.kind": "gspo",
        "loss.epsilon": 3e-4,
        "loss.epsilon_high": 4e-4,
        "loss.normalizer": "sequence",
        "optim.num_minibatches": 4,
    },
    "dr_grpo": ALL | {"reward.scale_rewards": "none", "loss.normalizer": "constant"},
    "dapo": ALL
    | {
        "rollout.dynamic_sampling": True,
        "reward.overlong_buffer": 205,  # 4096 / 20480 of 1024
        "reward.overlong_penalty": 0.5,  # of 1 - 0, as 1 is of 1 - -1
        "optim.num_minibatches": 4,
        "loss.epsilon_high": 0.28,
        "loss.overlong_filtering": True,
    },
    "cispo": ALL
    | {
        "loss.kind": "cispo",
        "loss.epsilon": 1.0,
        "loss.epsilon_high": 5.0,
        "loss.epsilon_high_is_bound": True,
        "optim.num_minibatches": 4,
    },
    "pods": {
        "selector.cross_group": False,
        "selector.normalize": "after",
        "schedule.n_shape": "constant",
        "schedule.k_init": 1.0,
        "schedule.k_final": 1.0,
        "loss.normalizer": "sequence",
    },
    "d1s": {
        "selector.cross_group": False,
        "schedule.n_shape": "constant",
        "schedule.k_init": 1.0,
        "schedule.k_final": 1.0,
    },
    "d1s_cross": {"schedule.n_shape": "constant", "schedule.k_init": 1.0, "schedule.k_final": 1.0},
    "d2s": {"schedule.shape": "constant"},
    "d3s": {},
    "d3s_i": {"selector.cross_group": False},
    "random": {"selector.rollouts": "random", "selector.tokens": "random"},
}


def flat(config: Config) -> dict:
    """{"section.key": value}."""
    return {f"{s}.{key}": value for s, fields in config.model_dump().items() for key, value in fields.items()}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def refusal(*overrides: str, files: list = ()) -> str:
    """The sentence with which a configuration is refused."""
    with pytest.raises(UserError) as refused:
        load_config(files, list(overrides))
    assert "\n" not in str(refused.value)
    return str(refused.value)


# --- merging ---------------------------------------------------------------------------------------------------------


def test_later_files_override_earlier_ones_key_by_key_and_overrides_come_last(tmp_path):
    one = write(tmp_path / "one.yaml", "train: {steps: 5, seed: 1}\nloss: {beta: 0.1}\n")
    two = write(tmp_path / "two.yaml", "train:\n  seed: 2\nmodel:\n")
    config = load_config([one, two], ["train.seed=3", "rollout.top_k=4"])
    assert (config.train.steps, config.train.seed, config.loss.beta, config.rollout.top_k) == (5, 3, 0.1, 4)
    assert load_config([two, one]).train.seed == 1
    assert load_config([]) == Config()


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("optim.learning_rate=1e-5", 1e-5),  # YAML 1.1 reads it as text
        ("optim.betas=[0.9, 0.95]", (0.9, 0.95)),
        ("eval.k=[1, 2, 4]", [1, 2, 4]),
        ("eval.data=[gsm8k, math500=files/math.jsonl]", ["gsm8k", "math500=files/math.jsonl"]),
        ("schedule.n_init=null", None),
        ("data.limit=", None),
        ("selector.cross_group=false", False),
        ("selector.cross_group=no", False),
        ("tracker.wandb=off", "off"),  # YAML 1.1 reads it as false
        ("data.path=synthetic:countdown", "synthetic:countdown"),
        ("data.path=a=b.jsonl", "a=b.jsonl"),
        ("train.output_dir=runs/x", Path("runs/x")),
        ("loss.epsilon_high=.28", 0.28),
    ],
)
def test_overrides_have_the_types_of_their_keys(override, value):
    found = flat(load_config([], [override]))[override.partition("=")[0]]
    assert found == value
    assert type(found) is type(value)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("loss.epsilon_hi", "loss.epsilon_high"),
        ("optim.lerning_rate", "optim.learning_rate"),
        ("train.learning_rate", "optim.learning_rate"),
        ("eval.temprature", "eval.temperature"),
        ("rollout.temp", "rollout.temperature"),
        ("selector.crossgroup", "selector.cross_group"),
        ("optm.learning_rate", "optim"),
        ("model.name.x", "model.name"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_one(key, meant):
    assert refusal(f"{key}=1").endswith(f"did you mean {meant}?")


def test_an_unknown_key_like_no_other_is_answered_with_what_there_is():
    assert refusal("optim.lr=1").endswith("the keys of optim are " + ", ".join(Config().optim.model_dump()))
    assert refusal("quux.zzz=1").endswith("sections are " + ", ".join(Config.model_fields))
    assert "did you mean loss.epsilon_high?" in refusal("epsilon_high=0.3")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rollout.temperature=0.001"], ["rollout.temperature is 0.001", "greater than or equal to 0.01"]),
        (["eval.temperature=0.001"], ["eval.temperature is 0.001", "must be 0 or at least 0.01"]),
        (['train.output_dir="a\\0b"'], ["train.output_dir is 'a\\x00b'", "without a zero byte"]),
        (['eval.data=["\\ud800"]'], ["eval.data is '\\ud800'", "must be Unicode text"]),
        (["schedule.n_final=33"], ["schedule.n_final is 33", "rollout.num_generations = 32"]),
        (["rollout.num_generations=4"], ["schedule.n_init is 8", "schedule.n_final is 32", "= 4"]),
        (["schedule.n_init=1"], ["schedule.n_init is 1", "greater than or equal to 2", "null"]),
        (["schedule.n_init=all"], ["schedule.n_init is 'all'", "integer", "or null"]),
        (["schedule.k_init=0"], ["schedule.k_init is 0", "greater than 0"]),
        (["schedule.k_final=1.01"], ["schedule.k_final is 1.01", "less than or equal to 1"]),
        (["schedule.k_final=nan"], ["schedule.k_final"]),
        (["schedule.k_final=.nan"], ["schedule.k_final is nan", "finite"]),
        (["rollout.num_generations=1"], ["rollout.num_generations is 1", "greater than or equal to 2"]),
        (["optim.learning_rate=-1e-6"], ["optim.learning_rate is '-1e-6'", "greater than 0"]),
        (["optim.learning_rate=.inf"], ["optim.learning_rate is inf", "finite"]),
        (["schedule.shape=linaer"], ["schedule.shape is 'linaer'", "'cosine'", "did you mean 'linear'?"]),
        (["schedule.n_init=32", "schedule.n_final=8"], ["n_init is 32 and", "n_final 8", "n_shape: constant"]),
        (["schedule.n_init=null", "schedule.n_final=8"], ["n_init is 32 and", "n_final 8"]),
        (["schedule.k_init=0.5"], ["k_init is 0.5 and", "k_final 0.2"]),
        (["optim.warmup_steps=100"], ["optim.warmup_steps is 100", "train.steps = 100"]),
        (["optim.num_minibatches=129"], ["num_minibatches is 129", "128 rollouts"]),  # 16 prompts x 8
        (["eval.k=[1, 16]"], ["eval.k contains 16", "eval.n = 8"]),
        (["eval.k=[]"], ["eval.k is []", "at least 1"]),
        (["eval.k=[0]"], ["eval.k.0 is 0", "greater than or equal to 1"]),
        (["selector.normalize=after"], ["selector.cross_group: false"]),
        (["selector.cross_share=0.5", "selector.cross_group=false"], ["selector.cross_share", "cross_group: true"]),
        (["reward.overlong_buffer=2000"], ["reward.overlong_buffer is 2000", "= 1024"]),
        (["reward.function=length"], ["reward.function is 'length'", "module:function"]),
        (["loss.engine_correction=truncate", "loss.old_logprobs=engine"], ["loss.old_logprobs: actor"]),
        (["loss.engine_correction=truncate", "rollout.top_p=0.9"], ["engine_correction", "rollout.top_p: 1"]),
        (["loss.old_logprobs=engine", "rollout.top_k=20"], ["loss.old_logprobs: engine", "rollout.top_k: -1"]),
        (["loss.epsilon_high_is_bound=true"], ["loss.epsilon_high of at least 1"]),
        (["loss.epsilon=1.5"], ["loss.epsilon is 1.5", "less than or equal to 1"]),
        (["train.seed=-1"], ["train.seed is -1"]),
        (["train.steps=0"], ["train.steps is 0"]),
        (["train.steps=many"], ["train.steps is 'many'", "integer"]),
        (["train.steps=true"], ["train.steps is True", "integer"]),
        (["train.steps=3.0"], ["train.steps is 3.0", "integer"]),
        (["train.steps='3'"], ["train.steps is '3'", "integer"]),
        (["train.steps=999999999999999999999999"], ["train.steps is 9999", "less than or equal to 1000000"]),
        ([f"train.seed={'9' * 4000}"], ["train.seed is 9999", "less than 2147483648"]),
        ([f"train.seed={'9' * 5000}"], ["'train.seed=9999", "not valid YAML"]),
        (["train.prompts_per_step=1000000001"], ["less than or equal to 1000000000"]),
        (["train.collective_timeout_s=1e300"], ["collective_timeout_s is '1e300'", "1000000"]),
        (["optim.learning_rate=true"], ["optim.learning_rate is True", "must be a number"]),
        (["optim.betas=[0.9, false]"], ["optim.betas.1 is False", "must be a number"]),
        (["optim.betas=[0.9]"], ["optim.betas is [0.9]", "must be a list of two numbers"]),
        (["optim.betas=0.9"], ["optim.betas is 0.9", "must be a list of two numbers"]),
        (["optim.betas=[0.9, 0.9, 0.9]"], ["optim.betas is [0.9, 0.9, 0.9]", "must have at most 2 items"]),
        (["rollout.sleep=1"], ["rollout.sleep is 1", "boolean"]),
        (["train.output_dir=null"], ["train.output_dir is None, must be a path"]),
        (["rollout.servers=[http://one:8000]"], ["rollout.servers needs selector.entropy_source: actor"]),
        (["rollout.servers=[one:8000]", "selector.entropy_source=actor"], ["'one:8000'", "http://HOST:PORT"]),
        (["rollout.servers=[http://a:1, http://a:1]", "selector.entropy_source=actor"], ["an address twice"]),
        (
            ["rollout.servers=[http://a:1]", "selector.entropy_source=actor", "rollout.tensor_parallel_size=2"],
            ["rollout.tensor_parallel_size must be 1"],
        ),
        (["rollout.tensor_parallel_size=2", "rollout.engine=transformers"], ["rollout.engine: vllm"]),
        (["rollout.seeds=engine", "rollout.engine=transformers"], ["rollout.seeds: engine needs rollout.engine: vllm"]),
        (["rollout.engine=vlm"], ["rollout.engine is 'vlm'", "did you mean 'vllm'?"]),
        (["model.name=[1]"], ["model.name is [1]", "string"]),
        (["loss.beta"], ["'loss.beta'", "section.key=value"]),
        (["=1"], ["section.key=value"]),
        (["loss.beta=[1"], ["'loss.beta=[1'", "YAML"]),
        (["loss.beta=2024-13-45"], ["'loss.beta=2024-13-45'", "YAML"]),
        (["loss.beta={[1]: 2}"], ["'loss.beta={[1]: 2}'", "YAML"]),
    ],
)
def test_an_impossible_value_is_refused_with_key_value_and_what_is_allowed(overrides, said):
    message = refusal(*overrides)
    assert all(words in message for words in said), message


def test_all_problems_are_named_at_once():
    message = refusal("optim.learning_rate=0", "los.beta=1", "train.steps=0")
    assert all(key in message for key in ("optim.learning_rate", "los", "train.steps"))
    message = refusal("schedule.n_final=64", "optim.warmup_steps=200", "eval.k=[9]")
    assert all(key in message for key in ("schedule.n_final", "optim.warmup_steps", "eval.k"))


def test_values_at_the_edge_of_what_is_allowed_pass():
    edge = ["schedule.n_init=2", "schedule.n_final=2", "rollout.num_generations=2", "schedule.k_final=1", "eval.n=8"]
    load_config([], [*edge, "optim.num_minibatches=32", "optim.warmup_steps=99"])
    load_config([], ["schedule.n_init=16", "schedule.n_final=8", "schedule.n_shape=constant"])
    load_config([], ["reward.overlong_buffer=1024"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"loss: [1\n", "line 2, is not valid YAML"),
        (b"loss:\n  beta: 1\n  beta: 2\n", "line 3, is not valid YAML: beta appears twice"),
        (b"loss: {beta: 1}\ntrain: {seed: 1}\nloss: {kind: grpo}\n", "line 3, is not valid YAML: loss appears twice"),
        (b"loss:\n  ? [a, b]\n  : 1\n", "line 2, is not valid YAML: a key must be plain text"),
        (b"loss:\n  1: 2\n", "line 2, is not valid YAML: a key must be plain text"),
        (b"train: {seed: 2024-13-45}\n", "is not valid YAML"),
        (b"loss: 1\n", "must hold sections"),
        (b"- loss\n", "must hold sections"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_named_with_the_line(tmp_path, content, said):
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    message = refusal(files=[file])
    assert str(file) in message
    assert said in message


def test_a_missing_file_is_named(tmp_path):
    assert refusal(files=[tmp_path / "no.yaml"]).endswith("no.yaml cannot be read: No such file or directory")
    assert refusal(files=[tmp_path]).endswith("Is a directory")


# --- dumps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=lambda path: path.stem)
@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
def test_a_dump_is_a_configuration_file_of_the_same_run(tmp_path, base, method):
    config = load_config([base, method], ["optim.betas=[0.9, 0.95]", "tracker.wandb=off", "data.limit=7"])
    dump_config(config, tmp_path / "config.yaml")
    assert load_config([tmp_path / "config.yaml"]) == config


@given(st.floats(min_value=5e-324, max_value=1e300), st.floats(0, 1, exclude_max=True), st.text(max_size=20))
def test_numbers_and_text_survive_a_dump_exactly(rate, beta, name):
    config = Config.model_validate({"optim": {"learning_rate": rate, "betas": [beta, beta]}, "model": {"name": name}})
    written = yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))
    assert Config.model_validate(written) == config


# --- the shipped files -----------------------------------------------------------------------------------------------


def test_every_method_is_shipped():
    assert {path.stem for path in METHODS} == set(DIFFERENCES)
    assert all(path.read_text().startswith("# ") and "arXiv" in path.read_text() for path in METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda path: path.stem)
def test_an_overlay_changes_what_its_paper_says_and_nothing_else(method):
    default, changed = flat(Config()), flat(load_config([method]))
    assert {key: value for key, value in changed.items() if value != default[key]} == DIFFERENCES[method.stem]


@pytest.mark.parametrize("method", METHODS, ids=lambda path: path.stem)
@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
def test_every_overlay_makes_its_method_of_every_base(base, method):
    plain, config = load_config([base]), load_config([base, method])
    expected = DIFFERENCES[method.stem] | {"selector.cross_group": method.stem in ("d1s_cross", "d2s", "d3s")}
    if "reward.overlong_buffer" in expected:
        expected["reward.overlong_buffer"] = round(0.2 * config.rollout.max_completion_length)
    if method.stem not in ("pods", "d1s", "d1s_cross", "d2s", "d3s", "d3s_i"):
        del expected["selector.cross_group"]  # everything is kept, or chance chooses as the base would
    resolved = flat(config)
    assert {key: resolved[key] for key in expected} == expected
    g, n = config.rollout.num_generations, plain.schedule.n_init
    first, last = schedule_at(config, 0), schedule_at(config, config.train.steps - 1)
    if method.stem in ("pods", "d1s", "d1s_cross"):
        assert first == last == (n, 1.0)
    elif method.stem == "d2s":
        assert first == last == (n, plain.schedule.k_init)
    elif method.stem in ("d3s", "d3s_i", "random"):
        assert (first, last) == ((n, plain.schedule.k_init), (g, plain.schedule.k_final))
    else:
        assert first == last == (g, 1.0)


def test_the_defaults_are_the_schedule_of_the_paper():
    steps = Config().train.steps
    assert schedule_at(Config(), 0) == (8, 0.05)
    assert schedule_at(Config(), steps - 1) == (32, pytest.approx(0.20))


@pytest.mark.parametrize("file", ACCELERATE, ids=lambda path: path.stem)
def test_accelerate_launches_what_the_file_says(file, monkeypatch):
    from accelerate import DeepSpeedPlugin
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    processes, machines, zero3, offload = {
        "cpu": (1, 1, False, "none"),
        "gpu1": (1, 1, False, "none"),
        "zero3_cpu": (2, 1, True, "none"),
        "zero3_8gpu": (8, 1, True, "none"),
        "zero3_8gpu_offload": (8, 1, True, "cpu"),
        "zero3_2nodes": (16, 2, True, "none"),
    }[file.stem]
    launched = []
    for launcher in ("deepspeed_launcher", "simple_launcher"):
        monkeypatch.setattr(launch, launcher, launched.append)
    launch.launch_command(launch.launch_command_parser().parse_args(["--config_file", str(file), "train.py"]))
    [args] = launched
    # none of its own: train.py hands model.dtype to accelerate
    assert "mixed_precision" not in yaml.safe_load(file.read_text())
    assert args.mixed_precision == "no"
    assert (args.num_processes, args.num_machines, bool(args.use_deepspeed)) == (processes, machines, zero3)
    assert bool(args.use_cpu) == ("cpu" in file.stem)
    if not zero3:
        return
    monkeypatch.setattr("accelerate.utils.launch.is_port_in_use", lambda port=None: False)  # whatever else runs here
    for name, value in prepare_deepspeed_cmd_env(args)[1].items():
        if name.startswith("ACCELERATE_"):
            monkeypatch.setenv(name, value)
    if machines == 2:  # torchrun on each node, as the comments in the file say
        assert (args.nnodes, args.nproc_per_node, args.node_rank) == ("2", "8", 0)
        assert args.rdzv_endpoint == "10.0.0.1:29500"
    zero = DeepSpeedPlugin().deepspeed_config["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["offload_optimizer"]["device"] == offload
    assert zero["offload_param"]["device"] == "none"


def test_the_precision_is_that_of_the_model_whatever_the_environment_says():
    code = (
        "from d3s.config.schema import Config; from d3s.distributed import start_accelerator; "
        "print(start_accelerator(Config()).mixed_precision)"
    )
    env = os.environ | {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true"}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert run.stdout.split() == ["no"], run.stderr


# --- the page --------------------------------------------------------------------------------------------------------


def test_every_key_is_documented_and_the_page_is_up_to_date():
    page = (ROOT / "docs/configuration.md").read_text()
    for section, field in Config.model_fields.items():
        for name, option in field.annotation.model_fields.items():
            assert option.description and option.description.rstrip().endswith((".", "…")), f"{section}.{name}"
            assert f"| `{section}.{name}` | " in page
    assert page == document(), "run: python -m d3s.config.reference > docs/configuration.md"


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["configs/tiny.yaml", "schedule.n_final=17"], "schedule.n_final is 17"),
        (["configs/tiny.yaml", "optim.learning_rate=-1"], "optim.learning_rate is -1"),
        (["configs/tiny.yaml", "schedule.k_init=0"], "schedule.k_init is 0"),
        (["configs/tiny.yaml", "rollout.num_generations=1"], "rollout.num_generations is 1"),
        (["configs/tiny.yaml", "loss.epsilonhigh=0.3"], "did you mean loss.epsilon_high?"),
        (["configs/tiny.yaml", "configs/method/podz.yaml"], "configs/method/podz.yaml cannot be read"),
        (["configs/tiny.yaml", "--dry-run", "train.steps=0"], "train.steps is 0"),
    ],
)
def test_the_command_line_answers_in_one_line_and_exits_with_2(words, said):
    run = subprocess.run(
        [sys.executable, "train.py", "--config", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1
    assert said in run.stderr


def test_a_configuration_is_checked_before_anything_heavy_is_imported():
    code = (
        "import sys; from d3s.config.load import load_config; load_config(['configs/tiny.yaml']);"
        "print({'torch', 'transformers', 'vllm', 'accelerate', 'numpy'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "set()", run.stderr
