"""The page sections of the demo, against the files of an artificial run."""

import json

from research import demo_results


def test_demo_sections_show_the_run(tmp_path):
    for when, value in (("before", 0.25), ("after", 0.75)):
        result = {"problems": 40, "n": 8, "mean_length": 33.4} | {m: value for m in demo_results.METRICS}
        result |= {f"{m}_ci": [value - 0.05, value + 0.05] for m in demo_results.METRICS}
        (tmp_path / f"eval-{when}").mkdir()
        (tmp_path / f"eval-{when}" / "summary.json").write_text(json.dumps({"results": [result]}))
    lines = [{"step": i, "time/step": 2.5, "tokens_trained": 9 * i, "tokens_generated": 1000 * i} for i in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sentence, section = demo_results.describe(tmp_path)
    assert sentence.startswith("Pass@1 goes from 25% to 75% on 40 test problems; 1% of the sampled tokens")
    assert "2 steps, 5 s of training" in section and "Of 2,000 sampled tokens 18 (0.9%) were trained" in section
    assert "| after D3S | 75.0 (70.0 to 80.0) | 75.0 (70.0 to 80.0) | 75.0 (70.0 to 80.0) | 33.4 |" in section
