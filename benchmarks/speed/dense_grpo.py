"""GRPO's update as it is ordinarily done, to compare with: everything padded, every token computed, all logits at once.

Not used by the trainer. No chunked head, no packing, no choice of rows: a scoring pass over all rollouts for the old
log-probabilities, then log-probabilities and entropies of every response token from whole logits. Padding is on the
right and no mask is passed: causal attention does not see it, and a flash kernel may run.
"""

import torch
from torch import Tensor, nn


class DenseGrpo:
    """The model, its optimizer, and one optimizer step over a batch of rollouts."""

    def __init__(self, model: nn.Module, micro_batch: int, dtype: str = "float32") -> None:
        """A transformers model; dtype is that of the forward and backward pass; micro_batch in rollouts."""
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
        self.micro_batch, self.device, self.dtype = micro_batch, model.device, getattr(torch, dtype)

    def update(self, prompts: list[list[int]], responses: list[list[int]], advantages: Tensor) -> float:
        """One step on all rollouts; advantages [B]. Returns the loss: the mean of the rollouts' token means."""
        ids, rows, mask = self._padded(prompts, responses)
        parts = [slice(i, i + self.micro_batch) for i in range(0, len(ids), self.micro_batch)]
        with torch.no_grad():
            old = torch.cat([self._logprobs(ids[part], rows[part])[0] for part in parts])
        advantages = advantages.to(self.device)
        total = 0.0
        for part in parts:
            logprobs, entropies = self._logprobs(ids[part], rows[part])
            counted = mask[part]
            ratio = (logprobs - old[part]).exp()
            gain = advantages[part, None]
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
            loss = ((loss * counted).sum(1) / counted.sum(1)).sum() / len(ids)
            loss.backward()
            total += loss.item()
            self.entropy = ((entropies * counted).sum() / counted.sum()).item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    def _padded(self, prompts: list[list[int]], responses: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """ids [B, longest]; the place before every token of a response, and whether there is one, both [B, width]."""
        longest = max(len(p) + len(r) for p, r in zip(prompts, responses))
        width = max(map(len, responses))
        ids = [p + r + [0] * (longest - len(p) - len(r)) for p, r in zip(prompts, responses)]
        starts = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        lengths = torch.tensor([len(r) for r in responses], device=self.device)
        offsets = torch.arange(width, device=self.device)
        mask = offsets < lengths[:, None]
        return torch.tensor(ids, device=self.device), torch.where(mask, starts[:, None] + offsets, 0), mask.long()

    def _logprobs(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities, with gradient, and entropies of the tokens after these places, each [B, width]."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            hidden = hidden.gather(1, rows[..., None].expand(-1, -1, hidden.shape[-1]))
            logits = self.model.get_output_embeddings()(hidden)
        everything = logits.float().log_softmax(-1)
        with torch.no_grad():
            entropies = -(everything.exp() * everything).sum(-1)
        return everything.gather(2, ids.gather(1, rows + 1)[..., None])[..., 0], entropies
