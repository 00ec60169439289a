"""What a GPU would do, as far as a CPU can tell: which precision the flash kernel gets, and that of the head."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from d3s import policy as module
from d3s.packing import Batch, pack
from d3s.policy import CHUNK_ELEMENTS, Policy
from tests.helpers.models import save_random_model


def make_micro(sizes=((3, 7), (12, 1), (6, 16))):
    g = torch.Generator().manual_seed(0)
    prompts, responses = ([torch.randint(0, 257, (pair[i],), generator=g).tolist() for pair in sizes] for i in (0, 1))
    total = sum(map(len, responses))
    batch = Batch(prompts, responses, *(torch.ones(total) for _ in range(3)))
    return pack(batch, list(range(len(sizes))), batch.forward_lengths(cut=False)), torch.ones(total, dtype=torch.bool)


def one_by_one(seen):
    """A stand-in for varlen_attn: attention of each sequence alone; it notes what it is given."""

    def kernel(q, k, v, cu_q, cu_k, longest_q, longest_k, *, window_size, scale, enable_gqa=False):
        seen.append({"dtypes": {q.dtype, k.dtype, v.dtype}, "shape": tuple(q.shape), "cu": cu_q.tolist()})
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
def test_flash_gets_half_precision_and_no_padding(gqa_model, monkeypatch, mode):
    """Under autocast rotary embeddings leave query and key in float32, which the kernel does not take."""
    policy, (micro, chosen) = Policy(str(gqa_model), 64), make_micro()
    if mode == "half weights":
        policy = policy.to(torch.bfloat16)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast")
    with autocast, torch.no_grad():
        padded, _, _ = policy(micro, chosen, 1.0)
        seen = []
        monkeypatch.setattr(module, "FLASH_DEVICES", ("cpu",))
        monkeypatch.setattr(module, "flash_kernel", lambda: (one_by_one(seen), True))
        flash, _, _ = policy(micro, chosen, 1.0)
    assert len(seen) == 2 and all(call["dtypes"] == {torch.bfloat16} for call in seen)  # one call a layer
    assert seen[0]["shape"] == (sum(micro.lengths), 2, 32)
    assert seen[0]["cu"] == [0, *torch.tensor(micro.lengths).cumsum(0).tolist()]
    torch.testing.assert_close(flash, padded, rtol=0, atol=0.15)
    assert (flash - padded).abs().mean() < 0.02


def test_float32_never_takes_flash(gqa_model, monkeypatch):
    monkeypatch.setattr(module, "FLASH_DEVICES", ("cpu",))
    monkeypatch.setattr(module, "flash_kernel", lambda: pytest.fail("the kernel takes half precision only"))
    policy, (micro, chosen) = Policy(str(gqa_model), 64), make_micro()
    assert policy(micro, chosen, 1.0)[0].isfinite().all()


def test_layouts_make_only_what_their_kernel_reads(monkeypatch):
    cpu = torch.device("cpu")
    padded = module.Layout.of([2, 3], cpu, torch.bfloat16)
    assert padded.flash is padded.cu_seqlens is None and padded.pad.tolist() == [[0, 1, 0], [2, 3, 4]]
    monkeypatch.setattr(module, "FLASH_DEVICES", ("cpu",))
    flash = module.Layout.of([2, 3], cpu, torch.bfloat16)
    assert flash.pad is flash.unpad is None and flash.cu_seqlens.tolist() == [0, 2, 5]


@pytest.mark.parametrize("chunk", [257, 257 * 5, 2**24])
def test_a_float32_head_rounds_no_logits(tmp_path, monkeypatch, chunk):
    """Against float64: log-probabilities of a head in half precision are off by the rounding of a logit, with
    head_dtype float32 only by that of the sums; gradients are those of float64, rounded to half precision once."""
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", chunk)
    path = save_random_model(tmp_path / "model", 0, tie_word_embeddings=False)
    g = torch.Generator().manual_seed(1)
    hidden = torch.randn(12, 64, generator=g).bfloat16()
    targets = torch.randint(0, 257, (12,), generator=g)
    errors, gradients = {}, {}
    for head_dtype in ("auto", "float32"):
        head = Policy(str(path), 64, head_dtype=head_dtype).lm.get_output_embeddings()
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
            ((ours - theirs).norm() / theirs.norm()).item()
            for ours, theirs in ((head.weight.grad, rounded.grad), (h.grad, exact_h.grad))
        ]
    assert errors["float32"] < 1e-4 and errors["auto"] > 1e-3
    assert max(gradients["float32"]) < 0.01


def test_the_heads_weight_is_cast_once_a_pass(gqa_model, monkeypatch):
    """And not once a chunk, of which there are six here."""
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", 257 * 2)
    head = Policy(str(gqa_model), 64).lm.get_output_embeddings()
    casts = []

    class Casts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **kwargs or {})
            if function is torch.ops.aten._to_copy.default and result.shape == head.weight.shape:
                casts.append(result.dtype)
            return result

    hidden = torch.randn(12, 64, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    with Casts():
        head(hidden, torch.arange(12), 1.0, True)[0].sum().backward()
    assert casts == [torch.bfloat16] * 2
