"""Updates of the warm-up, against the padded batch and the loss of transformers."""

import pytest
import torch

from d3s.packing import supervised_batch
from d3s.policy import Policy
from d3s.tiny import supervised_update

SAMPLES = [([5, 6, 7], [8, 9, 0]), ([1], [2, 3, 4, 5, 6, 0]), ([9, 9], [0])]


def masked_loss_gradients(path, labels_of):
    """Loss and gradients of transformers on padded rows; `labels_of(i, ids, start)` are the labels of a row."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    width = max(len(p) + len(r) for p, r in SAMPLES)
    rows = [(p + r, len(p)) for p, r in SAMPLES]
    ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in rows])
    labels = [labels_of(i, row, start) for i, (row, start) in enumerate(rows)]
    loss = model(input_ids=ids, labels=torch.tensor([row + [-100] * (width - len(row)) for row in labels])).loss
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


class Recorder(torch.optim.SGD):
    """SGD with learning rate 0 that keeps the gradients of its step."""

    def __init__(self, policy):
        super().__init__(policy.parameters(), lr=0.0)
        self.policy = policy

    def step(self):
        self.gradients = {name: p.grad.clone() for name, p in self.policy.lm.named_parameters()}


@pytest.mark.parametrize("dropped", [[], [1], [0, 2, 3, 5, 8, 9]], ids=str)
def test_update_matches_padded_masked_loss(model_path, dropped):
    """Dropped tokens of the flat batch: none; inside a response; at the ends of responses and one whole response."""
    batch = supervised_batch(SAMPLES)
    batch.selected[dropped] = False
    policy = Policy(str(model_path), max_length=16)
    recorder = Recorder(policy)
    got = supervised_update(policy, [recorder], 1e9, batch)

    def labels_of(i, ids, start):
        kept = batch.selected[batch.tokens_of(i)].tolist()
        return [-100] * start + [token if keep else -100 for token, keep in zip(ids[start:], kept, strict=True)]

    loss, gradients = masked_loss_gradients(model_path, labels_of)
    assert got == pytest.approx(loss, abs=1e-5)
    assert recorder.gradients.keys() == gradients.keys()
    for name, expected in gradients.items():
        assert torch.allclose(recorder.gradients[name], expected, atol=1e-5), name
    assert all(p.grad is None for p in policy.parameters())


def test_gradients_are_clipped(tied_model):
    policy = Policy(str(tied_model), max_length=16)
    recorder = Recorder(policy)
    supervised_update(policy, [recorder], 0.25, supervised_batch(SAMPLES))
    norm = torch.stack([gradient.norm() for gradient in recorder.gradients.values()]).norm()
    assert norm.item() == pytest.approx(0.25, rel=1e-3)
