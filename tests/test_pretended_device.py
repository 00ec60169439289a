"""The pretended device against what torch documents of a real one, programs on it, and waits of the host in a step."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from d3s.config.load import load_config
from d3s.distributed import all_gather_arrays
from d3s.rollout import build_engine
from d3s.sft.trainer import SftTrainer
from tests.helpers.actors import make_actor, make_batch
from tests.helpers.command_line import lines, timeless
from tests.helpers.evaluations import call_eval
from tests.helpers.pretended_device import DeviceMismatch, PretendedTensor
from tests.helpers.training import EVALUATED, train

# --- the device ------------------------------------------------------------------------------------------------------


MIXED = {
    "sum": lambda device, host: device + host,
    "index": lambda device, host: device[host.argsort()],
    "mask": lambda device, host: device[host > 1],
    "assignment": lambda device, host: device.__setitem__(host > 1, 0.0),
    "concatenation": lambda device, host: torch.cat([device, host]),
    "target": lambda device, host: host.add_(device),
    "into a scalar": lambda device, host: host[0].add_(device[0]),
    "numpy": lambda device, host: device.numpy(),
    "generator": lambda device, host: torch.rand(2, device="cuda", generator=torch.Generator()),
}


@pytest.mark.parametrize("operation", MIXED)
def test_device_and_host_do_not_mix(pretended, operation):
    host = torch.arange(3.0)
    with pytest.raises((DeviceMismatch, TypeError), match=r"cuda:0"):
        MIXED[operation](host.to("cuda"), host)


WAITS = {
    "to": lambda x: x.to("cpu"),
    "item": lambda x: x.sum().item(),
    "list": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "assignment": lambda x: x.__setitem__(x > 1, x.new_zeros(1)),
    "equal": lambda x: torch.equal(x, x),
    "repeat": lambda x: x.repeat_interleave(x.long()),
    "copy": lambda x: torch.empty(3).copy_(x),
    "to the device": lambda x: torch.ones(3).to(x.device),
    "created from a list": lambda x: torch.tensor([1.0], device=x.device),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "synchronize": lambda x: torch.cuda.synchronize(),
}
FREE = {
    "arithmetic": lambda x: (2 * x + torch.tensor(1.0)).softmax(0) @ x,
    "index": lambda x: x[x.argsort()][1:],
    "creation": lambda x: (x.new_zeros(3), torch.ones(3, device="cuda"), torch.zeros_like(x)),
    "mask without a new size": lambda x: x.masked_fill(x > 1, 0.0),
    "same device": lambda x: x.to("cuda").to(torch.float64),
    "stream": lambda x: torch.cuda.Event().record(torch.cuda.current_stream()),
}


@pytest.mark.parametrize("operation", [*WAITS, *FREE])
def test_waits_of_the_host_are_counted(pretended, operation):
    x = torch.arange(3.0).to("cuda")
    pretended.waits.clear()
    result = (WAITS | FREE)[operation](x)
    assert pretended.waits.total() == (operation in WAITS)
    if operation in FREE and isinstance(result, torch.Tensor):
        assert type(result) is PretendedTensor and result.device == torch.device("cuda", 0)


# --- waits of the host ------------------------------------------------------------------------------------------------

# From (what, where) to how often; each copy of data that is not pinned is a wait.
OF_MICRO_BATCH = {
    ("copy to the device", "policy.Layout.of"): 2,
    ("copy to the device", "policy.Policy.forward"): 3,
    ("copy to the device", "policy.Policy._hidden"): 2,
    ("copy to the device", "actor/actor.Actor._loss"): 4,
}
OF_OPTIMIZER_STEP = {
    ("_local_scalar_dense", "actor/micro_batches.MicroBatches._fits_everywhere"): 1,
    ("_local_scalar_dense", "actor/actor.Actor._optimizer_step"): 1,
    ("_local_scalar_dense", "actor/copies.Copies.step"): 1,
    ("copy to the host", "actor/copies.Copies.step"): 1,  # not on a real device: clipping asks C++ for the device
    ("copy to the host", "actor/micro_batches.Tally.gathered"): 1,
}


@pytest.mark.parametrize("budget", [10_000, 1])
def test_an_update_waits_a_known_number_of_times(pretended, tied_model, budget):
    """In one micro-batch of all rollouts, and in one for each rollout that has a selected token."""
    actor, batch = make_actor(tied_model, f"train.max_tokens_per_microbatch={budget}"), make_batch()
    parts = 1 if budget > 1 else int((batch.counts_of(batch.selected) > 0).sum())
    pretended.waits.clear()
    actor.update(batch, 1e-3, torch.Generator())
    assert pretended.waits == {place: times * parts for place, times in OF_MICRO_BATCH.items()} | OF_OPTIMIZER_STEP


# --- programs ---------------------------------------------------------------------------------------------------------


def test_training_and_evaluation_run_on_the_device(pretended, tied_model, tmp_path):
    """Two steps of every pass, a profile, a checkpoint after each, and the model's evaluation, resumed in between."""
    options = [
        "train.steps=2", "train.prompts_per_step=2", "rollout.num_generations=4", "rollout.max_completion_length=6",
        "schedule.n_init=2", "schedule.n_final=4", "loss.beta=0.1", "loss.engine_correction=truncate",
        "selector.entropy_source=actor", "loss.old_logprobs=actor", "optim.num_minibatches=2", "model.dtype=bfloat16",
        "model.gradient_checkpointing=auto", "rollout.stop=[end]",
        "train.profile_steps=[2]", "checkpoint.every=1", "eval.every=2", *EVALUATED,
    ]  # fmt: skip
    _, metrics = train(tied_model, tmp_path / "run", overrides=options)
    assert [line["memory/update_gb"] for line in metrics] == [0.0, 0.0]  # of the device, not of the process
    profile = (tmp_path / "run" / "profile").iterdir()
    assert sorted(path.name for path in profile) == ["step_000002_rank0.json.gz", "step_000002_rank0.txt"]
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    checkpoint = tmp_path / "again" / "checkpoints" / "step_000001"
    _, again = train(tied_model, tmp_path / "again", overrides=options, checkpoint=checkpoint)
    assert timeless(again[-1:]) == timeless(metrics[-1:])
    call_eval("--run", tmp_path / "run", "--output", tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["results"][0]["right"] == lines(tmp_path / "run" / "eval.jsonl")[-1]["right"]


def test_arrays_of_other_ranks_arrive_on_the_device(pretended, monkeypatch):
    """NCCL takes tensors of the device alone; two ranks have the same array."""

    def all_gather(received, own):
        assert all(type(tensor) is PretendedTensor for tensor in (*received, own))
        for row in received:
            row.copy_(own)

    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    monkeypatch.setattr("d3s.distributed.all_gather_objects", lambda items, accelerator: 2 * items)
    ranks = SimpleNamespace(num_processes=2, device=torch.device("cuda", 0))
    assert [row.tolist() for row in all_gather_arrays(np.arange(3), ranks)] == [[0, 1, 2]] * 2


def test_engine_holds_its_model_on_the_device(pretended, tied_model):
    rollout = load_config([], ["rollout.engine=transformers"]).rollout
    engine = build_engine(str(tied_model), rollout, dtype="float32", max_model_len=64, seed=0)
    assert all(type(p) is PretendedTensor for p in engine._model.parameters())


def test_supervised_training_runs_on_the_device(pretended, tied_model, tmp_path):
    options = [
        f"model.name={tied_model}", f"train.output_dir={tmp_path}", "train.steps=2", "optim.warmup_steps=0",
        "data.limit=16", "train.prompts_per_step=8", "sft.held_out=0.25", "eval.every=1",
    ]  # fmt: skip
    trainer = SftTrainer(load_config(["configs/sft.yaml", "configs/sft_q_tuning.yaml"], options))
    assert trainer.train() == 0
    trainer.close()
    assert all(type(p) is PretendedTensor for p in trainer.actor.lm.parameters())
