"""The built-in base model, against its recipe, exact updates, its demonstrations, and the loss of transformers."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from d3s import tiny
from d3s.common import UserError
from d3s.data.synthetic import TASKS
from d3s.packing import supervised_batch
from d3s.policy import Policy
from d3s.pretrained import load_model
from d3s.shapes import TINY
from d3s.tiny import WARMUP, BatchedMuon, byte_tokenizer, ensure_base, find_model, orthogonalize, parse_name

SAMPLES = [([5, 6, 7], [8, 9, 0]), ([1], [2, 3, 4, 5, 6, 0]), ([9, 9], [0])]


def test_names_are_parsed_or_refused():
    assert (parse_name("tiny:precedence"), parse_name("tiny:countdown@7")) == (("precedence", None), ("countdown", 7))
    assert parse_name("org/tiny") is None and find_model("org/tiny") == "org/tiny"
    names = " or ".join(f"tiny:{task}" for task in TASKS)
    for name in ("tiny:", "tiny:chess@1", "tiny:precedence@", "tiny:precedence@x", "tiny:precedence@²"):
        with pytest.raises(UserError, match=f"model.name: got .*, expected {names}, optionally"):
            find_model(name)


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 5, 9), (2, 9, 5), (1, 96, 256)])
def test_orthogonalize_matches_singular_vectors(shape):
    """U f(S) V^T with f close to 1: the singular vectors stay, and the singular values come close to 1."""
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, singular, v = torch.linalg.svd(matrices, full_matrices=False)
    result = u.mT @ orthogonalize(matrices) @ v.mT
    diagonal = result.diagonal(dim1=1, dim2=2)
    assert (result - torch.diag_embed(diagonal)).abs().max() < 1e-9
    scaled = singular / singular.norm(dim=1, keepdim=True)
    for _ in range(5):  # the same polynomial on the singular values alone
        scaled = 3.4445 * scaled - 4.7750 * scaled**3 + 2.0315 * scaled**5
    assert torch.allclose(diagonal, scaled)
    assert diagonal[singular > 0.1 * singular.max()].min() > 0.6 and diagonal.max() < 1.3


def test_muon_updates_follow_the_formula():
    """Two steps of matrices of two shapes, each matrix by itself with its own momentum."""
    generator = torch.Generator().manual_seed(1)
    matrices = [torch.randn(shape, generator=generator) for shape in ((4, 6), (6, 4), (4, 6))]
    parameters = [torch.nn.Parameter(matrix.clone()) for matrix in matrices]
    optimizer = BatchedMuon(parameters, lr=0.1)
    momenta = [0.0] * 3
    for _ in range(2):
        for i, parameter in enumerate(parameters):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            momenta[i] = 0.95 * momenta[i] + parameter.grad
            update = orthogonalize((parameter.grad + 0.95 * momenta[i])[None])[0]
            matrices[i] = matrices[i] - 0.1 * max(1, len(parameter) / parameter.shape[1]) ** 0.5 * update
        optimizer.step()
    assert all(torch.allclose(p, expected, atol=1e-6) for p, expected in zip(parameters, matrices, strict=True))


def test_bases_are_reproducible_and_reused(tmp_path, capsys):
    first, second = (ensure_base("tiny:countdown", steps=3, folder=tmp_path / name) for name in "ab")
    assert first.name == second.name and capsys.readouterr().err.count("creating the built-in base model") == 2
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert ensure_base("tiny:countdown", steps=3, folder=tmp_path / "a") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written and capsys.readouterr().err == ""
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.name]
    config = json.loads((first / "config.json").read_text())
    assert {key: config[key] for key in TINY} == TINY and config["vocab_size"] == 257
    assert AutoTokenizer.from_pretrained(first).decode([0]) == "<|endoftext|>"


def test_demo_starts_from_weights_of_the_repository(tmp_path, monkeypatch, capsys):
    """They predict demonstrations that the warm-up did not show; no other base model is made of them."""
    names = []
    monkeypatch.setattr(tiny, "_warm_up", lambda task, seed, recipe, *_: names.append((task, seed, recipe["steps"])))
    paths = {task: ensure_base(f"tiny:{task}", folder=tmp_path) for task in ("precedence", "countdown")}
    assert names == [] and "creating" not in capsys.readouterr().err
    for name, steps in (("tiny:precedence@1", {}), ("tiny:precedence", {"steps": 3}), ("tiny:countdown@1", {})):
        ensure_base(name, **steps, folder=tmp_path)
    assert names == [("precedence", 1, 1400), ("precedence", 0, 3), ("countdown", 1, 1400)]

    tokenizer, limits = byte_tokenizer(), {"precedence": 0.1, "countdown": 0.2}  # nats; random weights: 5.5
    for task, path in paths.items():
        model, losses = load_model(str(path)), []
        for prompt, response in TASKS[task].demonstrations(50, seed=1):
            ids = torch.tensor([*tokenizer.encode(prompt + response), tokenizer.eos_token_id])
            first = len(tokenizer.encode(prompt))
            losses.append(F.cross_entropy(model(ids[None]).logits[0, first - 1 : -1], ids[first:], reduction="none"))
        assert torch.cat(losses).mean() < limits[task]


def test_warm_up_trains_on_demonstrations(tmp_path, monkeypatch):
    """Every response token is trained. Batches are not in the order of length."""
    update, batches = tiny.supervised_update, []

    def recorded(policy, optimizers, max_grad_norm, batch):
        muon, rest = ({id(p) for p in optimizer.param_groups[0]["params"]} for optimizer in optimizers)
        names = {name for name, p in policy.named_parameters() if id(p) in muon}
        assert names == {name for name, _ in policy.named_parameters() if name.endswith("proj.weight")} != set()
        assert rest == {id(p) for p in policy.parameters()} - muon
        batches.append(batch)
        return update(policy, optimizers, max_grad_norm, batch)

    monkeypatch.setattr(tiny, "supervised_update", recorded)
    random_state = torch.get_rng_state()
    ensure_base("tiny:countdown", steps=6, folder=tmp_path)
    assert torch.equal(torch.get_rng_state(), random_state)
    tokenizer, pairs = byte_tokenizer(), []
    for batch in batches:
        assert batch.selected.all()
        for prompt, (*response, end) in zip(batch.prompts, batch.responses, strict=True):
            assert end == tokenizer.eos_token_id
            pairs.append((tokenizer.decode(prompt), tokenizer.decode(response)))
    assert sorted(pairs) == sorted(TASKS["countdown"].demonstrations(6 * WARMUP["batch_size"], 0))
    longest = [max(map(len, batch.responses)) for batch in batches]
    assert longest != sorted(longest)


def updated(path, max_grad_norm, dropped=()):
    """A batch without the dropped tokens, and the loss and the gradients of an update with it at learning rate 0."""
    batch, policy, gradients = supervised_batch(SAMPLES), Policy(str(path), max_length=16), {}
    batch.selected[list(dropped)] = False
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(
        lambda *_: gradients.update({name: p.grad.clone() for name, p in policy.lm.named_parameters()})
    )
    loss = tiny.supervised_update(policy, [optimizer], max_grad_norm, batch)
    assert all(p.grad is None for p in policy.parameters())
    return batch, loss, gradients


@pytest.mark.parametrize("dropped", [[], [1], [0, 2, 3, 5, 8, 9]], ids=str)
def test_update_matches_padded_masked_loss(model_path, dropped):
    """Dropped tokens of the flat batch: none; inside a response; at the ends of responses and one whole response."""
    batch, loss, gradients = updated(model_path, 1e9, dropped)
    model = AutoModelForCausalLM.from_pretrained(model_path)
    rows = [torch.tensor(prompt + response) for prompt, response in SAMPLES]
    labels = [torch.cat([torch.full((len(p),), -100), torch.tensor(r)]) for p, r in SAMPLES]
    for i, label in enumerate(labels):
        label[-len(SAMPLES[i][1]) :][~batch.selected[batch.tokens_of(i)]] = -100
    ids, labels = (pad_sequence(x, batch_first=True, padding_value=v) for x, v in ((rows, 0), (labels, -100)))
    expected = model(input_ids=ids, labels=labels).loss
    expected.backward()
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    for name, parameter in model.named_parameters():
        assert torch.allclose(gradients[name], parameter.grad, atol=1e-5), name
    _, _, clipped = updated(model_path, 0.25, dropped)
    assert torch.stack([gradient.norm() for gradient in clipped.values()]).norm() == pytest.approx(0.25, rel=1e-3)
