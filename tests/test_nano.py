"""nano_d3s.py trains as the trainer does on the same responses; its own responses against passes without a cache."""

import json
import shutil
from argparse import Namespace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nano_d3s
from d3s.actor import Actor
from d3s.collector import Collector
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.selector import select_rollouts
from tests.helpers.rewards import rarely
from tests.helpers.training import train

STEPS, G, MINIBATCHES, RATE = 12, 8, 3, 2e-3
METHODS = {"D3S": ((2, 6), (0.1, 0.6)), "GRPO": ((G, G), (1, 1))}


@pytest.fixture
def record(monkeypatch):
    """What a Trainer sampled and selected in each step."""
    record = SimpleNamespace(rollouts=[], problems=[], chosen=[])
    generate, collect, update = TransformersEngine.generate, Collector.collect, Actor.update

    def generating(engine, prompts, n, *args, **options):
        rollouts = generate(engine, prompts, n, *args, **options)
        record.rollouts += [rollouts] if n == G else []  # the probe of a weight sync has one response per prompt
        return rollouts

    def collecting(collector, problems, *args, **options):
        record.problems.append([collector.prompts.problems[i].answer for i in problems])
        return collect(collector, problems, *args, **options)

    def updating(actor, batch, *args):
        record.chosen.append((batch.responses, batch.selected.clone()))
        return update(actor, batch, *args)

    monkeypatch.setattr(TransformersEngine, "generate", generating)
    monkeypatch.setattr(Collector, "collect", collecting)
    monkeypatch.setattr(Actor, "update", updating)
    return record


def flat(model):
    """All weights in one tensor."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_nano_trains_as_the_trainer(tied_model, tmp_path, record, monkeypatch, method):
    n, k = METHODS[method]
    options = [
        f"train.steps={STEPS}", f"rollout.num_generations={G}", f"optim.num_minibatches={MINIBATCHES}",
        f"optim.learning_rate={RATE}", "schedule.n_shape=linear", "schedule.k_shape=linear", "checkpoint.every=0",
        f"schedule.n_init={n[0]}", f"schedule.n_final={n[1]}", f"schedule.k_init={k[0]}", f"schedule.k_final={k[1]}",
        "reward.functions=[tests.helpers.rewards:rarely]",  # groups without a signal count in the denominators
    ]  # fmt: skip
    train(tied_model, tmp_path / "run", overrides=options)
    assert len(record.rollouts) == len(record.chosen) == STEPS

    tokenizer, model = nano_d3s.load(str(tied_model))
    before = flat(model)
    sampled, seen = iter(record.rollouts), []
    problems = ([nano_d3s.Problem([], answer) for answer in answers] for answers in record.problems)

    def draw(model, prompts, n):
        rollouts = next(sampled)
        seen.append([r.response_ids for r in rollouts])
        return [nano_d3s.Rollout(r.prompt_ids, r.response_ids, r.logprobs, r.entropies) for r in rollouts]

    def compare(step, kept, selected):
        responses, chosen = record.chosen[step]
        own = [ids for ids, keep in zip(seen[step], kept.flatten().tolist()) if keep]
        assert [list(map(int, ids)) for ids in responses] == own
        assert torch.equal(chosen, selected)

    monkeypatch.setattr(nano_d3s, "reward", rarely)
    args = Namespace(steps=STEPS, responses=G, n=n, k=k, lr=RATE, minibatches=MINIBATCHES, epsilon=0.2, seed=0)
    nano_d3s.train(args, model, partial(tokenizer.decode, skip_special_tokens=True), problems, draw, compare)
    trained = flat(nano_d3s.load(str(tmp_path / "run" / "model"))[1])
    assert (trained - flat(model)).norm() < 1e-3 * (trained - before).norm()


def test_nano_draws_ties_as_the_trainer():
    """Three of two values: one 0 is as good as two, and several splits are the same subset."""
    rules = nano_d3s.select_rollouts, select_rollouts
    for seed in range(100):
        advantages = torch.randint(2, (1, 8), generator=torch.Generator().manual_seed(seed)).float()
        own, other = (rule(advantages, 3, generator=torch.Generator().manual_seed(seed)) for rule in rules)
        assert torch.equal(own, other)


@pytest.mark.parametrize("ends", [range(0, 257, 9), [256], 256])
def test_nano_samples_what_the_model_says(gqa_model, ends):
    """Prompts of several lengths in one batch: each response ends at the first end token, or at the limit."""
    tokenizer, model = nano_d3s.load(str(gqa_model))
    model.eval()
    model.generation_config.eos_token_id = ends if isinstance(ends, int) else list(ends)
    prompts = [nano_d3s.encode(tokenizer, text) for text in ("7", "1 + 23 =", "12345 - 678 * 9 + 10 =")]
    rollouts = nano_d3s.sample(model, prompts, 4, 24, torch.Generator().manual_seed(0))
    assert [r.prompt for r in rollouts] == [prompt for prompt in prompts for _ in range(4)]
    listed = {ends} if isinstance(ends, int) else set(ends)
    for r in rollouts:
        assert not listed & set(r.response[:-1]) and (r.response[-1] in listed or len(r.response) == 24)
        with torch.no_grad():
            logprobs = model(torch.tensor([r.prompt + r.response])).logits[0, len(r.prompt) - 1 : -1].log_softmax(-1)
        assert torch.allclose(torch.tensor(r.logprobs), logprobs[range(len(r.response)), r.response], atol=1e-4)
        assert torch.allclose(torch.tensor(r.entropies), -(logprobs.exp() * logprobs).sum(-1), atol=1e-4)
    assert any(r.response[-1] in listed for r in rollouts) == (len(listed) > 1)


def test_nano_draws_from_the_whole_distribution(gqa_model):
    """The frequencies of first tokens are their probabilities at temperature 1."""
    model = nano_d3s.load(str(gqa_model))[1]
    rollouts = nano_d3s.sample(model, [[65, 66]], 4000, 1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.eval()(torch.tensor([[65, 66]])).logits[0, -1].softmax(-1)
    counts = torch.bincount(torch.tensor([r.response[0] for r in rollouts]), minlength=len(expected))
    assert (counts / 4000 - expected).abs().sum() < 0.3


def test_nano_stops_at_the_end_tokens_of_model_and_tokenizer(gqa_model, tmp_path):
    copy = shutil.copytree(gqa_model, tmp_path / "model")
    own = nano_d3s.load(str(copy))[0].eos_token_id
    for listed, ends in ((7, {7}), ([7, 9], {7, 9})):
        (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": listed}))
        assert set(nano_d3s.load(str(copy))[1].generation_config.eos_token_id) == ends | {own}


@settings(max_examples=50)
@given(st.lists(st.integers(0, 99), max_size=3), st.integers(0, 99), st.booleans())
def test_nano_rewards_the_last_box(boxes, answer, decimal):
    text = " so ".join(rf"\boxed{{{box}{'.0' if decimal else ''}}}" for box in boxes)
    assert nano_d3s.reward(text, str(answer)) == float(boxes[-1:] == [answer])


def test_nano_refuses_what_it_cannot_train_on(tmp_path):
    """A file without problems to train on, and tasks whose answers are judged otherwise than as texts and numbers."""
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps({"problem": f"{i}+1=", "answer": i + 1}) + "\n" for i in range(9)))
    cases = (path, 9, "got 9 of the 9"), (path, 0, "got 0"), ("synthetic:countdown", 9, "judged")
    for data, held_out, problem in cases:
        with pytest.raises(SystemExit, match=problem):
            nano_d3s.read_problems(str(data), 64, held_out)
    assert [len(part) for part in nano_d3s.read_problems(str(path), 64, 2)] == [7, 2]
