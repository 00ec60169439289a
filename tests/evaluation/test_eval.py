"""The command line of eval.py with a real model, against metrics recomputed from its samples."""

import argparse
import json
import shutil
import signal
from collections import Counter

import pytest
from safetensors.torch import load_file, save_file

from d3s.commands.eval import parse_arguments, parse_template_arguments
from d3s.commands.evaluate import open_engine
from d3s.common import UserError
from d3s.data.prompts import INSTRUCTION
from d3s.shapes import SHIPPED
from d3s.tracking.run_directory import lock_run_directory
from tests.helpers.chat_templates import QWEN3_LIKE, qwen3_prompt
from tests.helpers.command_line import complete, finish, lines, start, wait_for
from tests.helpers.data_files import write_rows
from tests.helpers.evaluations import call_eval


def command(*arguments):
    return ["eval.py", *map(str, arguments)]


def evaluate(model, folder, *arguments):
    """One response of at most 4 tokens to each problem of own.jsonl. Returns settings, results, samples."""
    options = ["--model", model, "--data", folder / "own.jsonl", "--n", 1, "--k", 1, "--max-tokens", 4]
    call_eval(*options, "--engine", "transformers", "--output", folder / "out", *arguments)
    summary = json.loads((folder / "out" / "summary.json").read_text())
    return summary["settings"], summary["results"], lines(folder / "out" / "own.jsonl")


def test_vllm_metrics_match_the_samples(base_model, tmp_path, monkeypatch):
    """Two data sets with the real engine and verifier; every metric is recomputed from the samples."""
    from d3s.verifier.verifier import verify

    (tmp_path / "own.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n{"problem": "2*3=", "answer": "6"}\n')
    monkeypatch.setenv("COLUMNS", "150")
    words = [
        "--model", base_model, "--data", "synthetic:precedence", tmp_path / "own.jsonl", "--n", 8, "--k", "1,8",
        "--max-tokens", 48, "--limit", 24, "--output", tmp_path / "out",
    ]  # fmt: skip
    output = complete(command(*words))
    samples = lines(tmp_path / "out" / "precedence.jsonl")
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


@pytest.mark.parametrize("words, ks", [("--n 2", (1,)), ("--n 8", (1, 8)), ("", (1, 8)), ("--n 4 --k 2,4", (2, 4))])
def test_default_values_of_k_are_at_most_n(words, ks):
    assert parse_arguments(["--model", "m", "--data", "d", *words.split()]).k == ks


def test_home_and_help_are_written_out(monkeypatch, capsys):
    """A shell leaves ~ as it is after an equals sign."""
    monkeypatch.setenv("HOME", "/home/ada")
    args = parse_arguments(["--model=~/m", "--data", "A=~/a", "~/b", "c~d", "--output=~/o"])
    assert (args.model, str(args.output)) == ("/home/ada/m", "/home/ada/o")
    assert args.data == ["A=/home/ada/a", "/home/ada/b", "c~d"]
    with pytest.raises(SystemExit):
        parse_arguments(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "95 % confidence" in shown and "%%" not in shown and "{problem} (default: " in shown


def test_second_command_in_one_output_is_refused(base_model, tmp_path):
    """Its responses would be appended to those of the first."""
    output = tmp_path / "out"
    write_rows(tmp_path / "own.jsonl", [{"problem": "1+1?", "answer": "2"}])
    first = evaluate(base_model, tmp_path, "--engine", "transformers", "--output", output)
    with lock_run_directory(output), pytest.raises(UserError, match=r"out: in use by process .* another --output"):
        evaluate(base_model, tmp_path, "--engine", "transformers", "--output", output)
    assert evaluate(base_model, tmp_path, "--engine", "transformers", "--output", output) == first
    (tmp_path / "own.jsonl").rename(tmp_path / "more.jsonl")
    more = ["--model", base_model, "--data", tmp_path / "more.jsonl", "--n", 1, "--k", 1, "--max-tokens", 4]
    call_eval(*more, "--engine", "transformers", "--output", output)  # a further data set joins the summary
    summary = json.loads((output / "summary.json").read_text())
    assert [record["data"] for record in summary["results"]] == list(summary["settings"]["data"]) == ["own", "more"]


def test_interrupted_command_resumes(base_model, tmp_path):
    """SIGTERM in the middle; the second call completes the samples, which test_evaluator.py compares."""
    common = ["--model", base_model, "--data", "synthetic:precedence", "--n", 128, "--k", "1,8,128", "--max-tokens", 12]
    common += ["--limit", 12, "--engine", "transformers", "--output", tmp_path]
    file = tmp_path / "precedence.jsonl"
    process = start(command(*common))
    wait_for(lambda: file.exists() and file.stat().st_size > 0, process)
    process.terminate()
    code, output = finish(process)
    assert code == 128 + signal.SIGTERM and output.endswith("interrupted; rerun the same command to resume\n")
    partial = file.read_bytes()
    assert 0 < len(partial.splitlines()) < 12 * 128, "the evaluation finished before it could be interrupted"
    with pytest.raises(UserError, match="seed: got 1, expected 0"):
        call_eval(*common, "--seed", 1)
    assert file.read_bytes() == partial
    call_eval(*common)
    complete_problems = partial.splitlines()[: len(partial.splitlines()) // 128 * 128]
    samples = file.read_bytes().splitlines()
    assert len(samples) == 12 * 128 and set(complete_problems) <= set(samples)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--k", "64"], "--k: got pass@64, expected at most --n = 32"),
        (["--max-tokens", "5000"], "got responses of up to 5000 tokens, expected less than the model's 2048 positions"),
        (["--stop", "a", ""], "--stop: got ['a', ''], expected at most four texts"),
        (["--template", "chat"], "the tokenizer has no chat template"),
        (["--model", "no/such/model"], "no/such/model: no such directory; expected"),
        (["--reward", "nothing"], "--reward: got 'nothing', expected 'verify', 'boxed', module:function"),
        (
            ["--reward", "tests.helpers.rewards:as_text"],
            "--reward: tests.helpers.rewards:as_text returned '1', expected",
        ),
        (["--reward", "{rule: boxed, strict: 1}"], "--reward: boxed has no option 'strict'"),
        (["--template", "plain", "--system-prompt", "Be brief."], "template 'plain': takes no system_prompt"),
        (["--options", '{"chian": {}}'], "--options: got 'chian', expected the task of a reasoning-gym:TASK in --data"),
    ],
)
def test_mistakes_are_refused_before_output_exists(base_model, tmp_path, arguments, expected):
    options = ["--model", base_model, "--data", "synthetic:precedence", "--output", tmp_path / "out"]
    with pytest.raises(UserError) as caught:
        call_eval(*options, *arguments)
    assert expected in str(caught.value) and not (tmp_path / "out").exists()


def test_half_precisions_leave_equal_room(base_model, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("d3s.commands.evaluate.find_shape", lambda path: SHIPPED["Qwen/Qwen2.5-Math-1.5B"])
    monkeypatch.setattr("d3s.commands.evaluate.free_memory", lambda: 2**36)
    monkeypatch.setattr("d3s.commands.evaluate.build_engine", lambda path, rollout, **_: rollout.kv_cache_gb)
    kinds = ("float32", "float16", "bfloat16")
    whole, half, other = (open_engine(str(base_model), "vllm", kind, 128, seed=0) for kind in kinds)
    assert half == other == whole / 2


def test_chat_options_are_part_of_the_settings(base_model, tmp_path):
    """Samples of other options are refused, also of none."""
    model = shutil.copytree(base_model, tmp_path / "model")
    (model / "chat_template.jinja").write_text(QWEN3_LIKE)
    (tmp_path / "own.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n')
    options, system = (model, tmp_path, "--template", "chat"), ("--system-prompt", "Be brief.")
    thinking, quiet = (("--chat-template-kwargs", json.dumps({"enable_thinking": value})) for value in (True, False))
    settings, _, (sample,) = evaluate(*options, *system, *quiet)
    assert sample["prompt"] == qwen3_prompt(f"1+1?\n{INSTRUCTION}", "Be brief.", thinking=False)
    assert (settings["system_prompt"], settings["chat_template_kwargs"]) == ("Be brief.", {"enable_thinking": False})
    with pytest.raises(UserError, match=r"chat_template_kwargs: got {'enable_thinking': True}, expected {'"):
        evaluate(*options, *system, *thinking)
    with pytest.raises(UserError, match=r"system_prompt: got None, expected 'Be brief\.'"):
        evaluate(*options, *quiet)
    for text in ("[1]", "{a: 1}", '{"a": NaN}'):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a JSON object of text, numbers, true, false"):
            parse_template_arguments(text)


def test_own_rules_are_read_as_in_configurations():
    args = parse_arguments(["--model=m", "--data=d", "--reward", "{rule: a:b, low: 1e-3, kind: no}"])
    assert args.reward == {"rule": "a:b", "low": 0.001, "kind": "no"}


def test_overlong_prompts_are_dropped_on_request(base_model, tmp_path):
    write_rows(tmp_path / "own.jsonl", [{"problem": text, "answer": "2"} for text in ("1+1=", "9" * 3000)])
    with pytest.raises(UserError, match="prompt"):
        evaluate(base_model, tmp_path)
    settings, (result,), _ = evaluate(base_model, tmp_path, "--overlong-prompts", "drop")
    assert (result["problems"], result["dropped"], settings["overlong_prompts"]) == (1, 1, "drop")


def test_samples_of_other_content_are_refused(base_model, tmp_path, monkeypatch):
    """Layers in the middle of the weights, a helper of the reward, a column that no option names."""
    monkeypatch.syspath_prepend(tmp_path)
    model = shutil.copytree(base_model, tmp_path / "model")
    write_rows(tmp_path / "own.jsonl", [{"problem": "1+1=", "answer": "2", "level": 1}])
    (tmp_path / "eval_helper.py").write_text("VALUE = 1.0")
    code = "from eval_helper import VALUE\n\ndef f(response, answer):\n    return VALUE"
    (tmp_path / "eval_reward.py").write_text(code)
    options = (model, tmp_path, "--reward", "eval_reward:f")
    before = evaluate(*options)
    assert evaluate(*options) == before
    tensors = load_file(model / "model.safetensors")
    middle = next(name for name in sorted(tensors) if "mlp" in name)
    for change, expected in (
        (lambda: save_file(tensors | {middle: tensors[middle] + 1}, model / "model.safetensors"), "weights"),
        (lambda: (tmp_path / "eval_helper.py").write_text("VALUE = 0.0"), "module eval_helper"),
        (lambda: write_rows(tmp_path / "own.jsonl", [{"problem": "1+1=", "answer": "2", "level": 2}]), "rows of own"),
    ):
        change()
        with pytest.raises(UserError, match=rf"settings.json: cannot resume with other settings \({expected}: got"):
            evaluate(*options)
        shutil.rmtree(tmp_path / "out")
        evaluate(*options)


def test_own_rewards_score_every_response(base_model, tmp_path, monkeypatch):
    """A function that reads a column of the data set. The engine is closed, as a run closes it."""
    closed = []
    monkeypatch.setattr("d3s.rollout.engine.Engine.close", lambda engine: closed.append(engine))
    rows = [{"problem": f"{i}+{i}=", "answer": "?", "parity": i % 2} for i in range(4)]
    write_rows(tmp_path / "own.jsonl", rows)
    reward = "tests.helpers.rewards:reads_column"
    settings, _, samples = evaluate(base_model, tmp_path, "--n", 4, "--max-tokens", 16, "--reward", reward)
    assert len(closed) == 1
    assert len(samples) == 16 and {s["score"] for s in samples} == {0.0, 1.0} and settings["reward"] == reward
    assert all(s["score"] == (len(s["response"]) % 2 == rows[s["index"]]["parity"]) for s in samples)
