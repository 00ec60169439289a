"""The examples of docs/rewards.md run as they stand: in the module of a user, loaded by the options."""

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.rewards.judge import Judge
from tests.helpers.configs import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/rewards.md").read_text(), re.M | re.S)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write the block that contains a word as a module of that name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(word):
        [block] = [block for block in BLOCKS if word in block]
        (tmp_path / f"documented_{word}.py").write_text(block)
        monkeypatch.delitem(sys.modules, f"documented_{word}", raising=False)
        return f"documented_{word}"

    return write


@pytest.mark.parametrize(
    ("reply", "value"), [("7", 0.7), (" 10\n", 1.0), ("100", 0.0), ("-3", 0.0), ("I say 9", 0.0), ("", 0.0)]
)
def test_documented_model_judge_reads_a_grade(module, reply, value, monkeypatch):
    queries = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            queries.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"message": {"content": reply}}]}).encode())

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name = module("ModelJudge")
    monkeypatch.setattr(f"{name}.ModelJudge.url", f"http://127.0.0.1:{server.server_port}/v1/chat/completions")
    judge = Judge(f"{name}:ModelJudge", RewardConfig())
    try:
        assert judge.submit("the response", "3", {"problem": "1+2="}).result(30).total == value
        [message] = queries[0]["messages"]
        assert "1+2=" in message["content"] and "the response" in message["content"]
    finally:
        judge.close()
        server.shutdown()
        server.server_close()
    with pytest.raises(UserError, match="ModelJudge raised"):  # the server is gone
        Judge(f"{name}:ModelJudge", RewardConfig()).submit("r", "3", {"problem": "p"}).result(30)
