"""Parameters of which every rank has a copy: what the actor asks of a way to place them on ranks.

Another way, such as the shards of zero3.py, derives from Copies and redefines what differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from d3s.common import UserError
from d3s.packing import dummy_micro_batch

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import Config
    from d3s.policy import Policy


class Copies:
    """Every rank has all parameters: one process, or DDP. Gradients stay on their rank until exchange_gradients."""

    def __init__(self, accelerator: Accelerator, config: Config) -> None:
        self.accelerator, self.max_grad_norm = accelerator, config.optim.max_grad_norm

    def prepare(self, policy: Policy, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
        """Wrap the policy and its optimizer for the launch. Returns both."""
        self.lm = policy.lm
        if self.accelerator.num_processes == 1:
            policy.accumulate_in_place()
        self.policy, self.optimizer = self.accelerator.prepare(policy, optimizer)
        return self.policy, self.optimizer

    def frozen(self, reference: nn.Module) -> nn.Module:
        """Place a model that is not trained."""
        return reference.to(self.accelerator.device)

    def micro_batch(self) -> AbstractContextManager:
        """Around forward and backward of a micro-batch."""
        return self.accelerator.no_sync(self.policy)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add gradients; `last` marks the last micro-batch of an optimizer step."""
        self.accelerator.backward(loss)

    def exchange_gradients(self) -> None:
        """Under DDP, average the gradients over the ranks, by a pass that adds 0 to them.

        If the last micro-batch did it, ranks would wait for one that runs out of memory there.
        """
        if self.accelerator.num_processes > 1:
            with self.accelerator.autocast():
                logprobs, _, _ = self.policy(dummy_micro_batch(), torch.zeros(0, dtype=torch.bool), temperature=1.0)
            self.accelerator.backward(logprobs.sum())

    def step(self, require_finite: Callable[[float], None]) -> float:
        """Clip gradients, make the optimizer step unless `require_finite` raises, zero gradients.

        Returns: the gradient norm before clipping.
        """
        norm = float(self.accelerator.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm))
        require_finite(norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def save(self, folder: Path) -> None:
        """Write weights and optimizer state into a checkpoint's directory. Collective."""
        if self.accelerator.is_main_process:
            save_state(self.lm, self.optimizer, folder)

    def load(self, folder: Path, saved_by: int) -> None:
        """Load what `save` wrote from `saved_by` ranks, on any number of ranks. Collective."""
        load_state(self.lm, self.optimizer, folder)


def save_state(lm: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Write trained weights and optimizer state as files of one process; of frozen weights only a checksum."""
    trained = {name: p.data for name, p in lm.named_parameters() if p.requires_grad}
    save_file(trained, folder / "model.safetensors", metadata={"frozen": frozen_checksum(lm)})
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")


def load_state(lm: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Load what save_state wrote.

    Raises: UserError for other frozen weights, ValueError or RuntimeError for trained ones of other names or shapes.
    """
    weights = load_file(folder / "model.safetensors")
    trained = {name: parameter for name, parameter in lm.named_parameters() if parameter.requires_grad}
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        frozen = (file.metadata() or {}).get("frozen", "")
    if weights.keys() != trained.keys():
        raise ValueError("the trained layers are others")
    if frozen != frozen_checksum(lm):
        raise UserError(
            f"{folder}: the adapter belongs to other frozen weights; resume with the model.name and model.dtype of "
            "that run"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(weights[name])
    optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True, map_location="cpu"))


def frozen_checksum(lm: torch.nn.Module) -> str:
    """A checksum of the frozen weights, "" if there are none.

    Sums of bit patterns depend neither on the order nor on the machine.
    """
    sums = []
    for name, parameter in lm.named_parameters():
        if not parameter.requires_grad:
            bits = parameter.detach().contiguous().view({2: torch.int16, 4: torch.int32}[parameter.element_size()])
            sums.append((name, list(parameter.shape), int(bits.sum(dtype=torch.int64))))
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest() if sums else ""
