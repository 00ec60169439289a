"""vLLM in this process: budgets, preemption, sleep, refusals and its environment, against its other settings.

tests/rollout/test_engine.py has what it shares with the transformers engine.
"""

import os
import re
import sys
from contextlib import nullcontext
from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from d3s.commands.evaluate import open_engine
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.groups import Rollout
from d3s.rollout.engine import OTHER_ENGINE, SamplingParams, rollout_seed
from d3s.rollout.entropy_recorder import entropy_recorder
from d3s.rollout.vllm_setup import (
    check_batch_invariance,
    load_vllm,
    prepare_vllm_environment,
    remove_stale_shared_memory,
    vllm_environment,
    vllm_problem,
)
from tests.helpers.command_line import lines, timeless
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import MAX_LENGTH, PROMPTS, actor_of, build, sampled_gap


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


def test_float32_head_reaches_vllm(engines, tied_model, other_model, monkeypatch):
    """Logits of a bfloat16 model with a tied head, before and after new weights."""
    options = ["rollout.kv_cache_gb=0.004", "rollout.max_num_seqs=8"]
    engine = engines["half"] = build(tied_model, *options, dtype="bfloat16", head_dtype="float32")
    rounded, real_apply = [], engine.recorder.apply

    def apply(self, logits):
        rounded.append(torch.equal(logits, logits.bfloat16().float()))
        return real_apply(self, logits)

    monkeypatch.setattr(engine.recorder, "apply", apply)
    for path in (other_model, tied_model):
        engine.load_weights((name, tensor.bfloat16()) for name, tensor in actor_of(path).weights())
        assert sampled_gap(engine, path) < 0.15  # with other weights above 5
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


def test_sleeping_engine_wakes_with_new_weights(vllm, tied_model, other_model, monkeypatch):
    """It refuses to generate until weights and cache are awake."""
    monkeypatch.setattr(vllm, "can_sleep", True)
    assert sampled_gap(vllm, tied_model) < 1e-4
    for path in (other_model, tied_model):
        vllm.sleep()
        for wake in ("weights", "kv_cache"):
            with pytest.raises(RuntimeError, match="the engine is asleep"):
                sampled_gap(vllm, path)
            vllm.wake(wake)
            if wake == "weights":
                vllm.load_weights(actor_of(path).weights())
        assert sampled_gap(vllm, path) < 1e-4


def test_sleeping_run_with_empty_steps_resumes(engines, train_and_resume, tmp_path, monkeypatch):
    """A resumed run against an uninterrupted one, with everything that could disturb the order of seeds.

    The engine sleeps as on a GPU and has one seed per batch; groups are replaced, every step is followed by an
    evaluation, and some steps keep no rollout.
    """
    monkeypatch.setattr("d3s.groups.MAX_ROUNDS", 1)
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


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, [], "heads have size 16, vLLM on the CPU supports 32, "),
        ({}, ["rollout.kv_cache_gb=0.0001"], "kv_cache_gb: the KV cache cannot hold one sequence of 192 tokens"),
        (None, [], "cannot load the model's weights ("),
    ],
)
def test_refused_models_raise_one_sentence(engines, changes, options, message, tmp_path):
    path = save_random_model(tmp_path / "model", seed=0, **(changes or {}))
    if changes is None:  # pickled weights alone
        torch.save({}, path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()
    with pytest.raises(UserError) as refusal:
        build(path, *options)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
    assert (OTHER_ENGINE in str(refusal.value)) == (not options and changes is not None)  # which needs safetensors too


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("No available memory for the cache blocks."), "gpu_memory_utilization: the KV cache cannot hold "),
        (ValueError("Free memory on device cuda:0 (3/80 GiB)"), "gpu_memory_utilization: too little free GPU memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "gpu_memory_utilization: too little free GPU memory (OutOfMem"),
        (RuntimeError("create shm in SHMManager failed. errno: 17"), "tensor_parallel_size: another run on this mach"),
    ],
)
def test_memory_errors_name_the_option(engines, tied_model, monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("vllm.LLM", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError) as refusal:
        build(tied_model, dtype="bfloat16")
    assert str(refusal.value).startswith(f"rollout.{message}")


def test_taken_port_is_no_fault_of_the_model(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "29500")
    taken = RuntimeError("listen failed: code: -98, name: EADDRINUSE, message: address already in use")
    assert vllm_problem("model", taken).startswith("MASTER_PORT: got 29500, expected a free port")


def test_variables_that_the_user_set_may_be_at_fault(monkeypatch):
    """vLLM's messages about them need not name them."""
    error = ValueError("Unable to configure handler 'vllm'")
    for level, remedy in (("FOO", ", or unset VLLM_LOGGING_LEVEL if that is at fault"), ("ERROR", "")):
        monkeypatch.setattr("d3s.rollout.vllm_setup.GIVEN", {"VLLM_LOGGING_LEVEL": level})
        assert vllm_problem("model", error).endswith(f" 'vllm'); {OTHER_ENGINE}{remedy}")


def test_refused_weights_raise_one_sentence(engines, tied_model, monkeypatch):
    """Unknown ones, and a prefix cache that is not cleared."""
    engine = engines["vllm"]
    with pytest.raises(UserError) as refusal:
        engine.load_weights(iter([("model.layers.0.no_such.weight", torch.ones(2))]))
    assert str(refusal.value).startswith(f"{tied_model}: vLLM cannot load this model (")
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="did not clear its prefix cache"):
        patched.setattr(engine.llm, "reset_prefix_cache", lambda: False)
        engine.load_weights(actor_of(tied_model).weights())
    engine.load_weights(actor_of(tied_model).weights())
    assert sampled_gap(engine, tied_model) < 1e-4


def test_missing_first_runner_is_one_sentence(engines, tied_model, monkeypatch):
    """With a runner that makes no instance of the recorder, and without the recorder's module."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("vllm.LLM", lambda *_, **__: None)
    remedy = f"; install the version of requirements.txt, or {re.escape(OTHER_ENGINE)}"
    for reason in ("the loaded runner does not use its logits processors", "logits_processor"):
        with pytest.raises(UserError, match=rf"^rollout.engine: vLLM 0\..* first model runner \(.*{reason}.*{remedy}$"):
            build(tied_model)
        monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", None)


# --- environment ------------------------------------------------------------------------------------------------------


def test_unusable_gpu_is_no_fault_of_the_model(tied_model, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(UserError, match=r"^torch .* finds no usable GPU"):
        load_vllm(str(tied_model), {})


@pytest.mark.parametrize("cuda", [True, False])
def test_environment_keeps_values_that_are_set(monkeypatch, cuda):
    """Dynamo is disabled without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert ("TORCHDYNAMO_DISABLE" in vllm_environment()) != cuda
    given = {"VLLM_LOGGING_LEVEL": "DEBUG", "RANK": "3", "MASTER_PORT": "29500"}
    monkeypatch.setattr(os, "environ", dict(given))
    prepare_vllm_environment()
    assert os.environ.items() >= (vllm_environment() | {"WORLD_SIZE": "1"} | given).items()


@pytest.mark.parametrize(
    ("capability", "trains", "problem"),
    [
        (None, False, "CPU, expected a GPU"),
        ((7, 5), False, "capability 7.5, expected 8.0 or higher; unset it$"),
        ((8, 9), False, None),
        ((8, 0), True, "capability 8.0, expected 9.0 or higher next to an actor; unset it, or set "),
        ((9, 0), True, None),
    ],
)
def test_batch_invariance_needs_a_new_gpu(monkeypatch, capability, trains, problem):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    servers = ["rollout.servers=[http://a:1]", "selector.entropy_source=actor"]

    def check(*options):
        check_batch_invariance(load_config([], options).rollout, trains)

    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    check()
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    check(*servers)
    for options in ([], servers):
        with pytest.raises(UserError, match=r"requires rollout\.seeds: request"):
            check("rollout.seeds=engine", *options)
    with pytest.raises(UserError, match=f"^VLLM_BATCH_INVARIANT: got a .*{problem}") if problem else nullcontext():
        check()


def test_batch_invariance_is_refused_before_the_engine(refusal, monkeypatch):
    """By train.py and eval.py on the CPU, where vLLM would fail at the first prompt."""
    message = "VLLM_BATCH_INVARIANT: got a CPU, expected a GPU"
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setattr("d3s.trainer.read_problems", None)
    assert refusal(["train.py", "--config", "configs/tiny.yaml"]).startswith(message)
    monkeypatch.setattr("vllm.LLM", None)
    with pytest.raises(UserError, match=message):
        open_engine("some/model", "vllm", "float32", 64, seed=0)


def test_own_shared_memory_is_removed(monkeypatch):
    """Rank 90003 of pairs has the second place of 90002-90003; the file of its partner stays."""
    own, partner = (Path(f"/dev/shm/-tp:0-[90002-90003]-cpushm_{place}") for place in (1, 0))
    monkeypatch.setenv("RANK", "90003")
    try:
        own.touch()
        partner.touch()
        for _ in range(2):  # the second time it is gone
            remove_stale_shared_memory(2)
            assert not own.exists() and partner.exists()
    finally:
        partner.unlink()


# --- entropies --------------------------------------------------------------------------------------------------------


def update(added=(), removed=(), moved=()):
    """A batch update of vLLM; each added row is (row, request, start, its live list of output tokens)."""
    rows = [
        (row, SimpleNamespace(extra_args=None if request is None else {"request": request, "start": start}), [], ids)
        for row, request, start, ids in added
    ]
    return SimpleNamespace(added=rows, removed=list(removed), moved=list(moved))


def test_entropies_follow_requests_through_the_batch():
    """Request 7 swaps rows with 5, which then leaves; a row without a recorded request lies between them."""
    from vllm.v1.sample.logits_processor import MoveDirectionality

    recorder = entropy_recorder()(None, None, None)
    logits = [torch.randn(rows, 9, generator=torch.Generator().manual_seed(rows)) for rows in (3, 3, 2)]
    seven, five = [], []
    recorder.update_state(update(added=[(0, 7, 0, seven), (1, None, 0, []), (2, 5, 4, five)]))
    assert recorder.apply(logits[0]) is logits[0]
    for removed, moved in (([], (0, 2, MoveDirectionality.SWAP)), ([0], (2, 0, MoveDirectionality.UNIDIRECTIONAL))):
        seven.append(1), five.append(1)
        recorder.update_state(update(removed=removed, moved=[moved]))
        recorder.apply(logits[len(seven)])
    rollouts = {7: Rollout(0, [1], [2] * 3, [], [], True), 5: Rollout(0, [1], [2] * 6, [], [], True)}
    recorder.write_to(rollouts)
    first, second, third = ([-sum(p * p.log() for p in row.softmax(-1)).item() for row in step] for step in logits)
    assert rollouts[7].entropies == pytest.approx([first[0], second[2], third[0]], rel=1e-5)
    assert rollouts[5].entropies == pytest.approx([nan] * 4 + [first[2], second[0]], rel=1e-5, nan_ok=True)
    assert recorder.steps == []
