"""The command line of eval.py with a real model, against metrics recomputed from its samples."""

import argparse
import io
import json
import shutil
from collections import Counter

import pytest
from rich.console import Console

from d3s.commands import eval as evaluate_command
from d3s.common import UserError
from d3s.data.prompts import INSTRUCTION
from tests.helpers.chat_templates import QWEN3_LIKE, qwen3_prompt
from tests.helpers.command_line import complete, finish, start, wait_for


@pytest.fixture
def base(base_model):
    return str(base_model)


def command(*arguments):
    return ["eval.py", *map(str, arguments)]


def call_in_process(*arguments):
    """The same in this process, which saves the imports. Returns what it prints."""
    output = io.StringIO()
    evaluate_command.main(evaluate_command.parse_arguments([str(a) for a in arguments]), Console(file=output))
    return output.getvalue()


def test_vllm_metrics_match_the_samples(base, tmp_path, monkeypatch):
    """Two data sets with the real engine and verifier; every metric is recomputed from the samples."""
    from d3s.verifier.verifier import verify

    (tmp_path / "own.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n{"problem": "2*3=", "answer": "6"}\n')
    monkeypatch.setenv("COLUMNS", "150")
    words = [
        "--model", base, "--data", "synthetic:precedence", tmp_path / "own.jsonl", "--n", 8, "--k", "1,8",
        "--max-tokens", 48, "--limit", 24, "--output", tmp_path / "out",
    ]  # fmt: skip
    output = complete(command(*words))
    samples = [json.loads(line) for line in (tmp_path / "out" / "precedence.jsonl").read_text().splitlines()]
    assert f"--->{samples[0]['prompt']}<---" in output
    assert len(samples) == 24 * 8 and len({s["response"] for s in samples}) > 60
    correct = Counter()
    for s in samples:
        assert s["score"] == verify(s["response"], s["answer"])
        correct[s["index"]] += s["score"]
        assert s["tokens"] == len(s["response"].encode()) + s["finished"] or "\ufffd" in s["response"]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    synthetic, own = summary["results"]
    assert synthetic["pass@1"] == pytest.approx(sum(correct.values()) / len(samples))
    assert synthetic["pass@8"] == pytest.approx(sum(c > 0 for c in correct.values()) / 24)
    assert synthetic["mean_length"] == pytest.approx(sum(s["tokens"] for s in samples) / len(samples))
    assert (own["data"], own["problems"], own["n"]) == ("own", 2, 8)
    assert summary["verifier"]["timeouts"] == 0 and summary["settings"]["engine"] == "vllm"


def test_interrupted_command_resumes(base, tmp_path):
    """SIGTERM in the middle; the second call completes the samples to those of an uninterrupted run."""
    common = ["--model", base, "--data", "synthetic:precedence", "--n", 128, "--k", "1,8,128", "--max-tokens", 12]
    common += ["--limit", 12, "--engine", "transformers"]
    file = tmp_path / "interrupted" / "precedence.jsonl"
    process = start(command(*common, "--output", tmp_path / "interrupted"))
    wait_for(lambda: file.exists() and file.stat().st_size > 0, process)
    process.terminate()
    code, output = finish(process)
    assert code and output.endswith("interrupted; rerun the same command to resume\n")
    partial = file.read_bytes()
    assert 0 < len(partial.splitlines()) < 12 * 128, "the evaluation finished before it could be interrupted"
    with pytest.raises(UserError, match="seed: got 1, expected 0"):
        call_in_process(*common, "--seed", 1, "--output", tmp_path / "interrupted")
    assert file.read_bytes() == partial
    for folder in ("interrupted", "full"):
        complete(command(*common, "--output", tmp_path / folder))
    assert file.read_bytes() == (tmp_path / "full" / "precedence.jsonl").read_bytes()
    results = [json.loads((tmp_path / o / "summary.json").read_text())["results"] for o in ("interrupted", "full")]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "synthetic:precedence", "--k", "64"], "--k: got pass@64, expected at most --n = 32"),
        (
            ["--data", "synthetic:precedence", "--max-tokens", "5000"],
            "got responses of up to 5000 tokens, expected less than the model's 2048 positions",
        ),
        (["--data", "synthetic:precedence", "--stop", "a", ""], "--stop: got ['a', ''], expected at most four texts"),
        (["--data", "synthetic:precedence", "--template", "chat"], "the tokenizer has no chat template"),
        (["--data", "synthetic:precedence", "--model", "no/such/model"], "got 'no/such/model', expected a directory"),
        (
            ["--data", "synthetic:precedence", "--temperature", "-1"],
            "temperature: got -1.0, expected 0 (greedy) or 0.01 to 2",
        ),
    ],
)
def test_mistakes_are_refused_before_output_exists(base, tmp_path, arguments, expected):
    with pytest.raises(UserError) as caught:
        call_in_process("--model", base, *arguments, "--output", tmp_path / "out")
    assert expected in str(caught.value) and not (tmp_path / "out").exists()


def test_chat_options_are_part_of_the_settings(base, tmp_path):
    """Samples of other options are refused, also of none, and options without a chat template."""
    model = shutil.copytree(base, tmp_path / "model")
    (model / "chat_template.jinja").write_text(QWEN3_LIKE)
    (tmp_path / "own.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n')
    options = ["--model", model, "--data", tmp_path / "own.jsonl", "--n", 1, "--k", 1, "--max-tokens", 4]
    options += ["--engine", "transformers", "--output", tmp_path / "out", "--template", "chat"]
    chat = ["--system-prompt", "Be brief.", "--chat-template-kwargs", '{"enable_thinking": false}']
    call_in_process(*options, *chat)
    (sample,) = [json.loads(line) for line in (tmp_path / "out" / "own.jsonl").read_text().splitlines()]
    assert sample["prompt"] == qwen3_prompt(f"1+1?\n{INSTRUCTION}", "Be brief.", thinking=False)
    settings = json.loads((tmp_path / "out" / "summary.json").read_text())["settings"]
    assert (settings["system_prompt"], settings["chat_template_kwargs"]) == ("Be brief.", {"enable_thinking": False})
    for others, expected in (
        ([*chat[:3], '{"enable_thinking": true}'], "chat_template_kwargs: got {'enable_thinking': True}, expected {'"),
        (chat[2:], "system_prompt: got None, expected 'Be brief.'"),
        ([*chat, "--template", "base"], "--system-prompt: requires --template chat"),
        ([*chat[2:], "--template", "base"], "--chat-template-kwargs: requires --template chat"),
    ):
        with pytest.raises(UserError) as caught:
            call_in_process(*options, *others)
        assert expected in str(caught.value)
    for text in ("[1]", "{a: 1}", '{"a": [1]}', '{"a": NaN}'):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a JSON object of text, numbers, true, false"):
            evaluate_command.parse_template_arguments(text)


def test_overlong_prompts_are_dropped_on_request(base, tmp_path):
    rows = [{"problem": text, "answer": "2"} for text in ("1+1=", "9" * 3000)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--model", base, "--data", tmp_path / "own.jsonl", "--n", 1, "--k", 1, "--max-tokens", 4]
    options += ["--engine", "transformers", "--output", tmp_path / "out"]
    with pytest.raises(UserError, match="prompt"):
        call_in_process(*options)
    assert "own: 1 prompts longer than" in call_in_process(*options, "--overlong-prompts", "drop")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (result,) = summary["results"]
    assert (result["problems"], result["dropped"], summary["settings"]["overlong_prompts"]) == (1, 1, "drop")


def test_own_rewards_score_every_response(base, tmp_path):
    """A function that reads a column of the data set; its errors end the command before a model is loaded."""
    data, reward = tmp_path / "own.jsonl", "tests.helpers.rewards:reads_column"
    rows = [{"problem": f"{i}+{i}=", "answer": "?", "parity": i % 2} for i in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--model", base, "--data", data, "--n", 4, "--k", 1, "--max-tokens", 16, "--engine", "transformers")
    call_in_process(*options, "--output", tmp_path / "out", "--reward", reward)
    samples = [json.loads(line) for line in (tmp_path / "out" / "own.jsonl").read_text().splitlines()]
    assert len(samples) == 16 and {s["score"] for s in samples} == {0.0, 1.0}
    assert all(s["score"] == (len(s["response"]) % 2 == rows[s["index"]]["parity"]) for s in samples)
    settings = json.loads((tmp_path / "out" / "summary.json").read_text())["settings"]
    assert settings["reward"] == reward
    with pytest.raises(UserError, match=r"--reward: got 'nothing', expected module:function"):
        call_in_process(*options, "--reward", "nothing")
