"""The policy network's head, packed attention and dropout, against float64 and single sequences."""

import itertools
import json

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from d3s import policy as module
from d3s.common import UserError
from d3s.packing import Batch, dummy_micro_batch, pack
from d3s.policy import CHUNK_ELEMENTS, InPlaceEmbedding, Policy, SelectedRowHead
from tests.helpers.actors import SIZES, assert_bitwise_equal, make_actor, make_batch, update
from tests.helpers.models import save_random_model
from tests.helpers.rounding import ROUNDING, assert_same_gradients, assert_same_values

# --- head -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 257 * 3, 2**24])
def test_gradients_flow_through_chosen_tokens_only(monkeypatch, gqa_model, chunk):
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    batch, policy = make_batch(), Policy(str(gqa_model), 64)
    micro = pack(batch, list(range(len(SIZES))), batch.forward_lengths(cut=False))
    chosen = batch.selected[micro.flat]
    chosen_logprobs, logprobs, entropies = policy(micro, chosen, 0.8, with_unchosen=True, entropies=True)
    assert chosen_logprobs.requires_grad and not logprobs.requires_grad and not entropies.requires_grad
    assert torch.equal(chosen_logprobs, logprobs[chosen])
    _, expected, expected_entropies = policy(micro, torch.ones_like(chosen), 0.8, entropies=True)
    assert_same_values(logprobs, expected)
    assert_same_values(entropies, expected_entropies, largest=10.0)
    _, logprobs, entropies = policy(micro, chosen, 0.8)
    assert not logprobs[~chosen].any() and not entropies.any()


def test_dummy_micro_batch_gives_zero_gradients(model_path):
    policy = Policy(str(model_path), 64)
    outputs = policy(dummy_micro_batch(), torch.zeros(0, dtype=torch.bool), 1.0, True, True)
    assert all(output.shape == (0,) for output in outputs)
    outputs[0].sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in policy.parameters())


def test_head_is_stable_for_large_logits(tied_model):
    """Logits share a constant of 100, whose exponential overflows float32.

    Tolerance: each logit is a sum of 64 products of up to 100, each rounded by a relative 6e-8.
    """
    policy = Policy(str(tied_model), 64)
    head = policy.lm.get_output_embeddings()
    hidden = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    hidden[:, 0] = 100
    with torch.no_grad():
        head.weight[:, 0] = 1.0
        logprobs, entropies = head(hidden, torch.arange(5), 1.0, True)
        exact = (hidden.double() @ head.weight.double().T).log_softmax(-1)
    torch.testing.assert_close(logprobs.double(), exact.diagonal(), rtol=0, atol=4e-4)
    torch.testing.assert_close(entropies.double(), -(exact.exp() * exact).sum(-1), rtol=0, atol=4e-4)


@pytest.mark.parametrize("chunk", [257, 257 * 5, 2**24])
def test_float32_head_does_not_round_logits(device, tmp_path, monkeypatch, chunk):
    """Compared with float64: with head_dtype "auto" log-probabilities are off by a logit rounded to half precision.

    With "float32" they are off only by the rounding of sums; gradients are rounded to half precision once.
    """
    monkeypatch.setitem(CHUNK_ELEMENTS, device, chunk)
    path = save_random_model(tmp_path / "model", 0, tie_word_embeddings=False)
    g = torch.Generator().manual_seed(1)
    hidden = torch.randn(12, 64, generator=g).bfloat16().to(device)
    targets = torch.randint(0, 257, (12,), generator=g).to(device)
    errors, gradients = {}, {}
    for head_dtype in ("auto", "float32"):
        head = Policy(str(path), 64, head_dtype=head_dtype).to(device).lm.get_output_embeddings()
        h = hidden.clone().requires_grad_()
        logprobs, entropies = head(h, targets, 0.7, True)
        logprobs.sum().backward()
        rounded = head.weight.detach().bfloat16().double().requires_grad_()
        exact_h = hidden.double().requires_grad_()
        exact = (exact_h @ rounded.T / 0.7).log_softmax(-1)
        expected = exact.gather(1, targets[:, None])[:, 0]
        expected.sum().backward()
        errors[head_dtype] = max(
            (logprobs - expected).abs().max().item(), (entropies + (exact.exp() * exact).sum(-1)).abs().max().item()
        )
        gradients[head_dtype] = [
            ((got - want).norm() / want.norm()).item()
            for got, want in ((head.weight.grad, rounded.grad), (h.grad, exact_h.grad))
        ]
    assert errors["float32"] < 1e-4 and errors["auto"] > 1e-3
    assert max(gradients["float32"]) < 0.01


def test_head_weight_is_cast_once_per_pass(gqa_model, monkeypatch):
    """One cast in the forward pass and one in the backward pass, not one in each of the six chunks."""
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", 257 * 2)
    head = Policy(str(gqa_model), 64).lm.get_output_embeddings()
    casts = []

    class CastRecorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **kwargs or {})
            if function is torch.ops.aten._to_copy.default and result.shape == head.weight.shape:
                casts.append(result.dtype)
            return result

    hidden = torch.randn(12, 64, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    with CastRecorder():
        head(hidden, torch.arange(12), 1.0, True)[0].sum().backward()
    assert casts == [torch.bfloat16] * 2


def small_head(weight, hidden):
    """A SelectedRowHead of this weight, and the log-probabilities of token 0 after these rows."""
    head = SelectedRowHead(*weight.shape[::-1], bias=False, dtype=weight.dtype)
    head.weight.data = weight
    return head, head(hidden, torch.zeros(len(hidden), dtype=torch.long), 1.0, False)[0]


def test_half_weights_sum_gradients_in_float32(monkeypatch):
    """600 chunks of a row each: in bfloat16 a sum of equal terms stops growing after 256 of them."""
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", 1)
    head, logprobs = small_head(torch.zeros(16, 8, dtype=torch.bfloat16), torch.ones(600, 8, dtype=torch.bfloat16))
    logprobs.sum().backward()
    expected = torch.full((16, 8), -600 / 16)  # uniform probabilities
    expected[0] += 600
    torch.testing.assert_close(head.weight.grad.float(), expected, rtol=0.01, atol=0)


def test_head_computes_in_the_autocast_dtype():
    g = torch.Generator().manual_seed(0)
    weight, hidden = torch.randn(16, 8, generator=g), torch.randn(5, 8, generator=g)
    with torch.autocast("cpu", torch.bfloat16):
        _, logprobs = small_head(weight, hidden)
    assert torch.equal(logprobs, small_head(weight, hidden.bfloat16())[1])
    assert not torch.equal(logprobs, small_head(weight, hidden)[1])


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_in_place_lookup_matches_nn_embedding(padding_idx):
    """Repeated tokens add up, also to the gradient of an earlier pass; the padding row is never trained."""
    ids, g = torch.tensor([[4, 2, 4], [0, 2, 4]]), torch.Generator().manual_seed(0)
    weight, upstream = torch.randn(6, 3, generator=g), torch.randn(2, 3, 3, generator=g)
    gradients = []
    for kind in (torch.nn.Embedding, InPlaceEmbedding):
        embedding = kind(6, 3, padding_idx, _weight=weight.clone())
        for _ in range(2):
            (embedding(ids) * upstream).sum().backward()
        gradients.append(embedding.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


# --- packed attention -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", [0.25, 1.5])
def test_packed_attention_matches_its_definition(device, scaling):
    """softmax(scaling q k) v over the earlier tokens of the same sequence; two query heads to a key-value head."""
    lengths, g = [2, 5, 1], torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, sum(lengths), 4, generator=g).to(device) for heads in (4, 2, 2))
    layout = module.Layout.of(lengths, torch.device(device), torch.float32)
    result, _ = module.packed_attention(None, query, key, value, None, layout, scaling=scaling)
    starts = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    for start, end in itertools.pairwise(starts):
        for t in range(start, end):
            for head in range(4):
                past = slice(start, t + 1)
                weights = (scaling * key[0, head // 2, past].double() @ query[0, head, t].double()).softmax(0)
                expected = weights @ value[0, head // 2, past].double()
                torch.testing.assert_close(result[0, t, head].double(), expected, rtol=0, atol=1e-5)


def make_micro_batch(sizes=((3, 7), (12, 1), (6, 16))):
    """Random sequences in one packed row, and a mask that chooses all their response tokens."""
    g = torch.Generator().manual_seed(0)
    prompts, responses = ([torch.randint(0, 257, (pair[i],), generator=g).tolist() for pair in sizes] for i in (0, 1))
    total = sum(map(len, responses))
    batch = Batch(prompts, responses, *(torch.ones(total) for _ in range(3)))
    return pack(batch, list(range(len(sizes))), batch.forward_lengths(cut=False)), torch.ones(total, dtype=torch.bool)


def sequence_attention(calls):
    """A replacement for varlen_attn that attends within each sequence alone and records its arguments."""

    def kernel(q, k, v, cu_q, cu_k, longest_q, longest_k, *, window_size, scale, enable_gqa=False):
        calls.append({"dtypes": {q.dtype, k.dtype, v.dtype}, "shape": tuple(q.shape), "cu": cu_q.tolist()})
        assert window_size == (-1, 0) and torch.equal(cu_q, cu_k) and cu_q.dtype == torch.int32
        assert q.is_contiguous() and longest_q == longest_k == int(cu_q.diff().max())
        parts = []
        for a, b in zip(cu_q.tolist(), cu_q.tolist()[1:]):
            heads = (x[a:b].transpose(0, 1)[None] for x in (q, k, v))
            out = F.scaled_dot_product_attention(*heads, is_causal=True, scale=scale, enable_gqa=enable_gqa)
            parts.append(out[0].transpose(0, 1))
        return torch.cat(parts)

    return kernel


@pytest.mark.parametrize("mode", ["autocast", "half weights"])
def test_flash_gets_half_precision_without_padding(gqa_model, monkeypatch, mode):
    """Under autocast rotary embeddings return query and key in float32, which the kernel does not accept."""
    policy, (micro, chosen) = Policy(str(gqa_model), 64), make_micro_batch()
    if mode == "half weights":
        policy = policy.to(torch.bfloat16)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast")
    with autocast, torch.no_grad():
        padded, _, _ = policy(micro, chosen, 1.0)
        calls = []
        monkeypatch.setattr(module, "FLASH_DEVICES", ("cpu",))
        monkeypatch.setattr(module, "varlen_attn", sequence_attention(calls))
        flash, _, _ = policy(micro, chosen, 1.0)
    assert len(calls) == 2 and all(call["dtypes"] == {torch.bfloat16} for call in calls)  # one call per layer
    assert calls[0]["shape"] == (sum(micro.lengths), 2, 32)
    assert calls[0]["cu"] == [0, *torch.tensor(micro.lengths).cumsum(0).tolist()]
    torch.testing.assert_close(flash, padded, rtol=0, atol=0.15)
    assert (flash - padded).abs().mean() < 0.02


def test_float32_never_uses_flash(gqa_model, monkeypatch):
    monkeypatch.setattr(module, "FLASH_DEVICES", ("cpu",))
    monkeypatch.setattr(module, "varlen_attn", lambda *_, **__: pytest.fail("it accepts half precision only"))
    policy, (micro, chosen) = Policy(str(gqa_model), 64), make_micro_batch()
    assert policy(micro, chosen, 1.0)[0].isfinite().all()


def test_layouts_hold_only_what_their_kernel_reads(monkeypatch):
    cpu = torch.device("cpu")
    padded = module.Layout.of([2, 3], cpu, torch.bfloat16)
    assert padded.flash is padded.cu_seqlens is None and padded.pad.tolist() == [[0, 1, 0], [2, 3, 4]]
    monkeypatch.setattr(module, "FLASH_DEVICES", ("cpu",))
    flash = module.Layout.of([2, 3], cpu, torch.bfloat16)
    assert flash.pad is flash.unpad is None and flash.cu_seqlens.tolist() == [0, 2, 5]


# --- dropout and gradient checkpointing -------------------------------------------------------------------------------


def save_dropout_model(path, rate):
    """A GPT-2 with this rate in its dropout modules and its attention; the weights are the same for every rate."""
    from transformers import GPT2Config, GPT2LMHeadModel

    rates = {"attn_pdrop": rate, "embd_pdrop": rate, "resid_pdrop": rate}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=257, n_positions=128, eos_token_id=0, **rates)
        GPT2LMHeadModel(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_modules_are_never_active(tmp_path, checkpointing):
    """The update reproduces compute_logprobs, and its gradients are those of the model without dropout."""
    results = []
    for rate in (0.5, 0.0):
        path = save_dropout_model(tmp_path / str(rate), rate)
        actor, batch = make_actor(path, f"model.gradient_checkpointing={checkpointing}"), make_batch()
        batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
        results.append(update(actor, batch, learning_rate=0.0))
    (metrics, [gradients]), (_, [expected]) = results
    assert metrics["mismatch/max_abs"] < 1e-5 and metrics["grad_norm"] > 0.01
    assert_same_gradients(gradients, expected)


def test_dropout_inside_layers_is_never_active(tmp_path):
    """OPT's layers call dropout as a function, and gradient checkpointing sets layers to training mode."""
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 96, "num_hidden_layers": 2, "vocab_size": 257}
    config = OPTConfig(**sizes, num_attention_heads=2, max_position_embeddings=128, dropout=0.5, layerdrop=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        OPTForCausalLM(config).save_pretrained(tmp_path)
    actor, batch = make_actor(tmp_path, "model.gradient_checkpointing=true"), make_batch()
    batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
    assert update(actor, batch)[0]["mismatch/max_abs"] < 1e-5


def test_checkpointing_changes_no_gradient(device, tmp_path):
    """Bitwise, but for a real GPU, whose kernels add in any order."""
    path = save_random_model(tmp_path, seed=0, num_hidden_layers=4)
    (expected_metrics, [expected]), *others = (
        update(make_actor(path, f"model.gradient_checkpointing={layers}"), make_batch())
        for layers in (False, 0, 1, 3, 4, True)
    )
    for metrics, [gradients] in others:
        if device == "cuda":
            assert metrics == pytest.approx(expected_metrics, rel=1e-4, abs=ROUNDING)
            assert_same_gradients(gradients, expected)
        else:
            assert metrics == expected_metrics
            assert_bitwise_equal(gradients, expected)


def test_checkpointing_recomputes_in_updates_only(gqa_model):
    """compute_logprobs runs each layer once; an update runs it once, and recomputes the first ones once."""
    calls = {}
    for layers in ("false", "1", "true"):
        actor, batch = make_actor(gqa_model, f"model.gradient_checkpointing={layers}"), make_batch()
        passes = []
        for i, layer in enumerate(actor.lm.model.layers):
            layer.mlp.register_forward_pre_hook(lambda *_, i=i, passes=passes: passes.append(i))
        actor.compute_logprobs(batch)
        update(actor, batch)
        calls[layers] = passes
    assert calls == {"false": [0, 1, 0, 1], "1": [0, 1, 0, 1, 0], "true": [0, 1, 0, 1, 1, 0]}


# --- architectures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, "window is 8 tokens"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "packed"),
        ({"final_logit_softcapping": 30.0}, "transform their logits"),
        ({"logit_scale": 0.5}, "transform their logits"),
    ],
)
def test_unsupported_architectures_are_refused(tmp_path, tied_model, changes, message):
    """A directory of config.json alone suffices: the check precedes the loading of weights."""
    settings = json.loads((tied_model / "config.json").read_text())
    settings.pop("layer_types", None)
    (tmp_path / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(UserError, match=message):
        Policy(str(tmp_path), 64)


def test_short_attention_window_is_refused(tmp_path):
    from transformers import MistralConfig

    MistralConfig(sliding_window=32).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="window is 32 tokens"):
        Policy(str(tmp_path), 33)
    with pytest.raises(UserError, match=r"no file named model\.safetensors"):
        Policy(str(tmp_path), 32)
