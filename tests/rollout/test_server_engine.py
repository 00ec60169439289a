"""A vLLM server against the actor; runs on servers or with tensor parallelism against one process.

Which servers are refused is tested with servers that answer by hand.
"""

import threading
import time
from collections import Counter

import pytest
import torch
from transformers import AutoTokenizer

from d3s.common import UserError
from d3s.rollout import server_engine
from d3s.rollout.engine import SamplingParams
from d3s.rollout.server_client import ServerClient
from tests.helpers.command_line import complete, lines, run
from tests.helpers.fake_server import MODULES, SETTINGS, answering_server, fitting_answers, info
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import PROMPTS, actor_of, assert_stops, assert_whole, logprob_gap, sampled_gap, sampled_ids
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import arguments, parameters
from tests.helpers.training import EVALUATED
from tests.helpers.vllm_server import engine_of, second_address, server


@pytest.fixture(scope="module")
def address(tied_model):
    with server(tied_model, max_model_len=512) as address:
        yield address


@pytest.fixture(scope="module")
def engine(address, tied_model, tmp_path_factory):
    """The server, under two names, with fewer requests at once than the tests ask for."""
    addresses = [address, address.replace("127.0.0.1", "localhost")]
    return engine_of(addresses, tied_model, tmp_path_factory.mktemp("engine"), "rollout.max_num_seqs=7")


def test_response_depends_on_its_seed_alone(engine):
    together = sampled_ids(engine, [0, 1, 2, 3])
    assert sampled_ids(engine, [3, 2, 1, 0]) == together[::-1]  # each prompt under the other name
    assert sampled_ids(engine, [0, 1, 2, 3], samples=[2]) == [[group[2]] for group in together]
    other = sampled_ids(engine, [0, 1, 2, 3], seed=1)  # the same indices in another run
    assert len({tuple(response) for group in together + other for response in group}) == 32
    assert sampled_ids(engine, []) == []


def test_stop_texts_end_responses_where_they_are_complete(engine, tied_model):
    assert_stops(engine, AutoTokenizer.from_pretrained(tied_model), limit=60)


def test_server_logprobs_match_actor(engine, tied_model):
    calls, temperature = [], 0.7
    rollouts = engine.generate(
        PROMPTS,
        n=8,
        params=SamplingParams(temperature=temperature, max_tokens=100),
        seeds=list(range(32)),
        on_finished=lambda r: calls.append((id(r), threading.current_thread(), time.monotonic())),
    )
    end = time.monotonic()
    assert logprob_gap(rollouts, tied_model, temperature) < 1e-4
    assert {rollout for rollout, _, _ in calls} == {id(r) for r in rollouts} and len(calls) == len(rollouts)
    assert {thread for _, thread, _ in calls} == {threading.main_thread()}
    assert end - calls[0][2] > 0.05  # the first call came during generation
    assert_whole(rollouts, 100)
    assert not any(r.entropies for r in rollouts)


def test_stop_tokens_and_model_length_end_responses(engine, monkeypatch):
    stops = [175, 37]  # not the tokenizer's
    monkeypatch.setattr(engine, "stop_token_ids", stops)
    assert_whole(engine.generate(PROMPTS, 8, SamplingParams(max_tokens=1000), list(range(32))), 1000, stops)


def test_top_p_of_one_token_is_greedy(engine, tied_model):
    few = engine.generate(PROMPTS, n=4, params=SamplingParams(top_p=1e-6, max_tokens=6), seeds=list(range(16)))
    greedy = engine.generate(PROMPTS, n=1, params=SamplingParams(temperature=0.0, max_tokens=6), seeds=[0] * 4)
    assert [r.response_ids for r in few[::4]] == [r.response_ids for r in greedy]
    assert max(abs(x) for r in few for x in r.logprobs) < 1e-6  # among the only token that may be drawn


def test_new_weights_reach_every_server(engine, tied_model, tmp_path, monkeypatch):
    other = save_random_model(tmp_path / "other", seed=7)
    files, calls, save, call = [], [], server_engine.save_file, ServerClient.call

    def recording_call(client, session, address, path, *body):
        calls.append((address, path))
        return call(client, session, address, path, *body)

    monkeypatch.setattr(server_engine, "CHUNK_BYTES", 100_000)
    monkeypatch.setattr(server_engine, "save_file", lambda part, path: files.append(path) or save(part, path))
    monkeypatch.setattr(ServerClient, "call", recording_call)
    assert sampled_gap(engine, tied_model) < 1e-4  # of the same prompts as below, whose prefixes are then cached
    assert len({server for server, _ in calls}) == 2
    calls.clear()
    engine.load_weights(actor_of(other).weights())
    assert len(files) > 2 and not engine.weights_folder.exists()
    assert Counter(path for _, path in calls) == {"/collective_rpc": 2, "/reset_prefix_cache": 2}
    assert len(set(calls)) == 4  # each on both servers
    assert sampled_gap(engine, other) < 1e-4
    engine.load_weights(reversed(list(actor_of(tied_model).weights())))
    assert sampled_gap(engine, tied_model) < 1e-4


# --- full runs ------------------------------------------------------------------------------------------------------

VLLM = [
    "rollout.engine=vllm", "rollout.max_completion_length=32", "selector.entropy_source=actor",
    "rollout.kv_cache_gb=0.1", "train.steps=3",
]  # fmt: skip


def assert_same_training(folder, reference, start):
    """Assert equal rollouts and rewards, and equal updates up to rounding."""
    for step, expected in zip(lines(folder / "metrics.jsonl"), lines(reference / "metrics.jsonl"), strict=True):
        for key in ("reward/mean", "completion/length", "tokens_generated", "tokens_trained", "selection/tokens"):
            assert step[key] == expected[key]
        for key in ("loss", "grad_norm", "policy/entropy_selected"):
            assert step[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-5)
        assert step["sync/max_abs_dlogp"] < 1e-4 and step["mismatch/max_abs"] < 1e-4
    assert_same_way(parameters(folder / "model"), parameters(reference / "model"), parameters(start))


@pytest.fixture(scope="module")
def own_engine(tied_model, tmp_path_factory):
    """A run of one process with its own engine."""
    folder = tmp_path_factory.mktemp("own") / "run"
    complete([*arguments(tied_model, folder), *VLLM], "single")
    return folder


def test_run_resumes_after_a_server_is_killed(address, own_engine, tied_model, tmp_path, monkeypatch, no_process_stays):
    """ZeRO-3 ranks on two servers, of which one becomes unreachable during generation, then on the other one."""
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), *VLLM, "--resume", "auto"]
    with second_address(address) as (dead, process):
        monkeypatch.setenv("D3S_SERVER", str(process.pid))
        servers = f"rollout.servers=[{address},{dead}]"
        dying = ["tests/helpers/faulty_train.py", "server:generate:3:1", *options[1:], servers]
        code, output = run(dying, "zero3", timeout=120)
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert code == 1 and errors, output
    assert errors[0].startswith(f"error: {dead} (rollout.servers): does not answer (")
    assert len(lines(folder / "metrics.jsonl")) == 2
    complete([*options, f"rollout.servers=[{address}]"], "zero3")
    assert_same_training(folder, own_engine, tied_model)
    assert all(step["policy/entropy"] is None for step in lines(folder / "metrics.jsonl"))
    assert not (folder / "weights").exists()


def test_tensor_parallel_run_matches_one_process(own_engine, tied_model, tmp_path):
    """Both ranks sample each problem, which counts once, also in evaluations whose problems do not divide evenly."""
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), *VLLM, "rollout.tensor_parallel_size=2", *EVALUATED, "eval.limit=3"]
    complete(options, "zero3", timeout=480)  # tensor parallel ranks are slow on a busy machine
    assert_same_training(folder, own_engine, tied_model)
    for step, expected in zip(lines(folder / "metrics.jsonl"), lines(own_engine / "metrics.jsonl")):
        assert step["policy/entropy"] == pytest.approx(expected["policy/entropy"], abs=1e-5)
    assert [record["problems"] for record in lines(folder / "eval.jsonl")] == [3, 3]


# --- servers that are refused, by fixed answers -------------------------------------------------------------------

CHUNKED = {"scheduler_config": {"enable_chunked_prefill": True}}


@pytest.fixture
def fake_server():
    """The address of a server that fits, and its answers by path, which a test may change."""
    answers = fitting_answers()
    with answering_server(answers) as address:
        yield address, answers


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (info(logprobs_mode="raw_logprobs"), "--logprobs-mode raw_logprobs, expected processed_logprobs"),
        (info(dtype="torch.bfloat16"), "--dtype bfloat16, expected float32"),
        (info(hf_overrides={"head_dtype": "float32"}), "head_dtype float32 in --hf-overrides, expected auto (model.h"),
        (info(max_model_len=191), "--max-model-len 191, expected at least 192"),
        (info(SETTINGS | CHUNKED), "chunked prefill, expected --no-enable-chunked-prefill"),
        (MODULES.replace("64", "96"), "some/model of hidden size 96 with 257 tokens, expected hidden size 64"),
        (MODULES.replace("257", "300"), "hidden size 64 with 300 tokens, expected hidden size 64 with 257 tokens"),
    ],
)
def test_unfit_server_is_refused(fake_server, answer, problem, tied_model, tmp_path):
    address, answers = fake_server
    engine_of([address], tied_model, tmp_path)  # fits
    if isinstance(answer, str):
        answers["/collective_rpc"] = (200, {"results": [answer]})
    else:
        answers["/server_info"] = answer
    with pytest.raises(UserError) as refusal:
        engine_of([address], tied_model, tmp_path)
    assert str(refusal.value).startswith(f"{address} (rollout.servers): got ") and problem in str(refusal.value)


def test_server_must_be_batch_invariant_if_asked(fake_server, tied_model, tmp_path, monkeypatch):
    address, answers = fake_server
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with pytest.raises(UserError, match=r"\(rollout\.servers\): got a server without VLLM_BATCH_INVARIANT=1"):
        engine_of([address], tied_model, tmp_path)
    answers["/server_info"][1]["vllm_env"] = {"VLLM_BATCH_INVARIANT": True}
    engine_of([address], tied_model, tmp_path)


def test_failed_requests_report_the_servers_answer(fake_server, tied_model, tmp_path):
    address, answers = fake_server
    engine = engine_of([address], tied_model, tmp_path)
    weights = [("one", torch.ones(2))]
    answers["/collective_rpc"] = (500, {"error": {"message": "Worker failed with 'no such folder'"}})
    with pytest.raises(UserError, match=r"500: Worker failed with 'no such folder'; the server must see that folder"):
        engine.load_weights(iter(weights))
    answers["/collective_rpc"], answers["/reset_prefix_cache"] = (200, {}), (200, {"success": False})
    with pytest.raises(UserError, match="in use by another client"):
        engine.load_weights(iter(weights))
    answers["/v1/completions"] = (200, {"choices": [{"finish_reason": "abort"}]})
    with pytest.raises(UserError, match="got finish_reason 'abort', expected stop or length"):
        engine.generate(PROMPTS, n=1, params=SamplingParams(max_tokens=5), seeds=list(range(4)))
