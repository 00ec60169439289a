"""The files in configs/: the ends of each method's schedule, launch files against accelerate."""

import pytest
import yaml

from d3s.config.load import load_config
from d3s.schedule import schedule_at
from tests.helpers.configs import BASES, METHODS, ROOT

ACCELERATE = sorted((ROOT / "configs/accelerate").glob("*.yaml"))
# (N, K) in the first and the last step on a base with N_init n, N_final last and K_init k, for G responses
FULL = "grpo gspo cispo dapo dr_grpo maxrl pass_at_k variance_mass bcpg_nsa nonzero shrinkage"
ENDS = dict.fromkeys(FULL.split(), lambda g, n, last, k: ((g, 1.0), (g, 1.0)))
ENDS |= dict.fromkeys(["d3s", "d3s_i", "d3s_auto", "d3s_two_stage"], lambda g, n, last, k: ((n, 0.05), (last, 0.2)))
ENDS |= dict.fromkeys(["pods", "cppo", "d1s", "d1s_cross"], lambda g, n, last, k: ((n, 1.0), (n, 1.0)))
ENDS |= dict.fromkeys(["nat", "nat_prefix", "distill", "distill_tip"], lambda g, n, last, k: ((g, 0.5), (g, 0.5)))
ENDS |= {
    "distill_gap": lambda g, n, last, k: ((g, 0.05), (g, 0.05)),
    "d2s": lambda g, n, last, k: ((n, k), (n, k)),
    "small_groups": lambda g, n, last, k: ((2, 0.05), (8, 0.2)),
    "d3s_coverage": lambda g, n, last, k: ((g, 0.2), (g, 0.2)),  # what the rule follows is at most this
    "d3s_plateau": lambda g, n, last, k: ((last, 0.2), (last, 0.2)),
}
POOLED = {"d1s_cross", "d2s", "d3s", "d3s_auto", "d3s_two_stage", "d3s_coverage", "d3s_plateau"}
POOLED |= {"small_groups", "nonzero"}
WITHIN = {"pods", "cppo", "d1s", "d3s_i"}


@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
def test_overlays_select_their_method_on_every_base(base):
    """Whatever the base sets; an overlay that is not listed leaves the schedule and the scope of selection alone."""
    plain = load_config([base])
    assert set(ENDS) | POOLED | WITHIN <= {path.stem for path in METHODS}
    for method in METHODS:
        config, name = load_config([base, method]), method.stem
        ends = tuple(schedule_at(c, step) for c in (config, plain) for step in (0, c.train.steps - 1))
        shape, g = plain.schedule, config.rollout.num_generations
        own = name in ENDS and ENDS[name](g, shape.n_init, shape.n_final, shape.k_init)
        assert ends[:2] == (own or ends[2:]), name
        pooled = name in POOLED if name in POOLED | WITHIN else plain.selector.cross_share
        assert config.selector.cross_share == pooled, name


@pytest.mark.parametrize("file", ACCELERATE, ids=lambda path: path.stem)
def test_accelerate_launches_as_the_file_states(file, monkeypatch):
    from accelerate import DeepSpeedPlugin
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    sizes = {"cpu": (1, 1), "gpu1": (1, 1), "zero3_cpu": (2, 1), "zero3_8gpu": (8, 1), "zero3_8gpu_offload": (8, 1)}
    processes, machines = (sizes | {"zero3_2nodes": (16, 2)})[file.stem]
    zero3, offload = "zero3" in file.stem, "cpu" if "offload" in file.stem else "none"
    launched = []
    for launcher in ("deepspeed_launcher", "simple_launcher"):
        monkeypatch.setattr(launch, launcher, launched.append)
    launch.launch_command(launch.launch_command_parser().parse_args(["--config_file", str(file), "train.py"]))
    [args] = launched
    assert "mixed_precision" not in yaml.safe_load(file.read_text())  # train.py passes model.dtype to accelerate
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
    devices = zero["offload_optimizer"]["device"], zero["offload_param"]["device"]
    assert (zero["stage"], *devices) == (3, offload, "none")
