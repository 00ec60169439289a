"""Random batches, actors in this process, the gradients of their optimizer steps, and what torch runs in them."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d3s.actor import Actor
from d3s.config.load import load_config
from d3s.packing import Batch
from d3s.tracking.metrics import update_metrics

SIZES = [(6, 7), (9, 1), (1, 5), (6, 16), (2, 2)]  # tokens of prompt and response

ONE, FEW = (f"train.max_tokens_per_microbatch={tokens}" for tokens in (1, 30))  # one rollout or two in a micro-batch
LOSS_CASES = [
    ["loss.kind=grpo", "loss.normalizer=all", "loss.epsilon_high=0.28", ONE],
    ["loss.kind=grpo", "loss.normalizer=constant", "rollout.temperature=0.7"],
    ["loss.kind=gspo", "loss.normalizer=sequence", "loss.epsilon=0.03", "loss.epsilon_high=0.04", FEW],
    ["loss.kind=gspo", "loss.normalizer=selected", "loss.epsilon=0.9", "rollout.temperature=0.7"],
    ["loss.kind=cispo", "loss.epsilon=1", "loss.epsilon_high=1.1"],
    ["loss.kind=grpo", "loss.beta=0.1", "loss.kl_estimator=k3", FEW],
    ["loss.kind=gspo", "loss.beta=0.1", "loss.kl_estimator=k2"],
    ["loss.kind=cispo", "loss.beta=0.1", "loss.kl_estimator=k3"],
]


def make_batch(sizes: list[tuple[int, int]] = SIZES, seed: int = 0, fraction: float = 0.4) -> Batch:
    """Random tokens and selection; prompts of equal length are equal.

    The second rollout has no selected token; the last but one none after its third.
    """
    g = torch.Generator().manual_seed(seed)
    prompts, responses = ([torch.randint(0, 257, (pair[i],), generator=g).tolist() for pair in sizes] for i in (0, 1))
    first = {len(prompt): prompt for prompt in reversed(prompts)}
    prompts = [first[len(prompt)] for prompt in prompts]
    lengths = torch.tensor([r for _, r in sizes])
    advantages = torch.randn(len(sizes), generator=g).repeat_interleave(lengths)
    total = len(advantages)
    batch = Batch(prompts, responses, advantages, -5 - torch.rand(total, generator=g), torch.rand(total, generator=g))
    batch.selected = torch.rand(total, generator=g) < fraction
    if len(sizes) > 1:
        batch.selected[batch.tokens_of(1)] = False
        batch.selected[batch.tokens_of(len(sizes) - 2).start + 3 : batch.tokens_of(len(sizes) - 2).stop] = False
    return batch


def tokens_to_run(batch: Batch, wanted: Tensor) -> int:
    """Tokens of equal prompts once, and of each response those before its last wanted token."""
    run = [(prompt, length) for prompt, length in zip(batch.prompts, batch.forward_lengths(wanted)) if length]
    return sum(map(len, {tuple(p) for p, _ in run})) + sum(length - len(p) for p, length in run)


def make_actor(path: Path, *overrides: str, teacher: str | None = None) -> Actor:
    """An actor whose gradients are not clipped, unless an override sets optim.max_grad_norm."""
    settings = ["rollout.max_completion_length=20", "optim.max_grad_norm=1e9", *overrides]
    return Actor(str(path), load_config([], settings), Accelerator(), max_length=64, teacher=teacher)


def update(actor: Actor, batch: Batch, learning_rate: float = 1e-3) -> tuple[dict[str, float], list[dict[str, Tensor]]]:
    """Update the policy. Return the metrics and the gradients of trained parameters in each optimizer step."""
    gradients = []
    optimizer = actor.optimizer.optimizer

    def copy_gradients(*_):
        trained = {name: p for name, p in actor.lm.named_parameters() if p.requires_grad}
        gradients.append({name: p.grad.to("cpu", copy=True) for name, p in trained.items()})

    handle = optimizer.register_step_pre_hook(copy_gradients)
    try:
        metrics = update_metrics(actor.update(batch, learning_rate, torch.Generator().manual_seed(0)))
    finally:
        handle.remove()
    return metrics, gradients


def copy_parameters(actor: Actor) -> dict[str, Tensor]:
    """A copy of every parameter, by name."""
    return {name: p.detach().clone() for name, p in actor.lm.named_parameters()}


def assert_bitwise_equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """The same names and, bit for bit, the same values."""
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


@contextmanager
def nothing_changes(actor: Actor) -> Iterator[None]:
    """Parameters and moments are the same afterwards, bit for bit, and no gradient is left."""
    before, moments = copy_parameters(actor), copy.deepcopy(actor.optimizer.state_dict()["state"])
    yield
    assert_bitwise_equal(copy_parameters(actor), before)
    for key, state in actor.optimizer.state_dict()["state"].items():
        assert_bitwise_equal(state, moments[key])
    assert all(p.grad is None or not p.grad.any() for p in actor.lm.parameters())


class Operations(TorchDispatchMode):
    """Calls `see(function, its arguments, the tensors of its result)` after each operation of torch."""

    def __init__(self, see: Callable[..., None]) -> None:
        super().__init__()
        self.see = see

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        self.see(function, args, [x for x in tree_leaves(result) if isinstance(x, Tensor)])
        return result
