"""Token criteria of the shelf, against the gradient by autograd and against a loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.methods.gmts import gmts
from d3s.methods.likely_tokens import likely_tokens


@given(st.integers(0, 2**31), st.integers(2, 9))
def test_gmts_is_half_the_gradient_at_the_logits(seed, vocabulary):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, vocabulary, generator=generator, dtype=torch.float64, requires_grad=True)
    advantages = torch.randn(5, generator=generator, dtype=torch.float64)
    sampled = torch.randint(vocabulary, (5, 1), generator=generator)
    logprobs = logits.log_softmax(-1).gather(1, sampled)[:, 0]
    (gradient,) = torch.autograd.grad(-(advantages * logprobs).sum(), logits)
    torch.testing.assert_close(2 * gmts(advantages, logprobs.detach()), gradient.abs().sum(1))


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 3), st.floats(0.01, 1)), max_size=8), st.floats(0, 1))
def test_unlikely_tokens_rank_last(tokens, least):
    advantages, entropies, probabilities = torch.tensor(tokens, dtype=torch.float64).view(-1, 3).unbind(1)
    logprobs = probabilities.log()
    found = likely_tokens(advantages, entropies, logprobs, least).tolist()
    expected = [-1 if p < least else abs(a) * h for a, h, p in zip(advantages, entropies, logprobs.exp(), strict=True)]
    assert found == pytest.approx([float(x) for x in expected])


def test_probability_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"least must be in \[0, 1\], not 1.5"):
        likely_tokens(*torch.zeros(3, 1), least=1.5)
