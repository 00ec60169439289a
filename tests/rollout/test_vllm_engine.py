"""The vLLM engine: budgets, preemption, sleep, reloads, refusals, against its other settings.

tests/rollout/test_engine.py has what it shares with the transformers engine.
"""

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout import build_engine
from d3s.rollout.engine import OTHER_ENGINE, SamplingParams
from d3s.rollout.seeds import rollout_seed
from tests.helpers.command_line import lines, timeless
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import MAX_LENGTH, PROMPTS, actor_of, sampled_gap


def test_responses_do_not_depend_on_the_token_budget(engines, monkeypatch):
    """40 prompts, which together exceed the budget of a step, against single requests."""
    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 257, (100 + i,), generator=draw).tolist() for i in range(40)]
    engine, seeds = engines["vllm"], [rollout_seed(0, "train", i) for i in range(40)]
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    monkeypatch.setattr(scheduler, "max_num_scheduled_tokens", 200)
    settings = {"n": 1, "params": SamplingParams(max_tokens=30)}
    together = [r.response_ids for r in engine.generate(prompts, seeds=seeds, **settings)]
    for i in range(0, 40, 8):
        (alone,) = engine.generate(prompts[i : i + 1], seeds=seeds[i : i + 1], **settings)
        assert alone.response_ids == together[i]


def test_one_seed_per_batch_fixes_all_responses(engines, monkeypatch):
    """rollout.seeds: engine. The batch and its first seed fix the responses; the global generator is restored.

    Prefixes that a call leaves in the cache would change how much of the next one fits into a step.
    """
    engine = engines["vllm"]
    monkeypatch.setattr(engine, "one_seed_per_batch", True)
    scheduler = engine.llm.llm_engine.engine_core.engine_core.scheduler
    monkeypatch.setattr(scheduler, "max_num_scheduled_tokens", 100)

    def sample(first, n=16):
        seeds = list(range(first, first + 4 * n))
        rollouts = engine.generate(PROMPTS, n=n, params=SamplingParams(max_tokens=60), seeds=seeds)
        return [tuple(r.response_ids) for r in rollouts]

    state = torch.get_rng_state()
    together = sample(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert sample(2) != together == sample(1)
    assert len(set(together)) == 64
    assert engine.generate([], n=2, params=SamplingParams(max_tokens=5), seeds=[]) == []


def test_float32_head_reaches_vllm(engines, half_engine, tied_model, other_model, monkeypatch):
    """Logits of a bfloat16 model with a tied head, before and after new weights."""
    rounded, real_apply = [], half_engine.recorder.apply

    def apply(self, logits):
        rounded.append(torch.equal(logits, logits.bfloat16().float()))
        return real_apply(self, logits)

    monkeypatch.setattr(half_engine.recorder, "apply", apply)
    for path in (other_model, tied_model):
        half_engine.load_weights((name, tensor.bfloat16()) for name, tensor in actor_of(path).weights())
        assert sampled_gap(half_engine, path) < 0.15  # with other weights above 5
    assert len(rounded) > 2 and not any(rounded)


def test_preemptions_are_counted_and_reset(engines):
    engine = engines["vllm"]
    assert MAX_LENGTH <= engine.kv_cache_tokens < 64 * 100
    engine.take_preemptions()
    engine.generate(PROMPTS, n=2, params=SamplingParams(max_tokens=20), seeds=list(range(8)))
    assert engine.take_preemptions() == 0
    busy, params = [], SamplingParams(max_tokens=100)
    engine.generate(PROMPTS, 16, params, seeds=list(range(64)), on_finished=lambda _: busy.append(engine.busy()))
    assert engine.take_preemptions() > 0 == engine.take_preemptions()
    assert busy[0] and not busy[-1]  # called during generation


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, [], "heads have size 16, vLLM on the CPU supports 32, "),
        ({}, ["rollout.kv_cache_gb=0.0001"], "kv_cache_gb: the KV cache cannot hold one sequence of 192 tokens"),
        (None, [], "vLLM cannot load this model (RuntimeError: Cannot find any model weights"),
    ],
)
def test_refused_models_raise_one_sentence(engines, changes, options, message, tmp_path):
    path = save_random_model(tmp_path / "model", seed=0, **(changes or {}))
    if changes is None:  # pickled weights alone
        torch.save({}, path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()
    config = load_config([], options).rollout
    with pytest.raises(UserError) as refusal:
        build_engine(str(path), config, dtype="float32", max_model_len=MAX_LENGTH, seed=0)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
    assert (OTHER_ENGINE in str(refusal.value)) == (not options)


def test_unknown_weights_raise_one_sentence(engines, tied_model):
    engine = engines["vllm"]
    with pytest.raises(UserError) as refusal:
        engine.load_weights(iter([("model.layers.0.no_such.weight", torch.ones(2))]))
    assert str(refusal.value).startswith(f"{tied_model}: vLLM cannot load this model (")
    engine.load_weights(actor_of(tied_model).weights())
    assert sampled_gap(engine, tied_model) < 1e-4


def test_prefix_cache_that_is_not_cleared_is_an_error(engines, tied_model, monkeypatch):
    engine = engines["vllm"]
    monkeypatch.setattr(engine.llm, "reset_prefix_cache", lambda: False)
    with pytest.raises(RuntimeError, match="did not clear its prefix cache"):
        engine.load_weights(actor_of(tied_model).weights())


def test_sleeping_engine_refuses_to_generate(engines, tied_model, monkeypatch):
    engine = engines["vllm"]
    monkeypatch.setattr(engine, "can_sleep", True)
    engine.sleep()
    for wake in ("weights", "kv_cache"):
        with pytest.raises(RuntimeError, match="the engine is asleep"):
            sampled_gap(engine, tied_model)
        engine.wake(wake)
        if wake == "weights":
            engine.load_weights(actor_of(tied_model).weights())
    assert sampled_gap(engine, tied_model) < 1e-4


def test_sleeping_run_with_empty_steps_resumes(engines, train_and_resume, tmp_path, monkeypatch):
    """A resumed run against an uninterrupted one, with everything that could disturb the order of seeds.

    The engine sleeps as on a GPU and has one seed per batch; groups are replaced, every step is followed by an
    evaluation, and some steps keep no rollout.
    """
    monkeypatch.setattr("d3s.rollout.groups.MAX_ROUNDS", 1)
    monkeypatch.setattr(engines["vllm"], "can_sleep", True)
    monkeypatch.setattr(engines["vllm"], "one_seed_per_batch", True)
    options = [
        "rollout.seeds=engine", "rollout.dynamic_sampling=true", "rollout.num_generations=2",
        "train.steps=6", "train.prompts_per_step=1", "checkpoint.every=3", "schedule.n_init=2", "schedule.n_final=2",
        "selector.rollouts=d3s.methods.nonzero:nonzero", "optim.num_minibatches=1", "optim.learning_rate=1e-5",
        "eval.data=[synthetic:precedence]", "eval.every=1", "eval.limit=2", "eval.n=2", "eval.k=[1]",
    ]  # fmt: skip
    steps = train_and_resume([], options, 3)
    assert {step["selection/rollouts"] for step in steps[:3]} == {0, 2}
    evaluations, again = (timeless(lines(tmp_path / name / "eval.jsonl")) for name in ("run", "again"))
    assert len(evaluations) == 7 and again == evaluations
