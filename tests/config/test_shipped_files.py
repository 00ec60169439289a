"""The files in configs/: overlays against what each paper states, launch files against accelerate."""

import os
import subprocess
import sys

import pytest
import yaml

from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.schedule import schedule_at, schedule_bounds
from tests.helpers.configs import BASES, METHODS, ROOT, flat

ACCELERATE = sorted((ROOT / "configs/accelerate").glob("*.yaml"))
ALL = {"schedule.n_init": None, "schedule.n_final": None, "schedule.k_init": 1.0, "schedule.k_final": 1.0}
HALF = {"schedule.k_init": 0.5, "schedule.k_final": 0.5}
DIFFERENCES = {  # from the defaults, which are D3S; see docs/method.md for the papers
    "grpo": ALL | {"loss.normalizer": "sequence"},
    "gspo": ALL
    | {
        "loss.kind": "gspo",
        "loss.epsilon": 3e-4,
        "loss.epsilon_high": 4e-4,
        "loss.normalizer": "sequence",
        "optim.num_minibatches": 4,
    },
    "dr_grpo": ALL | {"reward.advantages": "none", "loss.normalizer": "constant"},
    "dapo": ALL
    | {
        "rollout.dynamic_sampling": True,
        "reward.overlong_buffer": 0.2,  # 4096 of 20480 tokens
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
    "d2s": {"schedule.n_shape": "constant", "schedule.k_shape": "constant"},
    "d3s": {},
    "d3s_i": {"selector.cross_group": False},
    "cppo": {
        "selector.rollouts": "d3s.methods.cppo:largest",
        "selector.cross_group": False,
        "schedule.n_shape": "constant",
        "schedule.k_init": 1.0,
        "schedule.k_final": 1.0,
        "loss.normalizer": "sequence",
    },
    "nat": ALL | HALF | {"selector.tokens": "d3s.methods.nat:nat", "loss.normalizer": "sequence"},
    "nat_prefix": ALL
    | HALF
    | {"selector.tokens": {"rule": "d3s.methods.nat:nat", "prefix": True}, "loss.normalizer": "sequence"},
    "maxrl": ALL | {"reward.advantages": "d3s.methods.maxrl:maxrl", "loss.normalizer": "sequence"},
    "pass_at_k": ALL
    | {
        "reward.advantages": {"rule": "d3s.methods.pass_at_k:pass_at_k", "k": 4},
        "loss.normalizer": "sequence",
    },
    "variance_mass": ALL
    | {
        "selector.rollouts": {"rule": "d3s.methods.ragen:variance_mass", "share": 0.9},
        "loss.normalizer": "sequence",
    },
    "d3s_two_stage": {"selector.rollouts": {"rule": "d3s.methods.two_stage:two_stage", "stage": 2}},
    "d3s_auto": {"schedule.follow": "d3s.methods.auto_share:AutoShare"},
    "d3s_coverage": {
        "schedule.follow": {"rule": "d3s.methods.coverage:Coverage", "n": 0.8},
        "schedule.n_init": 2,
        "schedule.n_final": None,
        "schedule.k_init": 0.2,
        "schedule.k_shape": "constant",
    },
    "d3s_plateau": {
        "schedule.follow": {"rule": "d3s.methods.plateau:Plateau", "patience": 2},
        "eval.every": 10,
    },
    "small_groups": {"rollout.num_generations": 8, "schedule.n_init": 2, "schedule.n_final": 8},
    "random": {"selector.rollouts": "random", "selector.tokens": "random"},
    "vade": {"data.order": {"rule": "d3s.methods.vade:Vade", "uniform_share": 0}},
    "mopps": {"data.order": {"rule": "d3s.methods.mopps:Mopps", "uniform_share": 0}},
    "latr": {"rollout.strategy": "d3s.methods.latr:LATR"},
    "gdpo": {"reward.advantages": "d3s.methods.gdpo:gdpo"},
    "spare_reachable": {"reward.shaper": "d3s.methods.step_shaper:spare_reachable"},
    "bcpg_nsa": ALL
    | {
        "reward.advantages": "none",
        "reward.shaper": "d3s.methods.bcpg_nsa:synthetic",
        "loss.normalizer": "sequence",
        "loss.beta": 0.001,
        "loss.kl_estimator": "k2",
    },
}


def test_every_method_is_shipped():
    assert {path.stem for path in METHODS} == set(DIFFERENCES)
    assert all(path.read_text().startswith("# ") and "arXiv" in path.read_text() for path in METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda path: path.stem)
def test_overlay_changes_only_what_its_paper_states(method):
    default, changed = flat(Config()), flat(load_config([method]))
    assert {key: value for key, value in changed.items() if value != default[key]} == DIFFERENCES[method.stem]


@pytest.mark.parametrize("method", METHODS, ids=lambda path: path.stem)
@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
def test_overlay_selects_its_method_on_every_base(base, method):
    plain, config = load_config([base]), load_config([base, method])
    pooled = ("d1s_cross", "d2s", "d3s", "d3s_auto", "d3s_two_stage", "d3s_coverage", "d3s_plateau", "small_groups")
    expected = DIFFERENCES[method.stem] | {"selector.cross_group": method.stem in pooled}
    if method.stem not in ("pods", "cppo", "d1s", "d3s_i", *pooled):
        del expected["selector.cross_group"]  # everything is kept, or the random control keeps the setting of the base
    resolved = flat(config)
    assert {key: resolved[key] for key in expected} == expected
    g, n = config.rollout.num_generations, plain.schedule.n_init
    first, last = schedule_at(config, 0), schedule_at(config, config.train.steps - 1)
    if method.stem in ("pods", "cppo", "d1s", "d1s_cross"):
        assert first == last == (n, 1.0)
    elif method.stem == "d2s":
        assert first == last == (n, plain.schedule.k_init)
    elif method.stem == "d3s_coverage":
        assert schedule_bounds(config) == ((2, g), (0.2, 0.2)) and first == last == (g, 0.2)
    elif method.stem == "small_groups":
        assert (first, last) == ((2, 0.05), (8, 0.2))
    elif method.stem == "d3s_plateau":
        assert schedule_bounds(config) == ((n, g), (0.05, 0.2))
    elif method.stem in ("d3s", "d3s_i", "d3s_auto", "d3s_two_stage"):  # N and K grow, whatever the base does
        assert (first, last) == ((n, 0.05), (g, 0.2))
    elif not any(key.startswith("schedule.") for key in DIFFERENCES[method.stem]):
        assert (first, last) == tuple(schedule_at(plain, step) for step in (0, config.train.steps - 1))
    elif method.stem in ("nat", "nat_prefix"):
        assert first == last == (g, 0.5)
    else:
        assert first == last == (g, 1.0)


@pytest.mark.parametrize("file", ACCELERATE, ids=lambda path: path.stem)
def test_accelerate_launches_as_the_file_states(file, monkeypatch):
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
    # no precision in the file: train.py passes model.dtype to accelerate
    assert "mixed_precision" not in yaml.safe_load(file.read_text())
    assert args.mixed_precision == "no"
    assert (args.num_processes, args.num_machines, bool(args.use_deepspeed)) == (processes, machines, zero3)
    assert bool(args.use_cpu) == ("cpu" in file.stem)
    if not zero3:
        return
    monkeypatch.setattr("accelerate.utils.launch.is_port_in_use", lambda port=None: False)  # ports of other programs
    for name, value in prepare_deepspeed_cmd_env(args)[1].items():
        if name.startswith("ACCELERATE_"):
            monkeypatch.setenv(name, value)
    if machines == 2:  # torchrun on each node, as described in the file
        assert (args.nnodes, args.nproc_per_node, args.node_rank) == ("2", "8", 0)
        assert args.rdzv_endpoint == "10.0.0.1:29500"
    zero = DeepSpeedPlugin().deepspeed_config["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["offload_optimizer"]["device"] == offload
    assert zero["offload_param"]["device"] == "none"


@pytest.mark.slow
def test_precision_is_that_of_model_dtype():
    code = (
        "from d3s.config.schema import Config; from d3s.distributed import start_accelerator; "
        "print(start_accelerator(Config()).mixed_precision)"
    )
    env = os.environ | {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true"}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert run.stdout.split() == ["no"], run.stderr
