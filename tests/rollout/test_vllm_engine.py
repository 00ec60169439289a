"""The vLLM engine: budgets, preemption, sleep, reloads, refusals, against its other settings.

tests/rollout/test_engine.py has what it shares with the transformers engine.
"""

import shutil

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout import build_engine, entropy_recorder
from d3s.rollout.engine import OTHER_ENGINE, SamplingParams
from d3s.rollout.seeds import rollout_seed
from tests.helpers.command_line import lines, timeless
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import MAX_LENGTH, PROMPTS, actor_of, greedy, greedy_by_hand, sampled_gap
from tests.helpers.small_run import same_run
from tests.helpers.training import train


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
    """rollout.seeds: engine. The batch and its first seed fix the responses; the global generator is restored."""
    engine = engines["vllm"]
    monkeypatch.setattr(engine, "one_seed_per_batch", True)

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


def test_entropies_are_computed_without_copying_logits(engines, monkeypatch):
    """Some steps come after responses have finished and later requests have taken their rows."""
    recorder, same, current = engines["vllm"].recorder, [], []
    real_apply, real_entropies = recorder.apply, entropy_recorder.token_entropies

    def apply(self, logits):
        current[:] = [logits]
        return real_apply(self, logits)

    def token_entropies(rows):
        same.append(rows is current[0])
        return real_entropies(rows)

    monkeypatch.setattr(recorder, "apply", apply)
    monkeypatch.setattr(entropy_recorder, "token_entropies", token_entropies)
    ends = engines["vllm"].generate(PROMPTS, n=16, params=SamplingParams(max_tokens=40), seeds=list(range(64)))
    assert len({len(r.response_ids) for r in ends}) > 5
    assert len(same) > 40 and all(same)


def test_float32_head_reaches_vllm(half_engine, tied_model, other_model, monkeypatch):
    """Logits of a bfloat16 model with a tied head, before and after new weights; rounded once the option is unset."""
    rounded, real_apply = [], half_engine.recorder.apply

    def apply(self, logits):
        rounded.append(torch.equal(logits, logits.bfloat16().float()))
        return real_apply(self, logits)

    monkeypatch.setattr(half_engine.recorder, "apply", apply)
    for path in (other_model, tied_model):
        half_engine.load_weights((name, tensor.bfloat16()) for name, tensor in actor_of(path).weights())
        assert sampled_gap(half_engine, path) < 0.15  # with other weights above 5
    assert len(rounded) > 2 and not any(rounded)
    model = half_engine.llm.collective_rpc(lambda worker: worker.model_runner.get_model())[0]
    monkeypatch.setattr(model.logits_processor, "head_dtype", torch.bfloat16)
    rounded.clear()
    assert sampled_gap(half_engine, tied_model) < 0.15
    assert len(rounded) > 2 and all(rounded)


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
        ({"weights": None}, [], "vLLM cannot load this model (RuntimeError: Cannot find any model weights"),
    ],
)
def test_refused_models_raise_one_sentence(engines, changes, options, message, tmp_path):
    path, pickled = tmp_path / "model", "weights" in changes
    save_random_model(path, seed=0, **{key: changes[key] for key in changes if key != "weights"})
    if pickled:
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
    assert greedy(engine) == greedy_by_hand(tied_model)


def test_stale_head_and_prefixes_show_in_logprobs(engines, tied_model, other_model, monkeypatch):
    """On a GPU vLLM keeps tied weights in one place, so that no head is stale."""
    engine, other = engines["vllm"], list(actor_of(other_model).weights())
    engine.load_weights((name, tensor) for name, tensor in other if name != "lm_head.weight")
    assert torch.cuda.is_available() or sampled_gap(engine, other_model) > 0.1
    engine.load_weights(actor_of(tied_model).weights())
    assert sampled_gap(engine, tied_model) < 1e-4
    with monkeypatch.context() as patch:
        patch.setattr(engine.llm, "reset_prefix_cache", lambda: True)
        engine.load_weights(iter(other))
    assert sampled_gap(engine, other_model) > 0.1
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
    before = greedy(engine)
    engine.sleep()
    for wake in ("weights", "kv_cache"):
        with pytest.raises(RuntimeError, match="the engine is asleep"):
            greedy(engine)
        engine.wake(wake)
        if wake == "weights":
            engine.load_weights(actor_of(tied_model).weights())
    assert greedy(engine) == before


def test_sleeping_run_with_empty_steps_resumes(engines, tied_model, tmp_path, monkeypatch):
    """A resumed run against an uninterrupted one, with everything that could disturb the order of seeds.

    The engine sleeps as on a GPU and has one seed per batch; groups are replaced, every step is followed by an
    evaluation, and some steps keep no rollout.
    """
    engine, seeds, real = engines["vllm"], [], engines["vllm"].generate

    def generate(prompts, **settings):
        evaluates = "on_finished" in settings and not settings.get("entropies", True)
        seeds.extend([] if evaluates else settings["seeds"])
        return real(prompts, **settings)

    monkeypatch.setattr("d3s.trainer.build_engine", lambda *_, **__: engine)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("d3s.rollout.groups.MAX_ROUNDS", 1)
    monkeypatch.setattr(engine, "generate", generate)
    monkeypatch.setattr(engine, "can_sleep", True)
    monkeypatch.setattr(engine, "one_seed_per_batch", True)
    options = [
        *["rollout.engine=vllm", "rollout.seeds=engine", "rollout.dynamic_sampling=true"],
        *["train.steps=6", "train.prompts_per_step=1", "rollout.num_generations=2", "checkpoint.every=3"],
        *["schedule.n_init=2", "schedule.n_final=2", "selector.rollouts=d3s.methods.nonzero:nonzero"],
        *["optim.num_minibatches=1", "optim.learning_rate=1e-5"],
        *["eval.data=[synthetic:precedence]", "eval.every=1", "eval.limit=2", "eval.n=2", "eval.k=[1]"],
    ]
    _, steps = train(tied_model, tmp_path / "run", overrides=options)
    assert {step["selection/rollouts"] for step in steps[:3]} == {0, 2}
    # two for each batch, of which some are replaced, and two for each probe of seven syncs
    assert len(seeds) == len(set(seeds)) > 6 * 2 + 7 * 2
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    train(tied_model, tmp_path / "again", overrides=options, checkpoint=tmp_path / "again/checkpoints/step_000003")
    assert same_run(tmp_path / "run", tmp_path / "again")
    evaluations, again = (timeless(lines(tmp_path / name / "eval.jsonl")) for name in ("run", "again"))
    assert len(evaluations) == 7 and again == evaluations
    engine.load_weights(actor_of(tied_model).weights())
