"""Updates of the warm-up, against the padded batch and the loss of transformers."""

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from d3s.packing import supervised_batch
from d3s.policy import Policy
from d3s.tiny import supervised_update

SAMPLES = [([5, 6, 7], [8, 9, 0]), ([1], [2, 3, 4, 5, 6, 0]), ([9, 9], [0])]


def updated(path, batch, max_grad_norm):
    """The loss of an update with learning rate 0, and its gradients."""
    policy, gradients = Policy(str(path), max_length=16), {}
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(
        lambda *_: gradients.update({name: p.grad.clone() for name, p in policy.lm.named_parameters()})
    )
    loss = supervised_update(policy, [optimizer], max_grad_norm, batch)
    assert all(p.grad is None for p in policy.parameters())
    return loss, gradients


@pytest.mark.parametrize("dropped", [[], [1], [0, 2, 3, 5, 8, 9]], ids=str)
def test_update_matches_padded_masked_loss(model_path, dropped):
    """Dropped tokens of the flat batch: none; inside a response; at the ends of responses and one whole response."""
    batch = supervised_batch(SAMPLES)
    batch.selected[dropped] = False
    model = AutoModelForCausalLM.from_pretrained(model_path)
    rows = [torch.tensor(prompt + response) for prompt, response in SAMPLES]
    labels = [torch.cat([torch.full((len(p),), -100), torch.tensor(r)]) for p, r in SAMPLES]
    for i, label in enumerate(labels):
        label[-len(SAMPLES[i][1]) :][~batch.selected[batch.tokens_of(i)]] = -100
    ids, labels = (pad_sequence(x, batch_first=True, padding_value=v) for x, v in ((rows, 0), (labels, -100)))
    expected = model(input_ids=ids, labels=labels).loss
    expected.backward()
    loss, gradients = updated(model_path, batch, 1e9)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    for name, parameter in model.named_parameters():
        assert torch.allclose(gradients[name], parameter.grad, atol=1e-5), name


def test_gradients_are_clipped(tied_model):
    _, gradients = updated(tied_model, supervised_batch(SAMPLES), 0.25)
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    assert norm.item() == pytest.approx(0.25, rel=1e-3)
