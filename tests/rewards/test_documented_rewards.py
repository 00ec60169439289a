"""The examples of docs/rewards.md run as they stand: in the module of a user, loaded by the options."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.rewards.judge import Judge
from tests.helpers.configs import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/rewards.md").read_text(), re.M | re.S)


GRADES = {"7": 0.7, " 10\n": 1.0, "100": 0.0, "-3": 0.0, "I say 9": 0.0, "": 0.0}


def test_documented_model_judge_reads_a_grade(tmp_path, monkeypatch):
    """The server replies with what the response says, in each of its forms."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            [message] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            [reply] = [text for text in GRADES if f"<{text}>" in message["content"] and "1+2=" in message["content"]]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"message": {"content": reply}}]}).encode())

        def log_message(self, *arguments):
            pass

    [block] = [block for block in BLOCKS if "ModelJudge" in block]
    (tmp_path / "documented_judge.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    monkeypatch.setattr("documented_judge.ModelJudge.url", url)
    judge = Judge("documented_judge:ModelJudge", RewardConfig())
    graded = {text: judge.submit(f"<{text}>", "3", {"problem": "1+2="}) for text in GRADES}
    assert {text: future.result(30).total for text, future in graded.items()} == GRADES
    server.shutdown()
    server.server_close()
    with pytest.raises(UserError, match="ModelJudge raised"):
        judge.submit("r", "3", {"problem": "p"}).result(30)
    judge.close()
