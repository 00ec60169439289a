"""A supervised run in this process: pruned gradients against a full computation, order, metrics."""

import signal

import pytest
import torch
from torch.nn.functional import cross_entropy

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.packing import supervised_batch
from d3s.sft.trainer import SftTrainer
from tests.helpers.actors import tokens_to_run
from tests.helpers.command_line import lines
from tests.helpers.data_files import write_rows

PRUNED = ["sft.prune={rule: 'd3s.methods.q_tuning:q_tuning', samples: 0.5, tokens: 0.5}"]


@pytest.fixture
def trainer(tied_model, tmp_path):
    """trainer(overrides): a run over 40 demonstrations."""
    made = []
    settings = [
        f"model.name={tied_model}", f"train.output_dir={tmp_path / 'run'}", "train.steps=3", "data.limit=40",
        "data.path=synthetic:countdown", "train.prompts_per_step=8", "optim.max_grad_norm=1e9", "optim.warmup_steps=0",
    ]  # fmt: skip

    def make(*overrides):
        made.append(SftTrainer(load_config(["configs/sft.yaml"], [*settings, *overrides])))
        return made[-1]

    yield make
    for run in made:
        run.close()


def masked_gradients(model_path, batch):
    """Gradients of the mean cross-entropy of the selected tokens, from all logits of one sample at a time."""
    from transformers import AutoModelForCausalLM

    model, loss = AutoModelForCausalLM.from_pretrained(model_path), 0.0
    for i, (prompt, response) in enumerate(zip(batch.prompts, batch.responses, strict=True)):
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        losses = cross_entropy(logits, torch.tensor(response), reduction="none")
        loss = loss + (losses * batch.selected[batch.tokens_of(i)]).sum() / batch.selected.sum()
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("overrides", [[], PRUNED, [*PRUNED, "train.max_tokens_per_microbatch=60"]], ids=len)
def test_gradient_is_that_of_the_masked_loss(trainer, tied_model, overrides):
    """Dropped samples are not run, and kept ones end at their last kept token."""
    run, gradients = trainer(*overrides), {}
    run.actor.optimizer.optimizer.register_step_pre_hook(
        lambda *_: gradients.update({name: p.grad.clone() for name, p in run.actor.lm.named_parameters()})
    )
    batch = next(run.batches())
    shares = run.prune(batch) if overrides else {"pruning/tokens": 1.0}
    metrics = run.update(batch)
    loss, expected = masked_gradients(tied_model, batch)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4)
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-5), name
    assert metrics["selection/tokens"] == int(batch.selected.sum())
    assert metrics["selection/tokens"] == pytest.approx(shares["pruning/tokens"] * len(batch.selected))
    lengths = batch.forward_lengths(batch.selected)
    assert metrics["selection/tokens_forwarded"] == tokens_to_run(batch, batch.selected)
    assert (min(lengths) == 0) == bool(overrides)


def test_scores_are_those_of_the_model_before_the_update(trainer, tied_model):
    """The samples that stay are those that perplexities and entropies of transformers' logits select."""
    from transformers import AutoModelForCausalLM

    from d3s.methods.q_tuning import divide_samples

    run = trainer("sft.prune={rule: 'd3s.methods.q_tuning:q_tuning', samples: 0.5, tokens: 1}")
    batch = next(run.batches())
    run.prune(batch)
    model, perplexities, entropies = AutoModelForCausalLM.from_pretrained(tied_model), [], []
    for prompt, response in zip(batch.prompts, batch.responses, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        perplexities.append(cross_entropy(logits, torch.tensor(response)).exp())
        entropies.append(torch.distributions.Categorical(logits=logits).entropy().mean())
    kept = torch.stack(divide_samples(torch.stack(perplexities), torch.stack(entropies), 0.5)).any(0)
    assert torch.equal(batch.selected, kept[batch.sequence_ids])


def sequences(samples):
    return [tuple(prompt + response) for prompt, response in samples]


def test_every_pass_takes_each_demonstration_once(trainer):
    run, taken = trainer("train.steps=10"), []
    for batch in run.batches():
        taken += sequences(zip(batch.prompts, batch.responses))
        run.state.step += 1
    assert sorted(taken[:40]) == sorted(taken[40:]) == sorted(sequences(run.samples)) and taken[:40] != taken[40:]


def test_metrics_name_what_was_trained_also_with_adapters(trainer, tmp_path):
    assert trainer(*PRUNED, "lora.rank=2", "checkpoint.every=0").train() == 0
    names = {path.name for path in (tmp_path / "run" / "adapter").iterdir()}
    assert names >= {"adapter_config.json", "adapter_model.safetensors"}
    steps = lines(tmp_path / "run/metrics.jsonl")
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        assert 0 < step["selection/tokens"] < step["selection/tokens_total"]
        assert step["pruning/samples"] >= 0.5 and step["loss"] > 0 and step["grad_norm"] > 0
    assert steps[-1]["tokens_trained"] == sum(step["selection/tokens"] for step in steps)


def test_control_needs_no_scores(trainer, monkeypatch):
    run = trainer("sft.prune={rule: 'd3s.methods.q_tuning:random_parts', samples: 0.5, tokens: 0.5}")
    monkeypatch.setattr(run.actor, "compute_logprobs", None)  # a call would fail
    batch, again = (supervised_batch(run.samples[:8]) for _ in range(2))
    assert run.prune(batch)["pruning/samples"] == 0.5
    run.prune(again)
    assert torch.equal(batch.selected, again.selected)
    run.state.step += 1
    run.prune(again)
    assert not torch.equal(batch.selected, again.selected)


def test_held_out_loss_is_that_of_untrained_samples(trainer, tied_model, tmp_path, capsys):
    """Before and after training and every second step, against the cross-entropy of transformers' logits."""
    run = trainer("sft.held_out=0.2", "eval.every=2", "train.steps=5")
    held_out = run.held_out
    texts = set(sequences(zip(held_out.prompts, held_out.responses)))
    assert len(texts) == 8 and len(run.samples) == 32 and not texts & set(sequences(run.samples))
    assert run.train() == 0
    steps = lines(tmp_path / "run/metrics.jsonl")
    measured = {line["step"]: line["held_out/loss"] for line in steps if "held_out/loss" in line}
    assert list(measured) == [2, 4, 5]
    shown = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("held-out loss")]
    before, after = (masked_gradients(path, held_out)[0] for path in (tied_model, tmp_path / "run" / "model"))
    assert shown == [f"{value:.4f}" for value in (before, *measured.values())]
    assert measured[5] == pytest.approx(after, rel=1e-4)


def test_copies_of_held_out_samples_are_not_trained(trainer, tmp_path):
    """And the share is what was asked for, though one demonstration is written eight times."""
    rows = [{"prompt": f"{max(0, i // 2 - 3)}+1=", "response": "1"} for i in range(20)]
    options = f"data.path={write_rows(tmp_path / 'rows.jsonl', rows)}", "data.limit=null", "eval.every=2"
    run = trainer("sft.held_out=0.2", *options)
    held_out = sequences(zip(run.held_out.prompts, run.held_out.responses))
    assert len(held_out) == 4 and len(set(held_out)) == 2 and len(run.samples) == 16
    assert not set(held_out) & set(sequences(run.samples))
    for share, held_out in (("0.05", "none"), ("0.99", "all")):
        with pytest.raises(UserError, match=f"^sft.held_out: got {share}, which is {held_out} of 20 demonstrations"):
            trainer(f"sft.held_out={share}", *options)


def test_signal_finishes_the_step_and_saves(trainer, tmp_path, monkeypatch):
    run = trainer("checkpoint.every=0")
    update = run.update
    monkeypatch.setattr(run, "update", lambda batch: signal.raise_signal(signal.SIGTERM) or update(batch))
    assert run.train() == 128 + signal.SIGTERM
    assert [step["step"] for step in lines(tmp_path / "run/metrics.jsonl")] == [1]
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step_000001"]


def test_failing_evaluation_loses_no_step_that_is_due(trainer, tmp_path, monkeypatch):
    run = trainer("sft.held_out=0.2", "eval.every=2", "checkpoint.every=2", "train.steps=4")
    losses = iter([1.0])
    monkeypatch.setattr(run, "held_out_loss", lambda: next(losses))
    with pytest.raises(StopIteration):
        run.train()
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step_000002"]
    assert [line["step"] for line in lines(tmp_path / "run/metrics.jsonl")] == [1, 2]


def test_dropped_samples_are_warned_of_and_none_left_are_refused(trainer, tmp_path):
    rows = [{"prompt": "1 + 1 =", "response": "2" * length} for length in (1, 2, 100)]
    limits = ["data.max_prompt_length=20", "rollout.max_completion_length=40", "data.overlong_prompts=drop"]
    trainer(f"data.path={write_rows(tmp_path / 'rows.jsonl', rows)}", *limits)
    (warning,) = lines(tmp_path / "run" / "warnings.jsonl")
    assert warning["message"] == "1 demonstrations longer than 60 tokens were dropped"

    with pytest.raises(UserError, match=r"sft\.held_out: got 0\.9, which is all of 2 demonstrations"):
        trainer("sft.held_out=0.9", "data.limit=2")
