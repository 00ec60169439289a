"""The stages of several cards: updates in forks on the CPU, ZeRO-3 there on two nodes; training on metrics by hand."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.gpu_check import several
from benchmarks.gpu_check.several import Result, compare
from benchmarks.tests.stages import not_held
from tests.helpers.command_line import ACCELERATE, finish, free_port
from tests.helpers.warm_python import start_fork

TWO_NODES = [*ACCELERATE, "--config_file", "configs/accelerate/zero3_2nodes.yaml", "--num_processes", "4"]
TWO_NODES += ["--main_process_ip", "127.0.0.1", "--main_process_port"]


def test_update_holds_on_ranks_and_nodes(monkeypatch):
    """Four ranks on two nodes gather weights inside a node; two ranks of one resume their checkpoint."""
    inside = {}

    def launch(command: list[str]) -> int:
        script = command[command.index("benchmarks/gpu_check/ranks.py") :]
        name = Path(script[2]).name
        port = str(free_port())
        nodes = [[*TWO_NODES, port, "--machine_rank", str(node), *script] for node in (0, 1)]
        for process in list(map(start_fork, nodes if name == "zero3" else [command])):
            code, output = finish(process)
            assert code == 0, output
        inside[name] = json.loads((Path(script[2]) / "record.json").read_text())["inside a node"]
        return 0

    monkeypatch.setattr(several, "launch", launch)
    rows = list(several.update("cpu", 600))
    assert not not_held(rows)
    resumed = [row.what for row in rows if " resumed by " in row.what]
    assert resumed == ["ddp: resumed by 1 of 2 ranks", "zero3: resumed by 2 of 4 ranks"]
    assert [name for name, node in inside.items() if node] == ["zero3"]


def test_failed_launches_are_noticed(monkeypatch):
    monkeypatch.setattr(several, "launch", lambda command: 1)
    assert not_held(several.update("cpu", 600)) == ["one process ends"]


def test_other_steps_are_noticed():
    def result(weights=1.0, selected=range(100), norm=1.0) -> Result:
        record = {"steps": [{"selected": list(selected), "grad_norm": norm, "seconds": 1.0}]}
        return Result(record, {"before w": torch.zeros(9), "after w": torch.full((9,), weights)})

    assert not not_held(compare("ddp", result(1.01, range(1, 101), 1.0005), result()))
    assert not_held(compare("ddp", result(0.97), result())) == ["ddp: distance of the weights to the way they went"]
    assert not_held(compare("ddp", result(norm=1.01), result())) == ["ddp: relative error of gradient norms"]
    assert not_held(compare("ddp", result(selected=range(98)), result())) == [
        "ddp: share of selected tokens that are the same"
    ]


@pytest.mark.parametrize(("vllm", "engines"), [(True, ["vllm", "vllm"]), (False, ["transformers"])])
def test_training_covers_each_engine(monkeypatch, vllm, engines):
    trained = []

    def train(folder: Path, *options: str, launcher: list[str]) -> tuple[int, list[dict]]:
        trained.append((launcher, options))
        return 0, [{"sync/mean_abs_dlogp": len(trained) - 1.0, "time/sync": 1.0, "time/step": 2.0}] * 3

    monkeypatch.setattr(several, "find_spec", lambda name: vllm or None)
    monkeypatch.setattr(several, "train", train)
    broken = not_held(several.training("cpu", 600))
    assert [option for _, options in trained for option in options if option.startswith("rollout.engine=")] == [
        f"rollout.engine={engine}" for engine in engines
    ]
    assert len(broken) == len(trained) - 1 and all("probe after a sync" in what for what in broken)
    assert "configs/accelerate/zero3_cpu.yaml" in trained[0][0]
    assert all("torch.distributed.run" in launcher for launcher, _ in trained[1:])
