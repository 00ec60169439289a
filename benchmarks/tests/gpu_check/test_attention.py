"""The stage `attention` on the CPU: it holds, and it does not with wrong kernels."""

import pytest
import torch

from benchmarks.gpu_check import attention
from benchmarks.tests.stages import judged, not_held
from d3s import policy


@pytest.fixture
def one_shape(monkeypatch):
    """A single layout of heads."""
    monkeypatch.setattr(attention, "HEADS", [(4, 2)])
    monkeypatch.setattr(attention, "HEAD_SIZES", [64])


def test_attention_holds_on_the_cpu():
    rows = list(attention.run("cpu", 60))
    assert not not_held(rows)
    assert len(judged(rows)) == 18 + 2 * 3  # six layouts in three modes; error, gradient and calls of two models
    assert "heads 28/4 of 128, autocast: relative error" in [row.what for row in rows]


real = policy.packed_attention


def one_sequence(module, query, key, value, mask, layout, **options):
    """Attend across the boundaries of sequences."""
    layout = policy.Layout.of([query.shape[2]], query.device, torch.float32)
    return real(module, query, key, value, mask, layout, **options)


def no_key_gradient(module, query, key, *args, **options):
    return real(module, query, key * 0.5 + key.detach() * 0.5, *args, **options)


@pytest.mark.parametrize("wrong", [one_sequence, no_key_gradient])
def test_wrong_attention_is_noticed(one_shape, monkeypatch, wrong):
    monkeypatch.setattr(policy, "packed_attention", wrong)
    broken = not_held(attention.run("cpu", 60))
    for mode in attention.MODES:
        assert f"heads 4/2 of 64, {mode}: relative error" in broken


# --- the flash kernel ------------------------------------------------------------------------------------------------


def attend(q, k, v, ends):
    """Causal attention by its definition over the sequences of [L, heads, dim] that end at `ends`."""
    parts, start = [], 0
    for end in ends:
        q1, k1, v1 = (x[start:end].transpose(0, 1).float() for x in (q, k, v))
        k1, v1 = (x.repeat_interleave(len(q1) // len(x), 0) for x in (k1, v1))
        later = torch.ones(end - start, end - start, dtype=torch.bool).triu(1)
        scores = (q1 @ k1.mT / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
        parts.append((scores.softmax(-1) @ v1).transpose(0, 1))
        start = end
    return torch.cat(parts).to(q.dtype)


@torch.library.custom_op("d3s_tests::_varlen_attn", mutates_args=())
def stand_in(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu: torch.Tensor) -> torch.Tensor:
    """An operator with the name of PyTorch's, so that the profiler must find it."""
    return attend(q, k, v, cu.tolist()[1:])


def backward_of_stand_in(ctx, grad):
    inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors[:3]]
    with torch.enable_grad():
        out = attend(*inputs, ctx.saved_tensors[3].tolist()[1:])
    return *torch.autograd.grad(out, inputs, grad), None


stand_in.register_autograd(
    backward_of_stand_in, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


@pytest.fixture
def flash(monkeypatch):
    """flash(factor) lets packed_attention call the stand-in on the CPU; its results are multiplied by `factor`."""

    def use(factor: float) -> None:
        def kernel(q, k, v, cu, *_, **__):
            return factor * stand_in(q, k, v, cu)

        monkeypatch.setattr(policy, "FLASH_DEVICES", ("cpu",))
        monkeypatch.setattr(policy, "varlen_attn", kernel)

    return use


def test_flash_kernel_is_required_in_half_precision(flash):
    """Without it the padded path computes the same values, which on a GPU must not pass."""
    mode = "autocast"
    _, padded = attention.compare((4, 2), 64, mode, "cpu")
    assert not attention.kernel_row("operators", padded, "cuda", mode).held
    flash(1.0)
    errors, ran = attention.compare((4, 2), 64, mode, "cpu")
    assert ran == {"varlen_attn"} and attention.kernel_row("operators", ran, "cuda", mode).held
    assert max(errors.values()) < attention.LIMITS[mode]
    assert not attention.kernel_row("operators", ran | padded, "cuda", mode).held


def test_flash_kernel_is_called_once_per_layer(flash):
    flash(1.0)
    rows = {row.what: row for row in attention.model_rows("cpu")}
    assert rows["model, autocast: operators"].measured == "varlen_attn"
    assert rows["model, autocast: attention calls"].measured == "2" and not not_held(rows.values())
    flash(0.9)
    assert "model, autocast: cosine of the gradients" not in not_held(rows.values())
    assert "model, autocast: mean error of log-probabilities" in not_held(attention.model_rows("cpu"))
