"""A dense GRPO update for comparison: padded, every token computed, full logits.

No chunked head, no packing, no selection: a forward pass over all rollouts for the old log-probabilities, then
log-probabilities and entropies of every response token from the full logits. Padding is on the right and no mask is
passed: causal attention does not read it, and a flash kernel may run.
"""

import torch
from torch import Tensor, nn


class DenseGrpo:
    """The model, its optimizer, and one optimizer step over a batch of rollouts."""

    def __init__(self, model: nn.Module, micro_batch: int, dtype: str = "float32") -> None:
        """
        Args:
            model: a transformers causal language model
            micro_batch: rollouts per micro-batch
            dtype: of the forward and backward pass
        """
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
        self.micro_batch, self.device, self.dtype = micro_batch, model.device, getattr(torch, dtype)

    # L = -1/B sum_i 1/|y_i| sum_t min(r_it A_i, clip(r_it, 0.8, 1.2) A_i),   r_it = pi(y_it) / pi_old(y_it)
    def update(self, prompts: list[list[int]], responses: list[list[int]], advantages: Tensor) -> float:
        """Make one optimizer step on all rollouts, with advantages [B], and return the loss."""
        ids, rows, mask = self._pad(prompts, responses)
        parts = [slice(i, i + self.micro_batch) for i in range(0, len(ids), self.micro_batch)]
        with torch.no_grad():
            old_logprobs = torch.cat([self.token_logprobs(ids[part], rows[part])[0] for part in parts])
        advantages = advantages.to(self.device)
        total = 0.0
        for part in parts:
            logprobs, entropies = self.token_logprobs(ids[part], rows[part])
            part_mask, part_advantages = mask[part], advantages[part, None]
            ratio = (logprobs - old_logprobs[part]).exp()
            loss = -torch.min(ratio * part_advantages, ratio.clamp(0.8, 1.2) * part_advantages)
            loss = ((loss * part_mask).sum(1) / part_mask.sum(1)).sum() / len(ids)
            loss.backward()
            total += loss.item()
            self.entropy = ((entropies * part_mask).sum() / part_mask.sum()).item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    def entropies(self, prompt: list[int], response: list[int]) -> Tensor:
        """Entropies of one rollout's response tokens, [T] in nats."""
        ids, rows, _ = self._pad([prompt], [response])
        with torch.no_grad():
            return self.token_logprobs(ids, rows)[1][0]

    def token_logprobs(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (with gradient) and entropies of the tokens after the positions `rows`, each [B, width]."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            hidden = hidden.gather(1, rows[..., None].expand(-1, -1, hidden.shape[-1]))
            logits = self.model.get_output_embeddings()(hidden)
        logprobs = logits.float().log_softmax(-1)
        with torch.no_grad():
            entropies = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(2, ids.gather(1, rows + 1)[..., None])[..., 0], entropies

    def _pad(self, prompts: list[list[int]], responses: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids [B, longest]; the position before each response token and its mask, both [B, width]."""
        longest = max(len(p) + len(r) for p, r in zip(prompts, responses))
        width = max(map(len, responses))
        ids = [p + r + [0] * (longest - len(p) - len(r)) for p, r in zip(prompts, responses)]
        starts = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        lengths = torch.tensor([len(r) for r in responses], device=self.device)
        offsets = torch.arange(width, device=self.device)
        mask = offsets < lengths[:, None]
        return torch.tensor(ids, device=self.device), torch.where(mask, starts[:, None] + offsets, 0), mask.long()
