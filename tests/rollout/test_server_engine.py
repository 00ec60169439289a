"""A vLLM server against the actor; runs on servers or with tensor parallelism against one process.

tests/rollout/test_server_answers.py has what is refused, and what fails.
"""

import time
from collections import Counter

import pytest
from transformers import AutoTokenizer

from d3s.rollout import server_engine
from d3s.rollout.engine import SamplingParams
from d3s.rollout.server_client import ServerClient
from tests.helpers.command_line import complete, lines, run
from tests.helpers.models import save_random_model
from tests.helpers.rollouts import (
    PROMPTS,
    actor_of,
    assert_depends_on_seed,
    assert_ends,
    assert_stops,
    assert_whole,
    engine_of,
    logprob_gap,
    sampled_gap,
)
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import arguments, parameters
from tests.helpers.training import EVALUATED
from tests.helpers.vllm_server import second_address, server


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
    """In another order, each prompt is sampled under the server's other name."""
    assert_depends_on_seed(engine)


def test_stop_texts_end_responses_where_they_are_complete(engine, tied_model):
    assert_stops(engine, AutoTokenizer.from_pretrained(tied_model), limit=60)


def test_server_logprobs_match_actor(engine, tied_model):
    calls, params = [], SamplingParams(temperature=0.7, max_tokens=100)
    rollouts = engine.generate(
        PROMPTS, 8, params, list(range(32)), on_finished=lambda r: calls.append((id(r), time.monotonic()))
    )
    assert time.monotonic() - calls[0][1] > 0.05  # the first call came during generation
    assert sorted(key for key, _ in calls) == sorted(map(id, rollouts))
    assert logprob_gap(rollouts, tied_model, temperature=0.7) < 1e-4
    assert_whole(rollouts, 100)
    assert not any(r.entropies for r in rollouts)


def test_stop_tokens_and_model_length_end_responses(engine, monkeypatch):
    assert_ends(engine, monkeypatch)


def test_top_p_of_one_token_is_greedy(engine, tied_model):
    few = engine.generate(PROMPTS, n=4, params=SamplingParams(top_p=1e-6, max_tokens=6), seeds=list(range(16)))
    greedy = engine.generate(PROMPTS, n=1, params=SamplingParams(temperature=0.0, max_tokens=6), seeds=[0] * 4)
    assert [r.response_ids for r in few[::4]] == [r.response_ids for r in greedy]
    assert max(abs(x) for r in few for x in r.logprobs) < 1e-6  # among the only token that may be drawn


def test_new_weights_reach_every_server(engine, tied_model, tmp_path, monkeypatch):
    other = save_random_model(tmp_path / "other", seed=7)
    calls, call = [], ServerClient.call

    def recording_call(client, session, address, path, *body):
        calls.append((address, path))
        return call(client, session, address, path, *body)

    monkeypatch.setattr(server_engine, "CHUNK_BYTES", 100_000)
    monkeypatch.setattr(ServerClient, "call", recording_call)
    assert sampled_gap(engine, tied_model) < 1e-4  # of the same prompts as below, whose prefixes are then cached
    assert len({server for server, _ in calls}) == 2
    calls.clear()
    engine.load_weights(actor_of(other).weights())
    assert not engine.weights_folder.exists()
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
    assert not (folder / "server_weights").exists()


def test_tensor_parallel_run_matches_one_process(own_engine, tied_model, tmp_path):
    """Both ranks sample each problem, which counts once, also in evaluations whose problems do not divide evenly."""
    folder = tmp_path / "run"
    options = [*arguments(tied_model, folder), *VLLM, "rollout.tensor_parallel_size=2", *EVALUATED, "eval.limit=3"]
    complete(options, "zero3", timeout=480)  # tensor parallel ranks are slow on a busy machine
    assert_same_training(folder, own_engine, tied_model)
    for step, expected in zip(lines(folder / "metrics.jsonl"), lines(own_engine / "metrics.jsonl")):
        assert step["policy/entropy"] == pytest.approx(expected["policy/entropy"], abs=1e-5)
    assert [record["problems"] for record in lines(folder / "eval.jsonl")] == [3, 3]
