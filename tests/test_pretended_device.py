"""The pretended device against what torch documents of a real one, and waits of the host in a step."""

import pytest
import torch

from tests.helpers.actors import make_actor, make_batch
from tests.helpers.pretended_device import DeviceMismatch, PretendedTensor, pretended_device

# --- the device ------------------------------------------------------------------------------------------------------

MIXED = {
    "sum": lambda device, host: device + host,
    "product": lambda device, host: device @ host,
    "rows": lambda device, host: device.index_select(0, host.argsort()),
    "index": lambda device, host: device[host.argsort()],
    "mask": lambda device, host: device[host > 1],
    "assignment": lambda device, host: device.__setitem__(host > 1, 0.0),
    "concatenation": lambda device, host: torch.cat([device, host]),
    "scalars": lambda device, host: torch.stack([device[0], host[0]]),
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
    "cpu": lambda x: x.cpu(),
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "list": lambda x: x.tolist(),
    "truth": lambda x: bool(x.any()),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "assignment": lambda x: x.__setitem__(x > 1, x.new_zeros(1)),
    "unique": lambda x: x.unique(),
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


def test_nothing_is_left_of_the_device():
    def functions():
        return torch.cuda.is_available, torch.cuda.Event, torch.autocast, torch.Generator, torch.is_autocast_enabled

    before = functions()
    with pretended_device():
        assert not set(before) & set(functions())
    assert functions() == before and torch.tensor([1.0]).is_cpu


# --- waits of the host ------------------------------------------------------------------------------------------------

# From (what, where) to how often; each copy of data that is not pinned is a wait.
OF_MICRO_BATCH = {
    ("copy to the device", "policy.Layout.of"): 2,
    ("copy to the device", "policy.Policy.forward"): 5,
    ("nonzero", "policy.Policy.forward"): 1,
    ("copy to the device", "actor/actor.Actor._loss"): 5,
    ("index by a mask", "actor/actor.Actor._loss"): 1,
}
OF_OPTIMIZER_STEP = {
    ("copy to the device", "actor/micro_batches.MicroBatches._on_all_ranks"): 1,
    ("_local_scalar_dense", "actor/micro_batches.MicroBatches._on_all_ranks"): 1,
    ("_local_scalar_dense", "actor/actor.Actor._require_finite"): 1,
    ("_local_scalar_dense", "actor/actor.Actor._step"): 1,
    ("copy to the host", "actor/actor.Actor._step"): 1,  # not on a real device: clipping asks C++ for the device
    ("copy to the host", "actor/tally.Tally.gathered"): 1,
}


@pytest.mark.parametrize("budget", [10_000, 1])
def test_an_update_waits_a_known_number_of_times(pretended, tied_model, budget):
    """In one micro-batch of all rollouts, and in one for each rollout that has a selected token."""
    actor, batch = make_actor(tied_model, f"train.max_tokens_per_microbatch={budget}"), make_batch()
    parts = 1 if budget > 1 else int((batch.counts_of(batch.selected) > 0).sum())
    pretended.waits.clear()
    actor.update(batch, 1e-3, torch.Generator())
    assert pretended.waits == {place: times * parts for place, times in OF_MICRO_BATCH.items()} | OF_OPTIMIZER_STEP
