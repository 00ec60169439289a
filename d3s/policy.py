"""The policy network: packed sequences through the trunk, then the head on chosen rows, in chunks.

Any transformers causal model whose logits are `lm_head(trunk(ids))`, scaled or soft-capped, works unchanged (Llama,
Qwen3, Gemma 2, Granite, …). Sequences go through recurrent layers and convolutions as padded rows. No tensor of
[tokens, vocabulary] larger than one chunk ever exists, forward or backward. Dropout is never active.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d3s.common import UserError
from d3s.packing import MicroBatch
from d3s.pretrained import attention_only, load_model, read_config

# Logits per chunk: 64 MB in float32 on a CPU, 0.5 GB on a GPU. The latter is 880 rows of a vocabulary of 150,000; with
# far fewer rows, reading the weight would dominate the matrix product.
CHUNK_ELEMENTS = {"cpu": 2**24, "cuda": 2**27}
NO_KERNEL = "model.name: got attention with sinks or capped scores, expected plain attention; use another model"
FLASH_DEVICES = ("cuda",)  # where the variable-length flash kernel runs
WINDOWED = ("gemma3_text", "mistral", "qwen2", "qwen3")  # model types whose layers tell packed_attention their window


# --- attention over packed sequences ---------------------------------------------------------------------------------


@dataclass
class Layout:
    """The S sequences of a packed row of L tokens, in the form that attention needs.

    Attention alone sees whole sequences, each with its prompt; all other layers run a prompt once that sequences share.
    """

    longest: int
    flash: torch.dtype | None = None  # precision of the flash kernel; None: sequences become padded rows for attention
    cu_seqlens: Tensor | None = None  # flash: [S + 1] int32
    # Packed positions: of padded rows [S, longest], after a sequence's end that of its first token; flash: of all
    # sequences [sum of lengths], None if they share nothing.
    pad: Tensor | None = None
    unpad: Tensor | None = None  # [L] where each packed token first stands in `pad`, flat

    @classmethod
    def of(
        cls,
        lengths: list[int],
        device: torch.device,
        dtype: torch.dtype,
        padded: bool = False,
        places: Tensor | None = None,
    ) -> "Layout":
        """The layout of sequences of these lengths, for a model whose parameters have this dtype.

        padded: for padded rows in any case.
        places: see MicroBatch; None: one sequence after the other.
        """
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
        longest, bounds = max(lengths), torch.tensor([0, *lengths]).cumsum(0)
        places = torch.arange(int(bounds[-1])) if places is None else places
        first = torch.from_numpy(np.unique(places.numpy(), return_index=True)[1])
        if device.type in FLASH_DEVICES and dtype in (torch.float16, torch.bfloat16) and not padded:
            shared = (places.to(device), first.to(device)) if len(first) < len(places) else ()
            return cls(longest, dtype, bounds.to(device, torch.int32), *shared)
        starts, positions = bounds[:-1, None], torch.arange(longest)
        real = positions < bounds.diff()[:, None]
        pad = places[torch.where(real, starts + positions, starts)]
        return cls(longest, pad=pad.to(device), unpad=real.flatten().nonzero()[first, 0].to(device))


def varlen_attn(*tensors: Tensor | int, **options: Any) -> Tensor:
    """The flash kernel, imported by its first call: with it comes torch._dynamo, which takes seconds."""
    from torch.nn.attention import varlen

    return varlen.varlen_attn(*tensors, **options)


def _flash_attention(query: Tensor, key: Tensor, value: Tensor, layout: Layout, window: int, **options: Any) -> Tensor:
    """packed_attention by the flash kernel. All is cast for it: rotary embeddings leave float32 under autocast."""
    q, k, v = (x[0].transpose(0, 1).to(layout.flash).contiguous() for x in (query, key, value))  # [L, heads, dim]
    if layout.pad is not None:
        q, k, v = (x.index_select(0, layout.pad) for x in (q, k, v))
    ends = (layout.cu_seqlens, layout.cu_seqlens, layout.longest, layout.longest)
    out = varlen_attn(q, k, v, *ends, window_size=(window - 1, 0), **options)  # -1, of window 0: all
    return (out if layout.unpad is None else out.index_select(0, layout.unpad))[None]


def packed_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, layout: Layout, **options
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence of a packed row; query [1, heads, L, dim], result [1, L, heads, dim].

    A token attends to the last `sliding_window` tokens, itself included, or to all before it.

    Raises UserError for attention with sinks or soft-capped scores, which its kernels lack.

    In half precision on a GPU the variable-length flash kernel needs no padding. Elsewhere the sequences become padded
    rows for this operation alone; causal attention does not see padding on the right, so no mask is needed.
    """
    if options.get("softcap") or options.get("s_aux") is not None:
        raise UserError(NO_KERNEL)
    scale, window = options.get("scaling"), options.get("sliding_window")
    window = window if window and window < layout.longest else 0
    grouped = query.shape[1] != key.shape[1]
    if layout.flash:
        return _flash_attention(query, key, value, layout, window, scale=scale, enable_gqa=grouped), None

    def as_rows(x: Tensor) -> Tensor:  # [1, heads, L, dim] -> [S, heads, longest, dim]
        rows = x[0].index_select(1, layout.pad.flatten())
        return rows.unflatten(1, layout.pad.shape).transpose(0, 1)

    q, k, v = as_rows(query), as_rows(key), as_rows(value)
    mask = None
    if window:
        mask = torch.ones(layout.longest, layout.longest, dtype=torch.bool, device=q.device).tril().triu(1 - window)
    out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, layout.unpad)[None], None


# --- the head on chosen rows -----------------------------------------------------------------------------------------


# log pi(y) = l_y - logsumexp(l),  H = -sum_v pi(v) log pi(v),  l = c tanh(s W h / c) / temperature, where s scales the
# logits (Granite, Cohere) and c caps them softly (Gemma 2); without a cap l = s W h / temperature.
# d log pi(y) / d l = onehot(y) - softmax(l),  d l / d W h = s (1 - (l temperature / c)^2) / temperature
# The backward pass recomputes the logits of a chunk and overwrites them with their gradient, so memory is one chunk, or
# two with a cap, for any number of rows and any vocabulary.
class ChunkedLogprobs(torch.autograd.Function):
    """(hidden [P, D], weight [V, D], targets [P]) -> log-probabilities [P] with gradient, entropies [P] without."""

    @staticmethod
    def forward(ctx, hidden, weight, targets, temperature, want_entropies, head):
        rows = max(1, CHUNK_ELEMENTS[hidden.device.type] // weight.shape[0])
        cast = weight.to(hidden.dtype)  # once, not for every chunk
        logprobs = hidden.new_empty(len(hidden), dtype=torch.float32)
        entropies = torch.zeros_like(logprobs)
        normalizers = torch.empty_like(logprobs)
        for part in (slice(i, i + rows) for i in range(0, len(hidden), rows)):
            logits = _logits(hidden[part], cast, temperature, head)
            normalizers[part] = logits.logsumexp(-1)
            logits.sub_(normalizers[part, None])  # log pi, in place
            logprobs[part] = logits.gather(1, targets[part, None])[:, 0]
            if want_entropies:
                entropies[part] = -torch.linalg.vecdot(logits.exp(), logits)
        ctx.save_for_backward(hidden, targets, normalizers)
        ctx.head, ctx.temperature, ctx.rows = head, temperature, rows
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx, grad_logprobs, _):
        hidden, targets, normalizers = ctx.saved_tensors
        weight, in_place = ctx.head.weight, ctx.head.in_place
        cast, grad_hidden = weight.to(hidden.dtype), torch.empty_like(hidden)
        trained = ctx.needs_input_grad[1]  # the head of LoRA is frozen
        if trained:  # in bfloat16 the sum over many chunks would lose small terms
            grad_weight = _grad_of(weight) if in_place else torch.zeros_like(weight, dtype=torch.float32)
        for part in (slice(i, i + ctx.rows) for i in range(0, len(hidden), ctx.rows)):
            scale = (grad_logprobs[part] * (ctx.head.scale / ctx.temperature))[:, None]
            grad = _logits(hidden[part], cast, ctx.temperature, ctx.head)
            slope = 1 - (grad * (ctx.temperature / ctx.head.cap)).square_() if ctx.head.cap else None
            grad.sub_(normalizers[part, None]).exp_().mul_(-scale)
            grad.scatter_add_(1, targets[part, None], scale)
            grad = grad if slope is None else grad.mul_(slope)
            grad = grad.to(hidden.dtype)
            torch.matmul(grad, cast, out=grad_hidden[part])
            if trained and grad.dtype == torch.float32:
                grad_weight.addmm_(grad.T, hidden[part])
            elif trained:
                grad_weight += product(grad.T, hidden[part])
        return grad_hidden, grad_weight.to(weight.dtype) if trained and not in_place else None, *[None] * 4


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right in float32, also where both are in half precision."""
    if left.dtype == torch.float32:
        return left @ right
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def _logits(hidden: Tensor, weight: Tensor, temperature: float, head: "SelectedRowHead") -> Tensor:
    logits = product(hidden, weight.T) if head.exact else (hidden @ weight.T).float()
    logits = logits if head.scale == 1.0 else logits.mul_(head.scale)
    logits = logits.div_(head.cap).tanh_().mul_(head.cap) if head.cap else logits
    return logits if temperature == 1.0 else logits.div_(temperature)


class SelectedRowHead(nn.Linear):
    """A model's lm_head that computes log-probabilities of given targets instead of logits.

    It replaces the class of the existing module, which keeps parameter names, tying, and the hooks with which DeepSpeed
    gathers a sharded weight before its use.
    """

    in_place = False  # see Policy.accumulate_in_place
    exact = False  # logits in float32 (model.head_dtype)
    scale: float = 1.0  # factor of the logits
    cap: float | None = None  # soft cap of the scaled logits

    def forward(
        self, hidden: Tensor, targets: Tensor, temperature: float, want_entropies: bool
    ) -> tuple[Tensor, Tensor]:
        """hidden [P, D], targets [P] -> log-probabilities [P], entropies [P] (zeros if not wanted); P may be 0."""
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        with torch.autocast(hidden.device.type, enabled=False):
            return ChunkedLogprobs.apply(hidden, self.weight, targets, temperature, want_entropies, self)


# For a tied embedding, autograd would allocate one gradient of its size for the head and one for the lookup, and add
# them afterwards. With a vocabulary of 150,000 these are most of an update's memory. Here both add to .grad in place.
class InPlaceLookup(torch.autograd.Function):
    """(ids [...], weight [V, D]) -> rows of weight [..., D]; the backward pass adds to weight.grad in place."""

    @staticmethod
    def forward(ctx, ids, weight, padding_idx):
        ctx.save_for_backward(ids)
        ctx.weight, ctx.padding_idx = weight, padding_idx
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx, grad):
        (ids,) = ctx.saved_tensors
        if ctx.padding_idx is not None:  # as in nn.Embedding, the lookup never trains this row
            grad = grad.masked_fill((ids == ctx.padding_idx)[..., None], 0.0)
        own = _grad_of(ctx.weight)
        with deterministic_kernels(not own.is_cuda):  # on several CPU threads the default adds in any order, slowly
            own.index_put_((ids,), grad.to(own.dtype), accumulate=True)
        return None, None, None


class InPlaceEmbedding(nn.Embedding):
    """A model's embedding with InPlaceLookup."""

    def forward(self, ids: Tensor) -> Tensor:
        """ids [...] -> [..., D]."""
        return InPlaceLookup.apply(ids, self.weight, self.padding_idx)


@contextmanager
def deterministic_kernels(wanted: bool) -> Iterator[None]:
    """If wanted, let PyTorch use kernels that add in the same order every time, and raise for those that cannot."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _grad_of(weight: Tensor) -> Tensor:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


# --- the network ----------------------------------------------------------------------------------------------------


def decoder_layers(lm: nn.Module) -> list[nn.Module]:
    """The layers of a transformers model that can be recomputed, from the embedding to the head."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in lm.modules() if isinstance(module, GradientCheckpointingLayer)]


def compile_layers(lm: nn.Module) -> None:
    """Have each layer compiled when it first runs, for any number and length of sequences.

    Layers share their code, and so their graphs: of a pass with gradient or without, of one sequence or several, of
    frozen weights or not. Parameters keep their names.
    """
    torch._dynamo.config.optimize_ddp = False  # would cut graphs for an exchange that Actor makes in a pass of its own
    disabled = os.environ.pop("TORCHDYNAMO_DISABLE", None)  # set for vLLM on a CPU; read by the next calls
    for layer in decoder_layers(lm):
        layer.compile(dynamic=True, recompile_limit=64)  # beyond its 8, layers would silently run as they are
    if disabled:
        os.environ["TORCHDYNAMO_DISABLE"] = disabled


def logit_scale(config: Any) -> float:
    """The factor by which a model multiplies what its head computes: of Cohere, Falcon-H1, Granite; else 1."""
    factors = [getattr(config, name, None) or 1.0 for name in ("logit_scale", "lm_head_multiplier")]
    return factors[0] * factors[1] / (getattr(config, "logits_scaling", None) or 1.0)


class Policy(nn.Module):
    """A causal language model that runs packed sequences and returns log-probabilities of chosen tokens."""

    def __init__(
        self,
        path: str,
        max_length: int,
        gradient_checkpointing: bool | int = False,
        head_dtype: str = "auto",
        dtype: torch.dtype = torch.float32,
        compiled: bool = False,
    ) -> None:
        """Load the model at `path` (safetensors).

        Args:
            max_length: tokens of the longest prompt plus response; beyond an attention window rows are padded, unless
                the model is one of WINDOWED.
            gradient_checkpointing: recompute activations in the backward pass: of all layers, or of the first ones.
            head_dtype: "float32" keeps logits in float32 in half precision; see model.head_dtype.
            dtype: of the weights; those that are trained need float32.
            compiled: see compile_layers.

        Raises: UserError for incomplete weights, and for an architecture whose logits are not lm_head(trunk(ids)).
        """
        super().__init__()
        from transformers import AttentionInterface

        config = read_config(path)
        window = getattr(config, "sliding_window", None)  # without layer_types (Mistral) it applies to every layer
        layers = set(getattr(config, "layer_types", None) or ["sliding_attention"])
        reached = bool(window) and window < max_length and "sliding_attention" in layers
        reached = reached and config.model_type not in WINDOWED
        AttentionInterface.register("d3s_packed", packed_attention)
        self.lm = load_model(path, dtype=dtype, attn_implementation="d3s_packed")
        # Right-padded rows are exact for all that is causal: attention and its windows, recurrent layers, convolutions.
        capped = getattr(config, "attn_logit_softcapping", None)
        self.padded = reached or bool(capped) or not attention_only(self.lm)
        if self.padded:
            self.lm.set_attn_implementation("eager" if capped or not self.lm._supports_sdpa else "sdpa")
        head = self.lm.get_output_embeddings()
        if type(head) is not nn.Linear or head.bias is not None:
            raise UserError(f"{path}: the head of {config.model_type} is not a plain linear layer without bias")
        head.__class__ = SelectedRowHead
        head.exact, head.cap = head_dtype == "float32", getattr(config, "final_logit_softcapping", None)
        head.scale = logit_scale(config)
        self._layers = decoder_layers(self.lm)
        for layer in self._layers:  # some apply dropout themselves
            for name in [name for name, value in vars(layer).items() if "drop" in name and type(value) is float]:
                setattr(layer, name, 0.0)
        if gradient_checkpointing:
            if not self.lm.supports_gradient_checkpointing:
                raise UserError(
                    f"model.gradient_checkpointing: {config.model_type} does not support it; set it to false"
                )
            self.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if gradient_checkpointing is not True:
                for layer in self._layers[gradient_checkpointing:]:
                    layer.gradient_checkpointing = False
        if compiled:
            compile_layers(self.lm)
        self.train()

    # Probabilities must be those that the engine sampled with, so dropout is never active: only the layers themselves,
    # not their submodules, are in training mode, which enables their checkpointing.
    def train(self, mode: bool = True) -> "Policy":
        """Switch gradient checkpointing to `mode`; all modules stay in evaluation mode."""
        super().train(False)
        self.training = mode
        for layer in self._layers:
            layer.training = mode and layer.gradient_checkpointing
        return self

    def accumulate_in_place(self) -> None:
        """Let the head and the lookup share one gradient tensor. A frozen weight gets none.

        For a single process only: DDP and ZeRO exchange gradients in hooks, which autograd calls for its own gradients.
        """
        embedding = self.lm.get_input_embeddings()
        kind = type(embedding)
        if isinstance(embedding, nn.Embedding) and embedding.max_norm is None:
            scaled = kind is not nn.Embedding  # Gemma 3's calls the lookup and scales its rows
            embedding.__class__ = type(kind.__name__, (kind, InPlaceEmbedding), {}) if scaled else InPlaceEmbedding
            self.lm.get_output_embeddings().in_place = True

    def forward(
        self,
        micro: MicroBatch,
        chosen: Tensor,
        temperature: float,
        with_unchosen: bool = False,
        entropies: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the P response tokens of a packed micro-batch.

        Args:
            chosen: bool [P], the tokens whose log-probability carries a gradient.
            with_unchosen: compute the unchosen tokens too; otherwise their values are 0.
            entropies: compute the entropies of the computed tokens; otherwise they are 0.

        Returns: log-probabilities of the chosen tokens, with gradient; log-probabilities and entropies of all tokens,
            [P] each, without gradient.
        """
        device = self.lm.device
        # found and copied before the trunk: afterwards the host would wait for it
        rows, targets, index = (x.to(device) for x in (micro.rows, micro.targets, chosen.nonzero()[:, 0]))
        hidden = self._hidden(micro, device)
        head = self.lm.get_output_embeddings()
        values = hidden.new_zeros(2, len(rows), dtype=torch.float32)
        logprobs, h = head(hidden.index_select(0, rows[index]), targets[index], temperature, entropies)
        values.index_copy_(1, index, torch.stack([logprobs.detach(), h]))
        if with_unchosen:
            with torch.no_grad():
                index = (~chosen).nonzero()[:, 0].to(device)
                unchosen = head(hidden.index_select(0, rows[index]), targets[index], temperature, entropies)
                values.index_copy_(1, index, torch.stack(unchosen))
        return logprobs, values[0], values[1]

    def _hidden(self, micro: MicroBatch, device: torch.device) -> Tensor:
        """The trunk's output [L, D] for a packed micro-batch."""
        layout = Layout.of(micro.lengths, device, self.lm.dtype, self.padded, micro.places)
        ids = micro.input_ids.to(device)
        if self.padded:
            rows = self.lm.base_model(input_ids=ids[0][layout.pad], use_cache=False).last_hidden_state
            return rows.flatten(0, 1).index_select(0, layout.unpad)
        positions = micro.position_ids.to(device)
        options = {"position_ids": positions, "layout": layout, "use_cache": False}
        return self.lm.base_model(input_ids=ids, **options).last_hidden_state[0]
