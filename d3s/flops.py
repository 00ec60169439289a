"""Sizes of a model, the floating-point operations (FLOPs) of its passes, and peak rates of GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")  # model types with the layers that are counted here

TRAINED = 3  # forward and backward passes together, in forward passes: gradients of inputs and of weights

# Dense products of bfloat16 with float32 sums, in FLOPs per second, from NVIDIA's datasheets and architecture
# whitepapers (the rates with sparsity there are twice these). The keys are words of torch.cuda.get_device_name().
# T4 and V100 have no bfloat16 units.
PEAK_FLOPS = {
    "A10": 125e12,  # A10 datasheet
    "A30": 165e12,  # A30 datasheet
    "A40": 149.7e12,  # A40 datasheet
    "A100": 312e12,  # A100 datasheet; SXM and PCIe alike
    "H100 HBM3": 989.4e12,  # H100 whitepaper, SXM5
    "H100 NVL": 835.5e12,  # H100 datasheet
    "H100 PCIe": 756e12,  # H100 whitepaper
    "H200": 989.4e12,  # H200 datasheet, SXM
    "H200 NVL": 835.5e12,  # H200 datasheet
    "GH200": 989.4e12,  # GH200 datasheet
    "B200": 2250e12,  # HGX B200 datasheet
    "GB200": 2500e12,  # GB200 NVL72 datasheet
    "L4": 121e12,  # L4 datasheet
    "L40": 181e12,  # L40 datasheet
    "L40S": 362e12,  # L40S datasheet
    "RTX 3090": 71e12,  # GA102 whitepaper
    "RTX A6000": 154.8e12,  # GA102 whitepaper
    "RTX 4090": 165.2e12,  # Ada whitepaper
    "RTX 5090": 209.5e12,  # RTX Blackwell whitepaper
}
OTHER_WORDS = re.compile(r"NVIDIA|GeForce|\d+GB|SXM4|PCIe|PCIE|HBM3e?")  # no part of any key's meaning beside it


def peak_flops(device: str) -> float | None:
    """The peak rate in bfloat16 of a device, by its name; None for CPUs, unknown cards, and parts of a card (MIG)."""
    words = set(re.split("[ -]", device))
    for key, peak in PEAK_FLOPS.items():
        of_key = set(key.split())
        if of_key <= words and all(OTHER_WORDS.fullmatch(word) for word in words - of_key):
            return peak
    return None


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder with gated feed-forward layers and grouped-query attention.

    Weights per layer, with d = hidden, q = heads x head_dim, v = kv_heads x head_dim, f = intermediate: query [d, q],
    key and value [d, v], output [q, d], gate and up [d, f], down [f, d]. Embedding and head are [vocabulary, d].
    """

    hidden: int  # width of the residual stream
    layers: int
    heads: int  # query heads
    kv_heads: int  # key heads, and as many value heads
    head_dim: int  # width of a head
    intermediate: int  # width of the feed-forward layer
    vocabulary: int  # rows of the embedding, in tokens
    tied: bool = False  # the head shares the weights of the embedding
    qkv_bias: bool = False  # query, key and value have biases
    qk_norm: bool = False  # queries and keys are normalized, with head_dim weights each
    norms: int = 2  # of the residual stream, per layer

    @classmethod
    def of(cls, config: dict[str, Any]) -> ModelShape | None:
        """Read the shape from the content of a config.json. None for a model type that is not in FAMILIES.

        Raises: KeyError for a missing size.
        """
        kind = config.get("model_type")
        if kind not in FAMILIES:
            return None
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        return cls(
            hidden=hidden,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or hidden // heads,
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            tied=config.get("tie_word_embeddings", kind == "gemma3_text"),
            qkv_bias=kind == "qwen2",
            qk_norm=kind in ("qwen3", "gemma3_text"),
            norms=4 if kind == "gemma3_text" else 2,
        )

    @property
    def attention(self) -> tuple[int, int]:
        """Total width of the query heads, and of the key heads (the value heads have the same)."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim

    @property
    def matrix_weights(self) -> int:
        """Number of weights in the matrices of the layers."""
        (q, kv), d = self.attention, self.hidden
        return self.layers * d * (2 * q + 2 * kv + 3 * self.intermediate)

    @property
    def parameters(self) -> int:
        """Number of parameters; a tied head counts once."""
        (q, kv), d = self.attention, self.hidden
        vectors = (q + 2 * kv) * self.qkv_bias + 2 * self.head_dim * self.qk_norm + self.norms * d
        embeddings = self.vocabulary * d * (1 if self.tied else 2)
        return self.matrix_weights + self.layers * vectors + d + embeddings

    # A matrix [out, in] has A [rank, in] and B [out, rank].
    def adapter_parameters(self, rank: int | None, targets: Sequence[str] | str) -> int:
        """Number of parameters that LoRA trains: adapters of `rank` on the layers whose names end with `targets`.

        Args:
            rank: None or 0 without LoRA.
            targets: names, or "all-linear".
        """
        (q, v), d, f = self.attention, self.hidden, self.intermediate
        sizes = {"self_attn.q_proj": d + q, "self_attn.k_proj": d + v, "self_attn.v_proj": d + v}
        sizes |= {"self_attn.o_proj": q + d, "mlp.gate_proj": d + f, "mlp.up_proj": d + f, "mlp.down_proj": f + d}
        ends = tuple(f".{target}" for target in (sizes if targets == "all-linear" else targets))
        names = ((f".model.layers.{i}.{name}", size) for i in range(self.layers) for name, size in sizes.items())
        return (rank or 0) * sum(size for name, size in names if name.endswith(ends))


# A product of [m, k] and [k, n] takes 2 m k n FLOPs. A forward pass over t tokens of which r reach the head:
#   trunk      2 W t    W: the weights in the matrices of the L layers
#   attention  4 L q p  scores and weighted sum over p causal pairs, for query heads of total width q
#   head       2 V d r  vocabulary V, width d
# A backward pass takes twice as many. Sources: arXiv 2001.08361, section 2.1 (weights); arXiv 2307.08691, section 4.1
# (half of the attention matrix is causal). As in arXiv 2204.02311, appendix B, what is computed a second time does not
# count (gradient checkpointing, the head's logits in its backward pass), nor do norms, activations and softmax.
def forward_flops(shape: ModelShape, tokens: float, rows: float, pairs: float = 0) -> dict[str, float]:
    """FLOPs of a forward pass by part of the model: "trunk", "attention", "head".

    Args:
        tokens: tokens that pass through the trunk.
        rows: positions whose logits are computed.
        pairs: see packing.causal_pairs.
    """
    return {
        "trunk": 2 * shape.matrix_weights * tokens,
        "attention": 4 * shape.layers * shape.attention[0] * pairs,
        "head": 2 * shape.vocabulary * shape.hidden * rows,
    }


# With LoRA the frozen weights have no gradient, so their products are two instead of three forward passes' worth. The
# adapters' own products, 2 per weight and token, are three.
def update_flops(
    shape: ModelShape, forwarded: float, rows: float, tokens: float, pairs: float, adapters: int = 0
) -> float:
    """FLOPs of forward and backward passes over `forwarded` tokens; of the head's `rows`, `tokens` have a gradient.

    Args:
        pairs: see packing.causal_pairs.
        adapters: number of weights that LoRA trains; 0 trains the model's.
    """
    trained, others = forward_flops(shape, forwarded, tokens, pairs), forward_flops(shape, 0, rows - tokens)
    products = (TRAINED - 1 if adapters else TRAINED) * (trained["trunk"] + trained["head"])
    return products + TRAINED * (trained["attention"] + 2 * adapters * forwarded) + others["head"]
