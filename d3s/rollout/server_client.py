"""HTTP calls to vLLM servers: concurrent requests with health checks, every failure as one UserError."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import aiohttp

from d3s.common import UserError, quote

# A server whose health check fails three times in a row ends the run: after at most 3 * (5 + 10) s.
HEALTH_INTERVAL_S, HEALTH_TIMEOUT_S, HEALTH_FAILURES = 5, 10, 3
CHECK_TIMEOUT_S = 30  # for calls that take no time, of a server that is healthy and yet may hang


def _loop_runs() -> bool:
    """Whether this thread, such as a notebook's, has an event loop that runs, inside which no other can run."""
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop().is_running()
    return False


class ServerClient:
    """Calls the servers of one run, at most `max_requests` at once to each."""

    def __init__(self, servers: list[str], max_requests: int) -> None:
        self.servers = servers
        self._max_requests = max_requests

    def run(self, jobs: Callable[[aiohttp.ClientSession], list[Coroutine]]) -> None:
        """Run coroutines concurrently; the first failure ends all.

        Requests have no timeout, as the duration of a response is unknown. Health checks detect a server that hangs.
        """

        async def run_all() -> None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=HEALTH_FAILURES * HEALTH_TIMEOUT_S)
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=self._max_requests, force_close=True)
            session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            async with session, asyncio.TaskGroup() as group:
                checks = [group.create_task(self._watch_health(server)) for server in self.servers]
                if tasks := [group.create_task(job) for job in jobs(session)]:
                    await asyncio.wait(tasks)
                for check in checks:
                    check.cancel()

        try:
            if _loop_runs():
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, run_all()).result()
            else:
                asyncio.run(run_all())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def call(self, session: aiohttp.ClientSession, server: str, path: str, body: dict | None = None) -> dict:
        """POST `body`, or GET if it is None; return the JSON answer. Raises UserError for any other outcome."""
        where = f"{server} (rollout.servers)"
        try:
            async with session.request("GET" if body is None else "POST", server + path, json=body) as answer:
                status, text = answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise UserError(f"{where}: does not answer ({reason}); check the address and the server's log") from error
        if status == 404:
            missing = path.partition("?")[0]
            raise UserError(f"{where}: has no {missing}; expected vLLM's server, started with VLLM_SERVER_DEV_MODE=1")
        if status != 200:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                text = str(json.loads(text)["error"]["message"])
            raise UserError(f"{where}: answered {path} with {status}: {' '.join(text.split())[:300]}")
        try:
            return json.loads(text or "{}")
        except ValueError as error:
            raise UserError(f"{where}: answered {path} with {quote(text)}; expected vLLM's server") from error

    def check_all(self, calls: Callable[[aiohttp.ClientSession, str], Coroutine]) -> None:
        """Make calls to all servers at once, each as `check` does."""
        self.run(lambda session: [self.check(server, calls(session, server)) for server in self.servers])

    async def check(self, server: str, calls: Coroutine) -> None:
        """Make calls that a server answers at once. Raises UserError if they take longer than CHECK_TIMEOUT_S."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await calls
        except TimeoutError as error:
            problem = f"is healthy, but its workers do not answer within {CHECK_TIMEOUT_S} s"
            remedy = "check the server's log, and restart it"
            raise UserError(f"{server} (rollout.servers): {problem}; {remedy}") from error

    async def call_workers(self, session: aiohttp.ClientSession, server: str, method: str, **arguments: str) -> dict:
        """Call a method of the server's workers."""
        return await self.call(session, server, "/collective_rpc", {"method": method, "kwargs": arguments})

    async def _watch_health(self, server: str) -> None:
        """Check the server's health until it fails HEALTH_FAILURES times in a row; then raise UserError."""
        failures = 0
        connector, timeout = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                await asyncio.sleep(HEALTH_INTERVAL_S)
                try:
                    await self.call(session, server, "/health")
                    failures = 0
                except UserError:
                    failures += 1
                    if failures == HEALTH_FAILURES:
                        raise
