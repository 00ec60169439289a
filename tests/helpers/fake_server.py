"""An HTTP server that gives fixed answers, for tests of what the engine makes of a server's answers."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = {
    "logprobs_mode": "processed_logprobs", "dtype": "torch.float32", "max_model_len": 512, "model": "some/model",
    "hf_overrides": {},
}  # fmt: skip
SETTINGS = {"device_config": {"device": "cpu"}, "scheduler_config": {"enable_chunked_prefill": False}}
MODULES = "(embed_tokens): VocabParallelEmbedding(num_embeddings=257, embedding_dim=64, org_vocab_size=257, tp_size=1)"


def info(settings: dict = SETTINGS, **model) -> tuple[int, dict]:
    """The answer to /server_info of a server that fits the tests' models, but for these settings."""
    return 200, {"vllm_config": settings | {"model_config": MODEL | model}, "vllm_env": {}}


def fitting_answers() -> dict:
    """The answers of a server that fits the tests' models."""
    return {"/server_info": info(), "/collective_rpc": (200, {"results": [MODULES]}), "/health": (200, {})}


@contextmanager
def answering_server(answers: dict[str, tuple[int, dict] | float | Callable]) -> Iterator[str]:
    """Yield the address of a server that looks up each path: (status, JSON body), or seconds of silence; else 404.

    An answer may also be a function of the method, the path and the body that gives one.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = answers.get(self.path.partition("?")[0], (404, {"detail": "Not Found"}))
            if callable(answer):
                answer = answer(self.command, self.path, body)
            if isinstance(answer, float):
                time.sleep(answer)
                return
            status, body = answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 64

        def handle_error(self, *_):  # a client that has given up closes the connection
            pass

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
