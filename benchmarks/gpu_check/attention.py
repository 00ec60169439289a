"""Packed attention against attention over each sequence alone, forward and backward, and the kernel that ran.

The reference is scaled_dot_product_attention in float64, one sequence at a time, with repeated key-value heads. A small
model then runs packed, and is compared with transformers on one sequence at a time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from benchmarks.gpu_check.rows import Row, at_least, at_most, equals
from benchmarks.speed.gpu import attention_operators
from benchmarks.speed.gpu_sides import RandomPolicy
from d3s import policy
from d3s.packing import Batch, pack

HEADS = [(14, 2), (12, 2), (28, 4)]  # query and key-value heads of Qwen2.5 0.5B, 1.5B and 7B
HEAD_SIZES = [64, 128]
LENGTHS = {"cuda": [1, 2, 17, 128, 333, 1024], "cpu": [1, 2, 5, 9]}
MODES = ["float32", "bfloat16", "autocast"]
# Root mean squares of errors, relative to the values. float32: sums of up to 1024 terms, each rounded by 6e-8; TF32,
# which must not be in use, has 5e-4. Half precision: probabilities and results are rounded by up to 2**-9 = 0.002 once
# each, and gradients by a few of these. A missing token, a leak between sequences, a wrong head or scale has 0.1 to 1.
LIMITS = {"float32": 5e-5, "bfloat16": 0.02, "autocast": 0.02}
# Of the model, in nats. float32: two layers, logits of magnitude 10, with the errors above. Autocast: logits of
# magnitude 10 are rounded by up to 0.03, hidden states by up to 2**-9 in each operation.
LOGPROB_LIMITS = {"float32": 1e-4, "autocast": 0.05}
LEAST_COSINE = {"float32": 0.9999, "autocast": 0.99}  # of the two gradients of all weights
LAYERS = 2


def run(device: str, seconds: float) -> Iterator[Row]:
    """Errors of each head layout and precision, and the operators that computed them."""
    for mode in MODES:
        operators: set[str] = set()
        for heads in HEADS:
            for size in HEAD_SIZES:
                errors, ran = compare(heads, size, mode, device)
                operators |= ran
                worst = max(errors, key=errors.get)
                label = f"heads {heads[0]}/{heads[1]} of {size}, {mode}: relative error"
                yield at_most(label, errors[worst], LIMITS[mode], worst)
        yield kernel_row(f"{mode}: operators", operators, device, mode)
    yield from model_rows(device)


def kernel_row(what: str, operators: set[str], device: str, mode: str) -> Row:
    """Half precision on a GPU must run on the flash kernel, and on nothing else."""
    if device == "cuda" and mode != "float32":
        return equals(what, ", ".join(sorted(operators)), "varlen_attn")
    return Row(what, ", ".join(sorted(operators)))


def precision(mode: str, device: str) -> AbstractContextManager:
    """Autocast, or nothing."""
    return torch.autocast(device, torch.bfloat16) if mode == "autocast" else nullcontext()


def compare(heads: tuple[int, int], size: int, mode: str, device: str) -> tuple[dict[str, float], set[str]]:
    """Errors of output and gradients by name, and the attention operators of the forward pass."""
    lengths = LENGTHS[device]
    total, g = sum(lengths), torch.Generator(device).manual_seed(0)
    query, key, value, upstream = (
        torch.randn(1, count, total, size, generator=g, device=device).bfloat16().float()
        for count in (heads[0], heads[1], heads[1], heads[0])
    )  # values that every mode can represent
    upstream = upstream.transpose(1, 2)
    half = torch.bfloat16 if mode == "bfloat16" else torch.float32
    # under autocast rotary embeddings leave query and key in float32
    inputs = [query.to(half), key.to(half), value.to(torch.bfloat16 if mode == "autocast" else half)]
    inputs = [x.detach().requires_grad_() for x in inputs]
    out: list[Tensor] = []

    def forward() -> None:
        with precision(mode, device):
            layout = policy.Layout.of(lengths, torch.device(device), half)
            out.append(policy.packed_attention(None, *inputs, None, layout, scaling=size**-0.5)[0])

    ran = attention_operators(forward)
    out[0].backward(upstream.to(out[0].dtype))
    exact = [x.detach().double().requires_grad_() for x in (query, key, value)]
    expected = attend_each(*exact, lengths)
    expected.backward(upstream.double())
    pairs = [("output", out[0].transpose(1, 2), expected.transpose(1, 2))]
    pairs += [(f"{name} gradient", x.grad, y.grad) for name, x, y in zip(("query", "key", "value"), inputs, exact)]
    return {name: relative_error(got, want, lengths) for name, got, want in pairs}, set(ran)


def attend_each(query: Tensor, key: Tensor, value: Tensor, lengths: list[int]) -> Tensor:
    """Causal attention over each sequence alone; the result is [1, L, heads, dim]."""
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    parts = zip(*(x.split(lengths, 2) for x in (query, key, value)))
    return torch.cat([F.scaled_dot_product_attention(*part, is_causal=True) for part in parts], 2).transpose(1, 2)


def relative_error(got: Tensor, expected: Tensor, lengths: list[int]) -> float:
    """The largest error of a sequence, relative to its values or to those of all, whichever are larger."""

    def rms(x: Tensor) -> float:
        return x.double().square().mean().sqrt().item()

    parts = zip(got.double().split(lengths, 2), expected.split(lengths, 2))
    return max(rms(a - b) / max(rms(b), rms(expected)) for a, b in parts)


# --- a model ---------------------------------------------------------------------------------------------------------


def small_model(attention: str, device: str) -> PreTrainedModel:
    """A Qwen2 of two layers whose random weights make some tokens likely."""
    config = Qwen2Config(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def model_rows(device: str) -> Iterator[Row]:
    """Log-probabilities and gradients of the packed model against transformers, in float32 and under autocast."""
    lengths = LENGTHS[device][1:]
    sequences = [torch.randint(0, 1000, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in lengths]
    sequences[-1][0] = sequences[-2][0]  # their shared prompt, see `_packed`
    reference = small_model("sdpa", device)
    expected = torch.cat([_alone(reference, ids) for ids in sequences])
    expected.sum().backward()
    AttentionInterface.register("d3s_packed", policy.packed_attention)
    for mode in LOGPROB_LIMITS:
        network = RandomPolicy(small_model("d3s_packed", device))
        got, ran = _packed(network, sequences, mode, device)
        got.sum().backward()
        error = (got - expected).abs().mean().item()
        yield at_most(f"model, {mode}: mean error of log-probabilities", error, LOGPROB_LIMITS[mode])
        gradients = [torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (network.lm, reference)]
        cosine = F.cosine_similarity(*gradients, dim=0).item()
        yield at_least(f"model, {mode}: cosine of the gradients", cosine, LEAST_COSINE[mode])
        yield kernel_row(f"model, {mode}: operators", set(ran), device, mode)
        yield equals(f"model, {mode}: attention calls", sum(ran.values()), LAYERS)


def _alone(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """Log-probabilities of all tokens but the first, from the full logits of one sequence."""
    tokens = torch.tensor([ids], device=model.device)
    logprobs = model(input_ids=tokens).logits[0, :-1].float().log_softmax(-1)
    return logprobs.gather(1, tokens[0, 1:, None])[:, 0]


def _packed(network: RandomPolicy, sequences: list[list[int]], mode: str, device: str) -> tuple[Tensor, dict[str, int]]:
    """The same of all sequences in one packed row, and the attention operators that ran, with their calls."""
    prompts, responses = [ids[:1] for ids in sequences], [ids[1:] for ids in sequences]
    total = sum(map(len, responses))
    batch = Batch(prompts, responses, *(torch.zeros(total) for _ in range(3)))
    micro = pack(batch, list(range(len(sequences))), batch.forward_lengths())
    result: list[Tensor] = []

    def forward() -> None:
        with precision(mode, device):
            result.append(network(micro, torch.ones(total, dtype=torch.bool), 1.0)[0])

    ran = attention_operators(forward)
    return result[0], ran
