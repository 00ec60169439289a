"""The policy network's head, packed attention and dropout, against float64 and single sequences."""

import itertools

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.architectures import save_random_model as save_architecture
from d3s import policy as module
from d3s.packing import Batch, pack
from d3s.policy import CHUNK_ELEMENTS, InPlaceEmbedding, Policy, SelectedRowHead
from tests.helpers.actors import SIZES, assert_bitwise_equal, make_actor, make_batch, update
from tests.helpers.models import save_random_model
from tests.helpers.rounding import ROUNDING, assert_same_gradients, assert_same_values

# --- head -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 257 * 3, 2**24])
def test_gradients_flow_through_chosen_tokens_only(monkeypatch, gqa_model, chunk):
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    batch, policy = make_batch(), Policy(str(gqa_model), 64)
    micro = pack(batch, list(range(len(SIZES))), batch.forward_lengths())
    chosen = batch.selected[micro.flat]
    chosen_logprobs, logprobs, entropies = policy(micro, chosen, 0.8, with_unchosen=True, entropies=True)
    assert chosen_logprobs.requires_grad and not logprobs.requires_grad and not entropies.requires_grad
    assert torch.equal(chosen_logprobs, logprobs[chosen])
    _, expected, expected_entropies = policy(micro, torch.ones_like(chosen), 0.8, entropies=True)
    assert_same_values(logprobs, expected)
    assert_same_values(entropies, expected_entropies, largest=10.0)
    _, logprobs, entropies = policy(micro, chosen, 0.8)
    assert not logprobs[~chosen].any() and not entropies.any()


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
        rounded, exact_h = (x.detach().bfloat16().double().requires_grad_() for x in (head.weight, hidden))
        exact = (exact_h @ rounded.T / 0.7).log_softmax(-1)
        expected = exact.gather(1, targets[:, None])[:, 0]
        expected.sum().backward()
        pairs = ((logprobs, expected), (entropies, -(exact.exp() * exact).sum(-1)))
        errors[head_dtype] = max((got - want).abs().max().item() for got, want in pairs)
        pairs = ((head.weight.grad, rounded.grad), (h.grad, exact_h.grad))
        gradients[head_dtype] = max(((got - want).norm() / want.norm()).item() for got, want in pairs)
    assert errors["float32"] < 1e-4 and errors["auto"] > 1e-3 and gradients["float32"] < 0.01


@pytest.mark.parametrize("chunk", [257, 2**24])
@pytest.mark.parametrize(("scale", "cap"), [(0.25, None), (1.0, 3.0), (4.0, 2.5)])
def test_scaled_and_capped_logits_match_float64(monkeypatch, scale, cap, chunk):
    """Against log_softmax over all logits, differentiated by autograd."""
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    g = torch.Generator().manual_seed(2)
    weight, hidden = torch.randn(257, 16, generator=g), torch.randn(7, 16, generator=g).requires_grad_()
    targets, upstream = torch.randint(0, 257, (7,), generator=g), torch.randn(7, generator=g)
    head = SelectedRowHead(16, 257, bias=False)
    head.weight.data, head.scale, head.cap = weight, scale, cap
    logprobs, entropies = head(hidden, targets, 0.7, True)
    (logprobs * upstream).sum().backward()
    exact_weight, exact_hidden = (x.detach().double().requires_grad_() for x in (weight, hidden))
    logits = scale * exact_hidden @ exact_weight.T
    exact = ((cap * (logits / cap).tanh() if cap else logits) / 0.7).log_softmax(-1)
    expected = exact.gather(1, targets[:, None])[:, 0]
    (expected * upstream).sum().backward()
    for got, want in (
        (logprobs, expected),
        (entropies, -(exact.exp() * exact).sum(-1)),
        (hidden.grad, exact_hidden.grad),
        (head.weight.grad, exact_weight.grad),
    ):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


def small_head(weight, hidden):
    """A SelectedRowHead of this weight, and the log-probabilities of token 0 after these rows."""
    head = SelectedRowHead(*weight.shape[::-1], bias=False, dtype=weight.dtype)
    head.weight.data = weight
    return head, head(hidden, torch.zeros(len(hidden), dtype=torch.long), 1.0, False)[0]


def test_head_is_stable_for_large_logits():
    """Exponentials of the logits overflow float32; their differences are rounded by a relative 6e-8."""
    weight = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)).index_fill_(1, torch.tensor(0), 1.0)
    hidden = torch.tensor([[400.0, 1, -1, 2, 0, 3, -2, 1]])
    exact = (hidden.double() @ weight.double().T).log_softmax(-1)[:, 0]
    torch.testing.assert_close(small_head(weight, hidden)[1].double(), exact, rtol=0, atol=4e-4)


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


def test_scaled_embedding_accumulates_in_place(tmp_path):
    """Gemma 3's, which the head shares, has the gradients of autograd."""
    path, batch, gradients = save_architecture("gemma3_text", tmp_path), make_batch(), []
    micro = pack(batch, list(range(len(SIZES))), batch.forward_lengths())
    for kind in (None, InPlaceEmbedding):
        policy = Policy(str(path), 64)
        if kind:
            policy.accumulate_in_place()
            assert isinstance(policy.lm.get_input_embeddings(), kind) and policy.lm.lm_head.in_place
        policy(micro, torch.ones(len(batch.selected), dtype=torch.bool), 1.0)[0].sum().backward()
        gradients.append({name: parameter.grad for name, parameter in policy.lm.named_parameters()})
    assert_same_gradients(*gradients)


# --- packed attention -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("scaling", "window"), [(0.25, None), (1.5, None), (0.25, 5), (0.25, 2), (1.5, 1)])
def test_packed_attention_matches_its_definition(device, scaling, window, dtype):
    """softmax(scaling q k) v over the earlier tokens of the same sequence, at most `window` with the token itself; two
    query heads to a key-value head.

    The first and the last sequence share their first two tokens.
    """
    sequences, g = [[0, 1, 2], [3, 4, 5, 6, 7], [8], [0, 1, 9, 10]], torch.Generator().manual_seed(0)
    query, key, value = tensors = [torch.randn(1, heads, 11, 4, generator=g) for heads in (4, 2, 2)]
    lengths, places = list(map(len, sequences)), torch.tensor([*itertools.chain(*sequences)])
    layout = module.Layout.of(lengths, torch.device(device), dtype, places=places)
    options = {"scaling": scaling, "sliding_window": window}
    result, _ = module.packed_attention(None, *(x.to(device) for x in tensors), None, layout, **options)
    for sequence in sequences:
        for end, t in enumerate(sequence, start=1):
            for head in range(4):
                past = sequence[max(0, end - (window or end)) : end]
                weights = (scaling * key[0, head // 2, past].double() @ query[0, head, t].double()).softmax(0)
                expected = weights @ value[0, head // 2, past].double()
                close = 1e-5 if result.dtype == torch.float32 else 0.03
                torch.testing.assert_close(result[0, t, head].cpu().double(), expected, rtol=0, atol=close)


@pytest.mark.parametrize("mode", ["autocast", "half weights", "float32"])
def test_half_precision_runs_on_the_flash_kernel(pretended, gqa_model, monkeypatch, mode):
    """Without padding; helpers/pretended_device.py has what it accepts. Float32 runs on padded rows."""
    from tests.helpers.pretended_device import flash_attention

    batch, calls = make_batch(), []
    micro = pack(batch, list(range(len(SIZES))), batch.forward_lengths())
    policy = Policy(str(gqa_model), 64).to("cuda", torch.bfloat16 if mode == "half weights" else torch.float32)

    def recorded(query, *arguments, **options):
        calls.append(tuple(query.shape))
        return flash_attention(query, *arguments, **options)

    monkeypatch.setattr(module, "varlen_attn", recorded)
    results = []
    for devices in (("cuda",), ()):
        monkeypatch.setattr(module, "FLASH_DEVICES", devices)
        with torch.autocast("cuda", torch.bfloat16, enabled=mode == "autocast"), torch.no_grad():
            results.append(policy(micro, torch.ones_like(batch.selected), 1.0)[0].cpu())
    expected = [] if mode == "float32" else [(sum(micro.lengths), 2, 32)] * 2  # of two layers, the shared prompt twice
    assert calls == expected
    assert micro.input_ids.shape[1] == sum(micro.lengths) - 6
    torch.testing.assert_close(*results, rtol=0, atol=0.15)
    assert (results[0] - results[1]).abs().mean() < 0.02


# --- dropout and gradient checkpointing -------------------------------------------------------------------------------


# OPT's layers call dropout as a function, and gradient checkpointing sets layers to training mode.
DROPOUT = {
    "gpt2": ({"n_embd": 64, "n_layer": 2, "n_head": 2}, ["attn_pdrop", "embd_pdrop", "resid_pdrop"]),
    "opt": (
        {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 2},
        ["dropout", "layerdrop"],
    ),
}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", DROPOUT)
def test_dropout_is_never_active(tmp_path, kind, checkpointing):
    """The update reproduces compute_logprobs, and its gradients are those of the model without dropout."""
    results, (sizes, names) = [], DROPOUT[kind]
    for rate in (0.5, 0.0):
        config = AutoConfig.for_model(kind, vocab_size=257, eos_token_id=0, **sizes, **dict.fromkeys(names, rate))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / str(rate))
        actor, batch = make_actor(tmp_path / str(rate), f"model.gradient_checkpointing={checkpointing}"), make_batch()
        batch.rollout_logprobs = actor.compute_logprobs(batch)[0]
        results.append(update(actor, batch, learning_rate=0.0))
    (metrics, [gradients]), (_, [expected]) = results
    assert metrics["mismatch/max_abs"] < 1e-5 and metrics["grad_norm"] > 0.01
    assert_same_gradients(gradients, expected)


def test_checkpointing_recomputes_layers_of_updates_alone(device, tmp_path):
    """And changes no gradient: bitwise, but for a real GPU, whose kernels add in any order."""
    path = save_random_model(tmp_path, seed=0, num_hidden_layers=4)
    expected = None
    for layers, recomputed in (("false", []), ("0", []), ("1", [0]), ("3", [2, 1, 0]), ("true", [3, 2, 1, 0])):
        actor, calls = make_actor(path, f"model.gradient_checkpointing={layers}"), []
        for i, layer in enumerate(actor.lm.model.layers):
            layer.mlp.register_forward_pre_hook(lambda *_, i=i, calls=calls: calls.append(i))
        actor.compute_logprobs(make_batch())
        metrics, [gradients] = update(actor, make_batch())
        assert calls == [0, 1, 2, 3, 0, 1, 2, 3, *recomputed]
        expected = expected or (metrics, gradients)
        if device == "cuda":
            assert metrics == pytest.approx(expected[0], rel=1e-4, abs=ROUNDING)
            assert_same_gradients(gradients, expected[1])
        else:
            assert metrics == expected[0]
            assert_bitwise_equal(gradients, expected[1])


# --- architectures ----------------------------------------------------------------------------------------------------

RECURRENT = ["qwen3_5_text", "lfm2", "falcon_h1", "nemotron_h", "granitemoehybrid"]


@pytest.mark.parametrize(
    "name", ["qwen3", "mistral", "gemma3_text", "exaone4", "gemma2", "granite", "cohere2", *RECURRENT]
)
def test_sequences_of_a_micro_batch_do_not_mix(tmp_path, name):
    """Against each sequence alone in transformers, with a neighbor that is longer and then another one."""
    path, tokens = save_architecture(name, tmp_path), [7, 8, 9, 10, 11]
    policy = Policy(str(path), 64)
    lm = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    for mixer in (part for part in lm.modules() if hasattr(part, "time_step_limit")):
        mixer.time_step_limit = lm.config.time_step_limit  # as when it generates
    for neighbor in ([5, 6, 7, 8, 9, 10, 11], [200, 1, 4, 77, 31, 8, 250]):
        zeros = torch.zeros(2 * len(tokens))
        batch = Batch([neighbor, [40, 41, 42]], [tokens, tokens], zeros, zeros, zeros)
        micro = pack(batch, [0, 1], batch.forward_lengths())
        logprobs, _, entropies = policy(micro, torch.ones(len(zeros), dtype=torch.bool), 1.0, entropies=True)
        for part, prompt in ((slice(0, 5), neighbor), (slice(5, 10), [40, 41, 42])):
            ids = torch.tensor([[*prompt, *tokens]])
            exact = lm(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            assert_same_values(logprobs[part], exact.gather(1, ids[0, len(prompt) :, None])[:, 0])
            assert_same_values(entropies[part], -(exact.exp() * exact).sum(-1), largest=10.0)


@pytest.mark.parametrize(("name", "length", "padded"), [("exaone4", 8, 0), ("exaone4", 9, 1), ("mistral", 9, 0)])
def test_rows_are_padded_beyond_an_attention_window(tmp_path, name, length, padded):
    """Of families whose layers do not tell it."""
    assert Policy(str(save_architecture(name, tmp_path)), length).padded == bool(padded)
