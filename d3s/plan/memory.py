"""What a run will take: tokens and memory, as arithmetic on the configuration. Pure; train.py --dry-run shows it.

The memory formulas count what the actor allocates by design. Fragmentation, the CUDA context and the libraries' own
workspaces come on top: leave 10 % of a GPU free. tests/plan/test_dry_run.py holds them against what autograd really
saves.
"""

from dataclasses import dataclass
from typing import Any

from d3s.config.schema import Config
from d3s.downsampling import schedule_at

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # model types whose layers are the ones counted here
BYTES = {"float32": 4, "bfloat16": 2}
LIVE_PARAMETERS = 10**9  # DeepSpeed's stage3_max_live_parameters and sub_group_size
REDUCE_BUCKET = 5 * 10**8  # its reduce_bucket_size
LOGIT_COPIES = 4  # logits of a chunk, their gradient, and what exp and the cast leave for a moment


# --- tokens ----------------------------------------------------------------------------------------------------------


def spread_steps(steps: int, most: int = 2000) -> list[int]:
    """Steps (0-based) over which a mean is that of the whole run: all of them, or `most` at equal distances."""
    if steps <= most:
        return list(range(steps))
    return [(2 * i + 1) * steps // (2 * most) for i in range(most)]


def token_share(config: Config) -> float:
    """The share of all response tokens of the run that is trained, if kept responses are as long as the others."""
    steps, g = spread_steps(config.train.steps), config.rollout.num_generations
    return sum(n * k for n, k in (schedule_at(config, step) for step in steps)) / (g * len(steps))


def evaluations(config: Config) -> int:
    """How often the run is evaluated: before it, every eval.every steps, and after it."""
    every, steps = config.eval.every, config.train.steps
    if not config.eval.data:
        return 0
    return 1 + (steps // every + (steps % every > 0) if every else 1)


# --- the model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder with gated feed-forward layers and grouped-query attention."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False  # the head is the embedding
    qkv_bias: bool = False
    qk_norm: bool = False

    @classmethod
    def of(cls, config: dict[str, Any]) -> "ModelShape | None":
        """From the content of a model's config.json; None for a model type that is not one of FAMILIES."""
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
            tied=config.get("tie_word_embeddings", False),
            qkv_bias=kind == "qwen2",
            qk_norm=kind == "qwen3",
        )

    @property
    def attention(self) -> tuple[int, int]:
        """Width of all query heads, and of all key (or value) heads."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """How many there are, the shared ones of a tied head once."""
        (q, kv), d = self.attention, self.hidden
        attention = d * (q + 2 * kv) + q * d + (q + 2 * kv) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
        layer = attention + 3 * d * self.intermediate + 2 * d
        return self.layers * layer + d + self.vocabulary * d * (1 if self.tied else 2)


# --- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placement:
    """How the processes of a run share the model."""

    ranks: int = 1
    zero3: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False


# What autograd keeps of one token in one layer, in bytes, for hidden d, query width q, key width v, feed-forward f:
#   float32               24 d + 12 q + 8 v + 16 f
#   half, autocast        26 d +  6 q + 4 v +  8 f    the residual stream and the norms stay in float32
#   half, ZeRO-3          16 d +  6 q + 4 v +  8 f    parameters and residual stream in half precision
# With gradient checkpointing a layer keeps its input (d numbers), and one layer at a time all of the above.
def activation_bytes(shape: ModelShape, dtype: str, tokens: int, checkpointing: bool, zero3: bool) -> int:
    """Bytes that the trunk's forward pass leaves for the backward pass of one micro-batch of `tokens` tokens."""
    (q, v), d, f = shape.attention, shape.hidden, shape.intermediate
    if dtype == "float32":
        layer, stream = 24 * d + 12 * q + 8 * v + 16 * f, 4 * d
    else:
        layer = (16 if zero3 else 26) * d + 6 * q + 4 * v + 8 * f
        stream = (2 if zero3 else 4) * d
    return tokens * (shape.layers * stream + layer if checkpointing else shape.layers * layer)


def kv_cache_bytes(shape: ModelShape, dtype: str) -> int:
    """Bytes of one token in the engine's cache."""
    return 2 * shape.layers * shape.attention[1] * BYTES[dtype]


def largest_microbatch(config: Config) -> int:
    """Tokens of the largest micro-batch: the budget, or one sequence of full length if that is longer."""
    return max(config.train.max_tokens_per_microbatch, config.data.max_prompt_length + longest_response(config))


def longest_response(config: Config) -> int:
    """Tokens that the longest response is run forward for: all but the last, which predicts nothing."""
    return config.rollout.max_completion_length - 1


# P parameters over W ranks. One process or DDP: float32 weights, gradients and AdamW's two moments, 16 bytes per
# parameter; 4 more for DDP's buckets; in the update, in half precision, 2 more for copies of the weights.
# ZeRO-3: b bytes (2 or 4) for weights, 4 for gradients, 12 for float32 weights and moments, all divided by W; the
# gathered layers come on top.
def memory(config: Config, shape: ModelShape, place: Placement, chunk_elements: int) -> dict[str, int]:
    """Bytes of one GPU (or process), by what takes them; the engine is not among them.

    Args:
        chunk_elements: logits that the head holds at once (policy.CHUNK_ELEMENTS of the device).
    """
    p, ranks, dtype = shape.parameters, place.ranks, config.model.dtype
    b, v = BYTES[dtype], shape.vocabulary
    half = b == 2
    if place.zero3:
        own = p // ranks
        weights = 0 if place.offload_parameters else b * own
        gradients = 0 if place.offload_optimizer else 4 * own  # summed in float32, see ranks.start_accelerator
        optimizer = 0 if place.offload_optimizer else 12 * own
        copies = b * (min(p, LIVE_PARAMETERS) + min(p, REDUCE_BUCKET))
        stepping = 0 if place.offload_optimizer else 8 * min(own, LIVE_PARAMETERS)
        reference = b * own
    else:
        weights, gradients, optimizer = 4 * p, (8 if ranks > 1 else 4) * p, 8 * p
        copies = 2 * p if half else 0
        stepping = 4 * p
        reference = 4 * p
    # beside the logits: a gradient of the head's own, where it does not go straight to the one that is counted above
    # (policy.accumulate_in_place); in half precision a copy of the weight, and the product of a chunk in float32
    alone = ranks == 1 and not place.zero3
    head = 4 * LOGIT_COPIES * min(chunk_elements, v * largest_microbatch(config))
    head += ((0 if alone else 4) + (6 if half else 0)) * v * shape.hidden
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "reference": reference if config.loss.beta > 0 else 0,
        "copies": copies,
        "activations": activation_bytes(
            shape, dtype, largest_microbatch(config), config.model.gradient_checkpointing, place.zero3
        ),
        "head": head,
        "stepping": stepping,
    }


def peaks(parts: dict[str, int], engine: int, engine_sleeps: bool, zero3: bool) -> dict[str, int]:
    """Bytes at the fullest moment of each phase.

    The engine takes its share while it generates; asleep it gives it back for the update. Outside the update only the
    states stay, and of them gradients only where ZeRO-3 keeps its buffer.
    """
    states = parts["weights"] + parts["optimizer"] + parts["reference"]
    work = max(parts["copies"] + parts["activations"] + parts["head"], parts["stepping"])
    return {
        "generate": states + (parts["gradients"] if zero3 else 0) + engine,
        "update": states + parts["gradients"] + work + (0 if engine_sleeps else engine),
    }


def checkpoint_bytes(config: Config, shape: ModelShape, place: Placement) -> int:
    """Size of a checkpoint: float32 weights and AdamW's moments; ZeRO-3 adds the weights in working precision."""
    return shape.parameters * (12 + (BYTES[config.model.dtype] if place.zero3 else 0))
