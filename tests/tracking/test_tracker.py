"""Lines survive kills, resumption leaves the file of an uninterrupted run, and silent wrongness is said once."""

import json
import math
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError, printable, read_json_lines
from d3s.tracking.health import health
from d3s.tracking.tracker import Tracker


def metrics(step: int, **changes: float) -> dict:
    """A healthy step; a key of `changes` has its slash written as two underscores."""
    line = {
        "step": step,
        "wall_time": float(step),
        "reward/mean": 0.4 + 0.01 * step,
        "reward/std": 0.3,
        "reward/zero_std_groups": 0.1,
        "reward/timeouts": 0,
        "reward/no_answer": 3,
        "reward/decided": 64,
        "policy/entropy": 0.5,
        "completion/truncated": 0.02,
        "schedule/n": 8,
        "schedule/k": 0.05,
        "throughput/tokens_per_s": 1234.0,
    }
    return line | {key.replace("__", "/"): value for key, value in changes.items()}


def sample(step: int, response: str = r"so \boxed{7}") -> dict:
    return {"step": step, "problem": "3+4=", "answer": "7", "response": response, "reward": 1.0}


def write_run(directory: Path, steps: range, resume_step: int = 0) -> None:
    with Tracker(directory, total_steps=12, config={}, resume_step=resume_step, console=False) as tracker:
        for step in steps:
            if step % 3 == 0:
                tracker.log_samples(step, [sample(step)])
            tracker.log(metrics(step, reward__timeouts=5 if step in (4, 9) else 0))
            if step % 4 == 0:
                tracker.log_eval({"step": step, "wall_time": step + 0.5, "data": "test", "pass@1": step / 20})


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_a_line_holds_what_was_logged_and_json_that_every_reader_takes(tmp_path):
    with Tracker(tmp_path, total_steps=2, config={}, console=False) as tracker:
        tracker.log({"step": 1, "loss": math.nan, "grad_norm": math.inf, "x": torch.tensor(0.25), "n": 3})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.endswith("\n") and text.count("\n") == 1
    line = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert line.pop("wall_time") >= 0
    assert line == {"step": 1, "loss": None, "grad_norm": None, "x": 0.25, "n": 3}


@given(st.integers(1, 11), st.integers(0, 11))
def test_a_resumed_run_leaves_the_files_of_an_uninterrupted_one(tmp_path_factory, killed_after, lost):
    """Killed after a step, resumed from a checkpoint `lost` steps older; every file ends in a torn line."""
    directory = tmp_path_factory.mktemp("run")
    write_run(directory / "whole", range(1, 13))
    write_run(directory / "killed", range(1, killed_after + 1))
    for name in ("metrics", "eval", "warnings"):
        with open(directory / "killed" / f"{name}.jsonl", "a") as file:
            file.write('{"step": 99, "reward/me')
    checkpoint = max(0, killed_after - lost)
    write_run(directory / "killed", range(checkpoint + 1, 13), resume_step=checkpoint)
    assert contents(directory / "killed") == contents(directory / "whole")


def test_wall_time_goes_on_from_the_last_kept_line(tmp_path):
    with Tracker(tmp_path, total_steps=9, config={}, console=False) as tracker:
        tracker.log({"step": 1, "wall_time": 100.0})
        tracker.log_eval({"step": 1, "wall_time": 130.0})
        tracker.log({"step": 2, "wall_time": 200.0})
    with Tracker(tmp_path, total_steps=9, config={}, resume_step=1, console=False) as tracker:
        assert 130.0 <= tracker.wall_time < 140.0
        tracker.log({"step": 2})
    assert [line["step"] for line in read_json_lines(tmp_path / "metrics.jsonl")] == [1, 2]
    assert 130.0 <= read_json_lines(tmp_path / "metrics.jsonl")[1]["wall_time"] < 140.0


def test_a_killed_writer_leaves_whole_lines_but_the_last(tmp_path):
    code = (
        "import sys; from pathlib import Path; from d3s.tracking.tracker import Tracker\n"
        "t = Tracker(Path(sys.argv[1]), total_steps=10**9, config={}, console=False)\n"
        "for step in range(1, 10**9): t.log({'step': step, 'x' * 500: 0.1})\n"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root)
    deadline = time.monotonic() + 60
    while not ((file := tmp_path / "metrics.jsonl").exists() and file.stat().st_size > 5000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    *whole, _ = (tmp_path / "metrics.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line)["step"] for line in whole] == list(range(1, len(whole) + 1))


def test_a_full_disk_is_one_sentence_and_leaves_whole_lines(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Tracker(tmp_path, total_steps=9, config={}, console=False) as tracker:
        tracker.log({"step": 1, "x": 0.5})
        whole = (tmp_path / "metrics.jsonl").read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 7, hard))  # seven bytes of the next line fit
        try:
            with pytest.raises(UserError, match=r"metrics\.jsonl: cannot be written \(File too large\); free some"):
                tracker.log({"step": 2, "x": 0.5})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


def test_other_ranks_write_nothing(tmp_path):
    with Tracker(tmp_path / "run", total_steps=2, config={}, enabled=False) as tracker:
        tracker.log(metrics(1))
        tracker.log_eval({"step": 1})
        tracker.log_samples(1, [sample(1)])
        tracker.warn("key", "message")
    assert not (tmp_path / "run").exists()


def test_rows_are_sparse_where_there_is_no_terminal(tmp_path, capsys):
    with Tracker(tmp_path, total_steps=100, config={}) as tracker:
        tracker.log_eval({"step": 0, "data": "sums", "pass@8": 0.875, "pass@1": 0.25, "pass@1_ci": [0.2, 0.3]})
        for step in range(1, 101):
            tracker.log(metrics(step))
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "evaluation at step 0  sums  pass@1 0.250 [0.200, 0.300]  pass@8 0.875"
    assert rows[1] == "step   1/100  reward 0.410  pass@1 0.250  N 8 K 5%  1,234 tok/s"
    assert [int(row[5:8]) for row in rows[1:]] == [1, *range(5, 101, 5)]


def test_a_run_without_evaluations_has_no_column_for_them(tmp_path, capsys):
    with Tracker(tmp_path, total_steps=100, config={}) as tracker:
        tracker.say("3 problems\x1b[31m")
        tracker.log(metrics(1))
    assert capsys.readouterr().out.splitlines() == [
        "3 problems␛[31m",
        "step   1/100  reward 0.410  N 8 K 5%  1,234 tok/s",
    ]


def test_a_warning_is_said_once_until_it_clears(tmp_path, capsys):
    with Tracker(tmp_path, total_steps=100, config={}) as tracker:
        for step in range(1, 31):
            tracker.log(metrics(step, reward__timeouts=2 if step <= 8 or step > 20 else 0))
    spoken = [line for line in read_json_lines(tmp_path / "warnings.jsonl") if line["key"] == "verifier_timeouts"]
    assert [line["step"] for line in spoken] == [1, 22]  # 4 of 320 rollouts at step 22; only 2 at step 21
    assert capsys.readouterr().out.count("warning: ") == 2


def test_model_output_cannot_drive_the_terminal(tmp_path, capsys):
    hostile = "\x1b[2J\x1b]0;owned\x07 [bold red]x[/] \u202egnp.exe \ud800"
    with Tracker(tmp_path, total_steps=1, config={}) as tracker:
        tracker.log_samples(1, [sample(1, hostile)])
        tracker.log(metrics(1, reward__mean=0.0, reward__std=0.0))
    out = capsys.readouterr().out
    assert "every reward" in out and "[bold red]x[/]" in out
    assert not set(out) & set("\x1b\x07\u202e\ud800")
    assert printable("a\nb\x00") == "a\nb␀"


def test_a_resumed_run_without_a_step_says_so(tmp_path):
    write_run(tmp_path, range(1, 13))
    write_run(tmp_path, range(0), resume_step=12)
    assert read_json_lines(tmp_path / "warnings.jsonl")[-1]["key"] == "no_steps_left"


FLOAT32 = {"model": {"dtype": "float32"}, "rollout": {"top_p": 1.0, "top_k": -1}}


def keys(history: list[dict], samples: list[dict] = (), config: dict = FLOAT32) -> set[str]:
    return {finding.key for finding in health(history, samples, config=config)}


def test_a_healthy_run_has_no_findings():
    assert keys([metrics(step) for step in range(1, 50)], [sample(49)]) == set()
    assert keys([]) == set() and keys([{"step": step} for step in range(1, 9)]) == set()


@pytest.mark.parametrize(
    "change, key",
    [
        ({"reward__mean": 0.0, "reward__std": 0.0}, "zero_reward"),
        ({"reward__zero_std_groups": 1.0}, "zero_variance"),
        ({"reward__no_answer": 64}, "no_answer"),
        ({"completion__truncated": 1.0}, "all_truncated"),
        ({"policy__entropy": 0.005}, "entropy_collapsed"),
        ({"policy__clip_low": 0.15, "policy__clip_high": 0.1}, "much_clipped"),
        ({"mismatch__max_abs": 0.02}, "mismatch"),
    ],
)
def test_a_symptom_counts_when_it_has_lasted(change, key):
    healthy, sick = [metrics(s) for s in range(1, 21)], [metrics(s, **change) for s in range(21, 26)]
    assert keys(healthy + sick[:4]) == set()
    assert keys(healthy + sick) == {key}
    assert keys(healthy + sick + [metrics(26)]) == set()


def test_a_mismatch_is_judged_by_the_precision():
    def found(dtype, sampling=(), **gaps):
        config = {"model": {"dtype": dtype}, "rollout": {"top_p": 1.0, "top_k": -1, **dict(sampling)}}
        return keys([metrics(s, **gaps) for s in range(1, 6)], config=config)

    assert found("float32", mismatch__max_abs=9e-4) == set()
    assert found("bfloat16", mismatch__mean_abs=0.04, mismatch__max_abs=0.5) == set()  # as published for vLLM
    assert found("bfloat16", mismatch__mean_abs=0.2, mismatch__max_abs=0.5) == {"mismatch"}
    for sampling in ({"top_p": 0.9}, {"top_k": 5}):  # the engine's probabilities are of what is left
        assert found("float32", sampling, mismatch__max_abs=0.5) == set()


def test_timeouts_above_one_percent():
    steps = range(1, 6)  # 64 rollouts a step: 320 in the window
    assert keys([metrics(s, reward__timeouts=3 if s == 5 else 0) for s in steps]) == set()  # 0.94 %
    assert keys([metrics(s, reward__timeouts=4 if s == 5 else 0) for s in steps]) == {"verifier_timeouts"}  # 1.25 %


def test_a_mask_that_never_masked_is_named_at_the_end():
    """Not before: and not where it masked at the start or lately."""

    def run(masked, last=20):
        return [metrics(s, mismatch__rollouts_masked=masked.get(s, 0.0), progress=s / 20) for s in range(1, last + 1)]

    assert keys(run({})) == {"nothing_masked"}
    assert keys(run({}, 19)) == keys(run({1: 0.1})) == keys(run({18: 0.1})) == set()


def test_all_zero_rewards_show_a_response_and_the_gold_answer():
    dead = {"reward__mean": 0.0, "reward__std": 0.0, "reward__zero_std_groups": 1.0, "reward__no_answer": 64}
    history = [metrics(s, **dead) for s in range(1, 6)]
    found = {f.key: f.message for f in health(history, [sample(5, "x" * 500 + "I think it is 7")])}
    assert set(found) == {"zero_reward", "no_answer"}  # equal rewards follow from zero rewards
    assert "gold answer is '7'" in found["zero_reward"] and "I think it is 7" in found["zero_reward"]
    assert len(found["zero_reward"]) < 500


def test_wandb_offline_gets_every_number(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    with Tracker(tmp_path, total_steps=2, config={"a": 1}, wandb_project="p", console=False) as tracker:
        tracker.log(metrics(1))
        tracker.log_eval({"step": 1, "data": "sums", "pass@1": 0.25})
    (log,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    deadline = time.monotonic() + 60
    while not all(key in log.read_bytes() for key in (b"reward/mean", b"eval/sums/pass@1")):  # wandb flushes late
        assert time.monotonic() < deadline
        time.sleep(0.05)
