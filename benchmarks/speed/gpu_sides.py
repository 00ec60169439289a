"""Sides of benchmarks/speed/gpu.py: D3S and dense GRPO with random weights at Qwen2.5's shapes.

D3S is assembled from its parts (d3s/policy.py, packing.py, selector.py, loss.py) as Trainer and Actor.update do it in
one process, so that only torch, transformers and accelerate are needed. Models of up to 2 B parameters are float32
under autocast, larger ones bfloat16 throughout.
"""

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from benchmarks.speed.dense_grpo import DenseGrpo
from d3s.advantage import group_advantages
from d3s.flops import TRAINED, ModelShape, forward_flops
from d3s.loss import denominators, grpo_loss
from d3s.packing import Batch, causal_pairs, pack, packed_tokens, split_by_tokens
from d3s.policy import Policy, SelectedRowHead, compile_layers, packed_attention
from d3s.selector import advantage_entropy, select_rollouts, top_tokens

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = {  # hidden, intermediate, layers, heads, key-value heads, vocabulary, tied
    "tiny": (64, 128, 2, 2, 1, 512, True),
    "tiny, deep": (64, 128, 16, 2, 1, 512, True),
    "0.5B": (896, 4864, 24, 14, 2, 151_936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151_936, True),
    "7B": (3584, 18944, 28, 28, 4, 152_064, False),
}
GROUP = 8  # responses per prompt


def random_model(shape: str, attention: str) -> PreTrainedModel:
    """Create a Qwen2 of this shape with random weights on the device."""
    hidden, intermediate, layers, heads, kv_heads, vocabulary, tied = SHAPES[shape]
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=32768,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    with DEVICE:
        return AutoModelForCausalLM.from_config(config, dtype=precision(shape), attn_implementation=attention)


def precision(shape: str) -> torch.dtype:
    """The dtype of the parameters."""
    return torch.bfloat16 if shape == "7B" else torch.float32


class RandomPolicy(Policy):
    """d3s.policy.Policy around a model that is not saved on disk."""

    def __init__(self, lm: PreTrainedModel) -> None:
        torch.nn.Module.__init__(self)
        self.lm, self.padded = lm, False
        lm.get_output_embeddings().__class__ = SelectedRowHead


class D3s:
    """Selection and one optimizer step, as Trainer and Actor do it in one process."""

    def __init__(self, shape: str, n: int, k: float, max_tokens: int, compiled: bool = False) -> None:
        AttentionInterface.register("d3s_packed", packed_attention)
        self.policy = RandomPolicy(random_model(shape, "d3s_packed"))
        if precision(shape) == torch.float32:  # like Actor in one process with float32 parameters
            self.policy.accumulate_in_place()
        if compiled:
            torch._dynamo.reset()  # weights of each shape make graphs of their own, of which it allows a few
            compile_layers(self.policy.lm)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
        self.n, self.k, self.max_tokens = n, k, max_tokens

    def update(self, work: dict) -> dict[str, float]:
        """Make one optimizer step, and return its cost (see cost) and "grad_norm"."""
        advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, GROUP))
        kept = select_rollouts(advantages, self.n).flatten().nonzero()[:, 0].tolist()
        responses = [work["responses"][i] for i in kept]
        entropies = torch.tensor([h for i in kept for h in work["entropies"][i]])
        per_token = advantages.flatten()[kept].repeat_interleave(torch.tensor([len(r) for r in responses]))
        batch = Batch([work["prompts"][i] for i in kept], responses, per_token, entropies, entropies)
        batch.selected = top_tokens(advantage_entropy(batch.advantages, batch.entropies), self.k)
        counts = batch.counts_of(batch.selected)
        divisors = denominators("selected", counts, counts, 0)
        lengths = batch.forward_lengths(batch.selected)
        parts = split_by_tokens(list(range(len(kept))), lengths, self.max_tokens, batch.groups)
        for group in parts:
            micro = pack(batch, group, lengths)
            chosen = batch.selected[micro.flat]
            flat = micro.flat[chosen]
            with torch.autocast(DEVICE.type, torch.bfloat16):
                logprobs, _, _ = self.policy(micro, chosen, 1.0, entropies=True)
            token_advantages, divisor = batch.advantages[flat].to(DEVICE), divisors[batch.sequence_ids[flat]].to(DEVICE)
            loss, _ = grpo_loss(logprobs, logprobs.detach(), token_advantages, 0.2, None, divisor)
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        forwarded = sum(packed_tokens(batch, group, lengths) for group in parts)
        run = cost(self.policy.lm, [n for n in lengths if n], int(batch.selected.sum()), forwarded)
        return run | {"grad_norm": norm.item()}


class Dense:
    """The update of benchmarks/speed/dense_grpo.py."""

    def __init__(self, shape: str, micro_batch: int) -> None:
        self.grpo = DenseGrpo(random_model(shape, "sdpa"), micro_batch, "bfloat16")

    def update(self, work: dict) -> dict[str, float]:
        """Make one optimizer step, and return its cost (see cost)."""
        advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, GROUP)).flatten()
        self.grpo.update(work["prompts"], work["responses"], advantages)
        return dense_cost(self.grpo.model, work)


def dense_cost(model: PreTrainedModel, work: dict) -> dict[str, float]:
    """The cost of training every token, without padding."""
    lengths = [len(p) + len(r) for p, r in zip(work["prompts"], work["responses"])]
    return cost(model, lengths, sum(map(len, work["responses"])), sum(lengths))


def cost(model: PreTrainedModel, lengths: list[int], rows: int, forwarded: int) -> dict[str, float]:
    """FLOPs of forward and backward passes over `forwarded` tokens, in sequences of these lengths for attention, with
    `rows` positions of the head."""
    shape = ModelShape.of(model.config.to_dict())
    flops = TRAINED * sum(forward_flops(shape, forwarded, rows, causal_pairs(lengths)).values())
    return {"flops": flops, "forwarded": forwarded, "rows": rows}
