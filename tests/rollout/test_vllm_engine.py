"""Both engines against transformers run by hand and against the actor's own view of what they sampled.

vLLM runs inside this process and can be started there once, so all tests that need it are in this file.
"""

import itertools
import json
import math
import os
import shutil
from concurrent.futures import Future

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from d3s.actor import Actor
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.problems import Problem
from d3s.data.prompts import encode_prompts
from d3s.evaluate import sampling as evaluate
from d3s.evaluate.sampling import Sampling
from d3s.packing import Batch
from d3s.pretrained import stop_token_ids
from d3s.rollout import build_engine
from d3s.rollout import vllm_engine as rollout
from d3s.rollout.engine import SamplingParams, weight_checksums
from d3s.rollout.seeds import rollout_seed
from d3s.rollout.vllm_engine import OTHER_ENGINE
from tests.helpers.command_line import lines, timeless
from tests.helpers.models import save_random_model

EOS, MAX_LENGTH = 0, 192
PROMPTS = [
    torch.randint(1, 257, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (1, 40, 70, 5)  # with blocks of 32 tokens, two of them have a prefix that is cached
]


@pytest.fixture(scope="module")
def engines(tied_model):
    """Both on the same weights. vLLM's cache is so small that a full batch does not fit: some are preempted."""
    Accelerator()  # as in training: vLLM would otherwise decide how processes are connected
    environment, rng = dict(os.environ), torch.get_rng_state()
    built = {}
    for name in ("vllm", "transformers"):
        config = load_config(
            [], [f"rollout.engine={name}", "rollout.kv_cache_gb=0.004", "rollout.max_num_seqs=48"]
        ).rollout
        built[name] = build_engine(str(tied_model), config, dtype="float32", max_model_len=MAX_LENGTH, seed=0)
    assert torch.equal(torch.get_rng_state(), rng)
    yield built
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(params=["vllm", "transformers"])
def engine(request, engines):
    return engines[request.param]


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """The same architecture with other weights."""
    return save_random_model(tmp_path_factory.mktemp("other") / "model", seed=7)


def actor_of(path, temperature=1.0):
    config = load_config([], [f"rollout.temperature={temperature}"])
    return Actor(str(path), config, Accelerator(), MAX_LENGTH)


def scores(actor, rollouts):
    """The actor's log-probabilities and entropies of what an engine sampled."""
    flat = torch.zeros(sum(len(r.response_ids) for r in rollouts))
    return actor.compute_logprobs(
        Batch([r.prompt_ids for r in rollouts], [r.response_ids for r in rollouts], flat, flat, flat)
    )


def flat(rollouts, field):
    return torch.tensor(list(itertools.chain(*(getattr(r, field) for r in rollouts))))


def largest_gap(engine, path, prompts=PROMPTS):
    rollouts = engine.generate(prompts, n=2, params=SamplingParams(max_tokens=12), seeds=list(range(8)))
    return (scores(actor_of(path), rollouts)[0] - flat(rollouts, "logprobs")).abs().max().item()


def greedy(engine, prompts=PROMPTS, length=24):
    rollouts = engine.generate(
        prompts, n=1, params=SamplingParams(temperature=0.0, max_tokens=length), seeds=[0] * len(prompts)
    )
    return [r.response_ids for r in rollouts]


@torch.no_grad()
def greedy_by_hand(path, prompts=PROMPTS, length=24):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    responses = []
    for prompt in prompts:
        ids = list(prompt)
        while len(ids) < len(prompt) + length and ids[-1] != EOS:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        responses.append(ids[len(prompt) :])
    return responses


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_response_whatever_else_is_sampled(engine):
    def sample(indices, slots=range(4), seed=0):
        n = len(slots)
        seeds = [rollout_seed(seed, "train", 4 * i + j) for i in indices for j in slots]
        rollouts = engine.generate(
            [PROMPTS[i] for i in indices], n=n, params=SamplingParams(max_tokens=20), seeds=seeds
        )
        assert [r.prompt_index for r in rollouts] == [i for i in range(len(indices)) for _ in range(n)]
        assert [r.sample for r in rollouts] == [*range(n)] * len(indices)
        assert all(r.prompt_ids == PROMPTS[indices[r.prompt_index]] for r in rollouts)
        return [[r.response_ids for r in rollouts[j : j + n]] for j in range(0, len(rollouts), n)]

    together = sample([0, 1, 2, 3])
    assert sample([3, 2, 1, 0]) == together[::-1]
    assert sample([2]) == [together[2]]
    assert sample([0, 1, 2, 3], slots=[2]) == [[group[2]] for group in together]
    other = sample([0, 1, 2, 3], seed=1)  # the same places of another run
    responses = [tuple(response) for group in together + other for response in group]
    assert len(set(responses)) == len(responses) == 32
    with pytest.raises(ValueError):
        engine.generate(PROMPTS, n=2, params=SamplingParams(max_tokens=1), seeds=[1, 2, 3, 4])


@pytest.mark.parametrize("budget", [4096, 200])
def test_responses_do_not_depend_on_the_token_budget(engines, monkeypatch, budget):
    """60 prompts that no step can read at once, with few and with many of them at a time; some are preempted."""
    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 257, (100 + i,), generator=draw).tolist() for i in range(60)]
    engine, seeds = engines["vllm"], [rollout_seed(0, "train", i) for i in range(60)]
    scheduler = engine._llm.llm_engine.engine_core.engine_core.scheduler
    monkeypatch.setattr(scheduler, "max_num_scheduled_tokens", budget)
    settings = {"n": 1, "params": SamplingParams(max_tokens=30)}
    together = [r.response_ids for r in engine.generate(prompts, seeds=seeds, **settings)]
    for i in range(0, 60, 12):
        (alone,) = engine.generate(prompts[i : i + 1], seeds=seeds[i : i + 1], **settings)
        assert alone.response_ids == together[i]


def test_evaluations_of_two_seeds_differ(engine, tied_model):
    tokenizer = AutoTokenizer.from_pretrained(tied_model)
    problems = [Problem(str(i), f"{i} + {i} =", "0", "unit") for i in range(6)]
    prompts = encode_prompts(problems, "plain", tokenizer, 100)

    def unscored(response, answer):
        score = Future()
        score.set_result(0.0)
        return score

    def responses(seed):
        groups = {}
        rows = evaluate.questions("unit", prompts, unscored)
        sampling = Sampling(n=3, max_tokens=12, seed=seed)
        evaluate.sample(engine, tokenizer, rows, sampling, lambda q, group: groups.update({q.index: group}))
        return [s.response for i in range(6) for s in groups[i]]

    first, second = responses(0), responses(1)
    assert first == responses(0)
    assert not any(a == b for a, b in zip(first, second))


def test_one_seed_for_a_batch(engines, monkeypatch):
    """rollout.seeds: engine. The batch and its first seed fix the responses; nobody else's generator is touched."""
    engine = engines["vllm"]
    monkeypatch.setattr(engine, "_seeded_once", True)

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


# --- log-probabilities and entropies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_what_is_told_of_every_token_is_what_the_actor_computes(engine, tied_model, temperature):
    """Also of responses that vLLM interrupted and computed again: 64 of up to 100 tokens do not fit its cache."""
    rollouts = engine.generate(
        PROMPTS, n=16, params=SamplingParams(temperature=temperature, max_tokens=100), seeds=list(range(64))
    )
    logprobs, entropies = scores(actor_of(tied_model, temperature), rollouts)
    torch.testing.assert_close(flat(rollouts, "logprobs"), logprobs, rtol=0, atol=1e-4)
    torch.testing.assert_close(flat(rollouts, "entropies"), entropies, rtol=0, atol=1e-4)
    assert entropies.std() > 0.1
    for r in rollouts:
        assert len(r.response_ids) == len(r.logprobs) == len(r.entropies)
        assert EOS not in r.response_ids[:-1]
        assert r.finished == (r.response_ids[-1] == EOS)
        assert r.finished or len(r.response_ids) == 100
    assert 0 < sum(r.finished for r in rollouts) < len(rollouts)


def test_entropies_come_from_the_logits_without_a_copy(engines, monkeypatch):
    """Also when responses have ended and others have taken their rows."""
    recorder, whole, current = engines["vllm"]._recorder, [], []
    real_apply, real_entropies = recorder.apply, rollout.token_entropies

    def apply(self, logits):
        current[:] = [logits]
        return real_apply(self, logits)

    def token_entropies(rows):
        whole.append(rows is current[0])
        return real_entropies(rows)

    monkeypatch.setattr(recorder, "apply", apply)
    monkeypatch.setattr(rollout, "token_entropies", token_entropies)
    ends = engines["vllm"].generate(PROMPTS, n=16, params=SamplingParams(max_tokens=40), seeds=list(range(64)))
    assert len({len(r.response_ids) for r in ends}) > 5
    assert len(whole) > 40 and all(whole)


def test_preemptions_are_counted(engines):
    engine = engines["vllm"]
    assert MAX_LENGTH <= engine.kv_cache_tokens < 64 * 100
    engine.take_preemptions()
    engine.generate(PROMPTS, n=2, params=SamplingParams(max_tokens=20), seeds=list(range(8)))
    assert engine.take_preemptions() == 0
    engine.generate(PROMPTS, n=16, params=SamplingParams(max_tokens=100), seeds=list(range(64)))
    assert engine.take_preemptions() > 0 == engine.take_preemptions()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_drawn_from_the_softmax(engine, tied_model, temperature):
    count = 2000
    rollouts = engine.generate(
        PROMPTS[3:], n=count, params=SamplingParams(temperature=temperature, max_tokens=1), seeds=list(range(count))
    )
    drawn = torch.tensor([r.response_ids[0] for r in rollouts]).bincount(minlength=257)
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)(torch.tensor(PROMPTS[3:])).logits
    expected = count * (logits[0, -1] / temperature).softmax(-1)
    common = expected > 5
    observed = torch.cat([drawn[common], drawn[~common].sum()[None]])
    expected = torch.cat([expected[common], expected[~common].sum()[None]])
    chi_square, freedom = ((observed - expected) ** 2 / expected).sum().item(), len(expected) - 1
    assert freedom > 10 and chi_square < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (-1, 0.4)])
def test_truncated_sampling(engine, tied_model, top_k, top_p):
    """Only likely tokens are drawn; log-probabilities are those among them, entropies those of the whole vocabulary."""
    rollouts = engine.generate(
        PROMPTS, n=4, params=SamplingParams(top_k=top_k, top_p=top_p, max_tokens=6), seeds=list(range(16))
    )
    model = AutoModelForCausalLM.from_pretrained(tied_model, dtype=torch.float32)
    for r in rollouts:
        with torch.no_grad():
            logits = model(torch.tensor([r.prompt_ids + r.response_ids])).logits[0, len(r.prompt_ids) - 1 : -1]
        for token, logprob, p in zip(r.response_ids, r.logprobs, logits.softmax(-1)):
            ranked = p.sort(descending=True).values.tolist()
            size = top_k if top_k > 0 else 1 + sum(total < top_p for total in itertools.accumulate(ranked))
            assert p[token] >= ranked[size - 1] - 1e-6
            assert logprob == pytest.approx(math.log(p[token] / sum(ranked[:size])), abs=1e-3)
    _, entropies = scores(actor_of(tied_model), rollouts)
    torch.testing.assert_close(flat(rollouts, "entropies"), entropies, rtol=0, atol=1e-4)


def test_entropies_only_where_asked_for(engine):
    warm, cold = (SamplingParams(temperature=t, max_tokens=3) for t in (1.0, 0.0))
    kwargs = {"n": 2, "seeds": list(range(8))}
    assert not any(r.entropies for r in engine.generate(PROMPTS, params=warm, entropies=False, **kwargs))
    assert not any(r.entropies for r in engine.generate(PROMPTS, params=cold, **kwargs))
    assert all(r.entropies for r in engine.generate(PROMPTS, params=warm, **kwargs))


# --- ends ------------------------------------------------------------------------------------------------------------


def test_no_room_left(engine):
    rollouts = engine.generate(PROMPTS, n=6, params=SamplingParams(max_tokens=1000), seeds=list(range(24)))
    for r in rollouts:
        assert r.finished or len(r.prompt_ids) + len(r.response_ids) == MAX_LENGTH
    assert {len(r.prompt_ids) for r in rollouts if not r.finished} >= {1, 70}


def test_several_tokens_may_end_a_response(engine, monkeypatch):
    monkeypatch.setattr(engine, "_stop", [EOS, 175, 37])
    rollouts = engine.generate(PROMPTS, n=16, params=SamplingParams(max_tokens=60), seeds=list(range(64)))
    assert {r.response_ids[-1] for r in rollouts if r.finished} == {EOS, 175, 37}
    assert not any({EOS, 175, 37} & set(r.response_ids[:-1]) for r in rollouts)


def test_every_rollout_is_announced_before_generate_returns(engine):
    heard = []

    def listen(rollout):
        heard.append((rollout, list(rollout.response_ids), list(rollout.logprobs), rollout.finished))

    rollouts = engine.generate(
        PROMPTS, n=16, params=SamplingParams(max_tokens=40), seeds=list(range(64)), on_finished=listen
    )
    assert len(heard) == 64 and {id(r) for r, *_ in heard} == {id(r) for r in rollouts}
    assert all((r.response_ids, r.logprobs, r.finished) == tuple(then) for r, *then in heard)


def test_vllm_announces_while_others_generate(engines):
    busy = []
    engine = engines["vllm"]
    engine.generate(
        PROMPTS,
        n=8,
        params=SamplingParams(max_tokens=60),
        seeds=list(range(32)),
        on_finished=lambda _: busy.append(engine._llm.llm_engine.has_unfinished_requests()),
    )
    assert busy[0] and not busy[-1]


def test_stop_tokens_of_a_model(tmp_path):
    def write(name, **content):
        (tmp_path / name).write_text(json.dumps(content))

    write("config.json", model_type="qwen2", eos_token_id=7)
    assert stop_token_ids(str(tmp_path)) == [7]
    write("generation_config.json", eos_token_id=[3, 4])
    assert stop_token_ids(str(tmp_path)) == [3, 4]
    write("generation_config.json", temperature=0.5)
    assert stop_token_ids(str(tmp_path)) == [7]
    write("config.json", model_type="qwen2", eos_token_id=None)
    with pytest.raises(UserError, match="eos_token_id"):
        stop_token_ids(str(tmp_path))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, [], "heads have size 16, vLLM on the CPU supports 32, "),
        ({"max_position_embeddings": 64}, [], "vLLM cannot load this model (ValidationError: 1 validation error for"),
        (
            {},
            ["rollout.kv_cache_gb=0.0001"],
            "kv_cache_gb: the KV cache cannot hold one sequence of 192 tokens",
        ),
        ({"weights": None}, [], "vLLM cannot load this model (RuntimeError: Cannot find any model weights"),
    ],
)
def test_models_that_vllm_cannot_run_get_one_sentence(engines, changes, options, message, tmp_path):
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


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ValueError("No available memory for the cache blocks."),
            "the KV cache cannot hold one sequence of 192 tokens",
        ),
        (ValueError("0.5 GiB KV cache is needed, which is larger"), "the KV cache cannot hold one sequence of 192"),
        (ValueError("Free memory on device cuda:0 (3/80 GiB)"), "too little free GPU memory (ValueError: Free memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "too little free GPU memory (OutOfMemoryError: CUDA out of"),
    ],
)
def test_too_little_gpu_memory_names_the_option(engines, tied_model, monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("vllm.LLM", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError) as refusal:
        build_engine(str(tied_model), load_config([], []).rollout, dtype="bfloat16", max_model_len=192, seed=0)
    assert str(refusal.value).startswith(f"rollout.gpu_memory_utilization: {message}")


def test_shared_memory_of_another_run_names_the_option(engines, tied_model, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("create shm in SHMManager failed. errno: 17")

    monkeypatch.setattr("vllm.LLM", refuse)
    with pytest.raises(UserError, match=r"rollout\.tensor_parallel_size: another run on this machine"):
        build_engine(str(tied_model), load_config([], []).rollout, dtype="float32", max_model_len=192, seed=0)


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def reloaded(engine, tied_model):
    """The engine, which gets its own weights back afterwards."""
    yield engine
    engine.load_weights(actor_of(tied_model).weights())


def test_both_engines_are_greedy_as_transformers_is(engines, tied_model):
    expected = greedy_by_hand(tied_model)
    assert greedy(engines["vllm"]) == expected
    assert greedy(engines["transformers"]) == expected
    first, second = (
        e.generate(PROMPTS, n=1, params=SamplingParams(temperature=0.0, max_tokens=4), seeds=[0] * 4)
        for e in engines.values()
    )
    torch.testing.assert_close(flat(first, "logprobs"), flat(second, "logprobs"), rtol=0, atol=1e-4)


def test_new_weights_give_the_tokens_of_the_new_weights(reloaded, tied_model, other_model):
    """The same prompts before and after, so that what was cached of them would show; tied embeddings, so that a head
    that was left behind would show."""
    before, after = greedy_by_hand(tied_model), greedy_by_hand(other_model)
    assert all(a != b for a, b in zip(before, after))
    assert greedy(reloaded) == before
    reloaded.load_weights(actor_of(other_model).weights())
    assert greedy(reloaded) == after
    assert largest_gap(reloaded, other_model) < 1e-4
    reloaded.load_weights(reversed(list(actor_of(tied_model).weights())))  # in any order
    assert greedy(reloaded) == before


def test_checksums_tell_whose_weights_the_engine_has(reloaded, tied_model, other_model):
    def actors(path):
        return weight_checksums(actor_of(path).weights(), torch.float32)

    own, other = actors(tied_model), actors(other_model)
    assert set(reloaded.checksums()) & set(own) >= {
        ("model.embed_tokens.weight", (64, 64)),
        ("model.norm.weight", (64,)),
        ("model.layers.1.input_layernorm.weight", (64,)),
    }

    def wrong(sums):
        held = reloaded.checksums()
        return {name for name, shape in held.keys() & sums.keys() if held[name, shape] != sums[name, shape]}

    assert not wrong(own) and "model.embed_tokens.weight" in wrong(other)
    tied = ("model.embed_tokens.weight", "lm_head.weight")
    reloaded.load_weights((name, tensor) for name, tensor in actor_of(other_model).weights() if name not in tied)
    assert wrong(other) == {"model.embed_tokens.weight"}


def test_weights_that_vllm_cannot_load_get_one_sentence(engines, tied_model):
    engine = engines["vllm"]
    with pytest.raises(UserError) as refusal:
        engine.load_weights(iter([("model.layers.0.no_such.weight", torch.ones(2))]))
    assert str(refusal.value).startswith(f"{tied_model}: vLLM cannot load this model (")
    engine.load_weights(actor_of(tied_model).weights())
    assert greedy(engine) == greedy_by_hand(tied_model)


def test_checksums_see_one_bit_in_the_engines_precision():
    """Not the order of the elements, nor what rounding to bfloat16 takes away."""
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))

    def checksum(tensor, dtype=torch.bfloat16):
        return weight_checksums([("norm.weight", tensor)], dtype)

    changed = vector.clone()
    changed[3] *= 1 + 2**-7
    assert checksum(vector) == checksum(vector.flip(0)) == checksum(vector.bfloat16()) != checksum(changed)
    assert checksum(vector, torch.float32) != checksum(vector.bfloat16(), torch.float32)
    assert weight_checksums([("mlp.weight", torch.ones(8, 8))], torch.float32) == {}


@pytest.mark.parametrize(("rows", "compared"), [(96, True), (64, True), (40, False)])
def test_a_share_of_the_embedding_has_the_actors_checksum_or_none(rows, compared):
    """Under tensor parallelism an engine's first rank holds the first rows, of a small vocabulary fewer than are
    summed."""
    whole = torch.randn(320, 8, generator=torch.Generator().manual_seed(0))
    actor, share = (weight_checksums([("embed_tokens.weight", w)], torch.bfloat16) for w in (whole, whole[:rows]))
    assert bool(actor.keys() & share.keys()) == compared and (actor == share) == compared


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU vLLM keeps tied weights in one place")
def test_a_head_that_was_left_behind_is_noticed(engines, tied_model, other_model):
    engine = engines["vllm"]
    assert largest_gap(engine, tied_model) < 1e-4
    engine.load_weights((name, tensor) for name, tensor in actor_of(other_model).weights() if name != "lm_head.weight")
    assert largest_gap(engine, other_model) > 0.1
    engine.load_weights(actor_of(tied_model).weights())
    assert largest_gap(engine, tied_model) < 1e-4


def test_a_cached_prefix_of_old_weights_is_noticed(engines, tied_model, other_model, monkeypatch):
    engine = engines["vllm"]
    greedy(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engine._llm, "reset_prefix_cache", lambda: True)
        engine.load_weights(actor_of(other_model).weights())
    assert largest_gap(engine, other_model) > 0.1
    engine.load_weights(actor_of(tied_model).weights())
    assert largest_gap(engine, tied_model) < 1e-4


# --- sleep -----------------------------------------------------------------------------------------------------------


def test_an_engine_that_sleeps_generates_nothing(engines, tied_model, monkeypatch):
    engine = engines["vllm"]
    monkeypatch.setattr(engine, "_sleeps", True)
    before = greedy(engine)
    engine.sleep()
    for wake in ("weights", "kv_cache"):
        with pytest.raises(RuntimeError, match="the engine sleeps"):
            greedy(engine)
        engine.wake(wake)
        if wake == "weights":
            engine.load_weights(actor_of(tied_model).weights())
    assert greedy(engine) == before


def test_steps_that_keep_nothing_and_a_resumed_run(engines, tied_model, tmp_path, monkeypatch):
    """A run whose engine sleeps as on a GPU and has one seed for each batch, with groups that are replaced and an
    evaluation after every step. Some steps keep no rollout; gone on with from the middle it is the same run."""
    from d3s.trainer import Trainer

    engine, seeds, real = engines["vllm"], [], engines["vllm"].generate

    def generate(prompts, **settings):
        evaluates = "on_finished" in settings and not settings.get("entropies", True)
        seeds.extend([] if evaluates else settings["seeds"])
        return real(prompts, **settings)

    monkeypatch.setattr("d3s.trainer.build_engine", lambda *_, **__: engine)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(engine, "generate", generate)
    monkeypatch.setattr(engine, "_sleeps", True)
    monkeypatch.setattr(engine, "_seeded_once", True)

    def train(folder, checkpoint=None):
        config = load_config(
            ["configs/tiny.yaml"],
            [
                f"model.name={tied_model}",
                f"train.output_dir={folder}",
                "train.steps=6",
                "train.prompts_per_step=1",
                "rollout.num_generations=2",
                "rollout.seeds=engine",
                "rollout.dynamic_sampling=true",
                "rollout.max_resamples=1",
                "rollout.max_completion_length=12",
                "schedule.n_init=2",
                "schedule.n_final=2",
                "selector.drop_zero_advantage=true",
                "optim.num_minibatches=1",
                "optim.learning_rate=1e-5",
                "reward.function=tests.helpers.rewards:even_length",
                "checkpoint.every=3",
                "data.limit=40",
                "eval.data=[synthetic:precedence]",
                "eval.every=1",
                "eval.limit=2",
                "eval.n=2",
                "eval.k=[1]",
            ],
        )
        trainer = Trainer(config, checkpoint)
        assert trainer.train() == 0
        trainer.close()
        told = [timeless(lines(folder / f"{name}.jsonl")) for name in ("metrics", "eval")]
        return told, load_file(folder / "model" / "model.safetensors"), trainer.state.position

    told, weights, batches = train(tmp_path / "run")
    kept = [step["selection/rollouts"] for step in told[0]]
    assert set(kept[:3]) == {0, 2} and batches > 6 and len(told[1]) == 7
    assert len(seeds) == len(set(seeds)) == batches * 2 + 7 * 2  # seven probes
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    again, resumed_weights, _ = train(tmp_path / "again", tmp_path / "again" / "checkpoints" / "step_000003")
    assert again == told
    assert all(torch.equal(weights[name], resumed_weights[name]) for name in weights)
    engine.load_weights(actor_of(tied_model).weights())
