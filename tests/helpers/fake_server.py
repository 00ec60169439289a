"""An HTTP server that gives fixed answers, for tests of what the engine makes of a server's answers."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def answering_server(answers: dict[str, tuple[int, dict] | float]) -> Iterator[str]:
    """Yield the address of a server that looks up each path: (status, JSON body), or seconds of silence; else 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = answers.get(self.path.partition("?")[0], (404, {"detail": "Not Found"}))
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
