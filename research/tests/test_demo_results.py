"""The page sections of the demo, against the files of an artificial run."""

import json

import pytest

from research import demo_results


def test_demo_sections_show_the_run(tmp_path):
    evaluations = []
    for value in (0.25, 0.5, 0.75):
        evaluations.append({"problems": 40, "n": 8, "mean_length": 33.4} | {m: value for m in demo_results.METRICS})
        evaluations[-1] |= {f"{m}_ci": [value - 0.05, value + 0.05] for m in demo_results.METRICS}
    (tmp_path / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evaluations))
    lines = [{"step": i, "time/step": 2.5, "tokens_trained": 9 * i, "tokens_generated": 1000 * i} for i in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sentence, section = demo_results.describe(tmp_path)
    assert sentence.startswith("Pass@1 goes from 25% to 75% on 40 test problems; 1% of the sampled tokens")
    assert "2 steps, 5 s of training" in section and "Of 2,000 sampled tokens 18 (0.9%) were trained" in section
    assert "| after D3S | 75.0 (70.0 to 80.0) | 75.0 (70.0 to 80.0) | 75.0 (70.0 to 80.0) | 33.4 |" in section


def test_schedules_are_paired_by_seed(tmp_path, monkeypatch):
    """Differences of -1 and -5 points: -3 +- t(1) x sqrt(8) / sqrt(2) = 12.706 x 2, though the seeds differ by 40."""
    lines = ["task,schedule,minibatches,seed,pass@1,pass@8,problems,tokens_generated,tokens_trained"]
    accuracies = {"growing": {10: 0.90, 9: 0.45}, "constant": {9: 0.50, 10: 0.91}}
    lines += [
        f"{task},{schedule},{minibatches},{seed},{share - (8 - minibatches) / 100},1,8,1000,{100 + 2 * seed}"
        for task in ("precedence", "countdown")
        for schedule, by_seed in accuracies.items()
        for seed, share in by_seed.items()
        for minibatches in (4, 8)
    ]
    monkeypatch.setattr(demo_results, "SCHEDULES", tmp_path / "schedules.csv")
    demo_results.SCHEDULES.write_text("\n".join(lines) + "\n")
    found = demo_results.growth("countdown", "pass@1")
    assert (found.value, found.low, found.high) == pytest.approx((-0.03, -0.03 - 0.25412, -0.03 + 0.25412), abs=1e-5)
    table = demo_results.schedule_table()
    assert "| precedence, Pass@1 | 67.5 | 70.5 | -3.0 (-28.4 to +22.4) |" in table
    assert "| countdown, tokens trained | 11.9 | 11.9 | +0.0 (+0.0 to +0.0) |" in table
