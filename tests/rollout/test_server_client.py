"""HTTP calls to servers with fixed answers: concurrency, each failure as one sentence."""

import time

import pytest

from d3s.common import UserError
from d3s.rollout import server_client
from d3s.rollout.server_client import ServerClient
from tests.helpers.fake_server import answering_server


@pytest.fixture
def fake_server():
    """The address of a healthy server, and its answers by path, which a test may change."""
    answers = {"/health": (200, {})}
    with answering_server(answers) as address:
        yield address, answers


def call(address, path, body=None):
    client = ServerClient([address], 4)
    client.run(lambda session: [client.call(session, address, path, body)])


def test_requests_per_server_are_limited(fake_server):
    """Six requests of 0.2 s each, of which the server drops every one, take three rounds at two a time."""
    address, answers = fake_server
    answers["/slow"] = 0.2
    client = ServerClient([address], 2)

    async def job(session):
        with pytest.raises(UserError, match="does not answer"):
            await client.call(session, address, "/slow")

    began = time.monotonic()
    client.run(lambda session: [job(session) for _ in range(6)])
    assert time.monotonic() - began > 0.55


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, {}), "has no /path; expected vLLM's server, started with VLLM_SERVER_DEV_MODE=1"),
        ((500, {"error": {"message": "first\n  second"}}), "answered /path with 500: first second"),
        ((401, {"error": "Unauthorized"}), 'answered /path with 401: {"error": "Unauthorized"}'),
    ],
)
def test_error_answers_are_one_sentence(fake_server, answer, message):
    address, answers = fake_server
    answers["/path"] = answer
    with pytest.raises(UserError) as error:
        call(address, "/path")
    assert str(error.value) == f"{address} (rollout.servers): {message}"


@pytest.mark.parametrize(("health", "message"), [((503, {}), "answered /health with 503"), (5.0, "does not answer")])
def test_hanging_server_ends_the_calls(fake_server, health, message, monkeypatch):
    """Health checks fail while a request is still open, as requests have no timeout."""
    address, answers = fake_server
    monkeypatch.setattr(server_client, "HEALTH_INTERVAL_S", 0.1)
    monkeypatch.setattr(server_client, "HEALTH_TIMEOUT_S", 0.3)
    answers["/v1/completions"], answers["/health"] = 20.0, health
    began = time.monotonic()
    with pytest.raises(UserError, match=message):
        call(address, "/v1/completions", {})
    assert time.monotonic() - began < 5


def test_unreachable_server_is_refused():
    with pytest.raises(UserError, match=r"^http://127.0.0.1:9 \(rollout.servers\): does not answer \("):
        call("http://127.0.0.1:9", "/server_info")
