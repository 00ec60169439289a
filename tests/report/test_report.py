"""Reports: the numbers in tables and curves, and pages that stand alone and show hostile text as text."""

import io
import json
import math
import random
import re
import statistics
import struct
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from d3s.evaluate.intervals import student_interval, t_quantile, welch_interval
from d3s.report.__main__ import main
from d3s.report.panels import format_value, panels_for, phase_seconds
from d3s.report.png import _apart, _summary_facts, _summary_title
from d3s.report.report import draw_demo_picture
from d3s.report.runs import group_runs, load_runs, mean_and_spread, smooth
from d3s.report.samples import load_samples, samples_html, samples_table, token_heats
from d3s.report.samples import main as show_samples
from d3s.report.tables import Table, budget_tables, final_table, settings_table

HOSTILE = "<script>alert(1)</script> $x^2$ | **b** \x1b[2J \u202e [red]"


def write_run(
    directory: Path,
    *,
    seed: int = 0,
    steps: int = 130,
    gain: float = 0.4,
    n: tuple = (8, 32),
    k: tuple = (0.05, 0.2),
    **loss,
) -> Path:
    """A run directory as the trainer writes it: Pass@1 climbs by about `gain`, N and K move linearly."""
    rng, wall, trained, generated = random.Random(seed), 0.0, 0, 0
    (directory / "samples").mkdir(parents=True)
    config = {
        "model": {"name": "tiny:precedence"},
        "schedule": {"n_init": n[0], "n_final": n[1], "k_init": k[0], "k_final": k[1]},
        "train": {"output_dir": str(directory), "steps": 130, "seed": seed},
        "loss": {"kind": "grpo"} | loss,
        "tracker": {"wandb": "off"},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    evaluations = [evaluation(0, 0.0, 0, 0.35)]
    lines = []
    for step in range(1, steps + 1):
        p = (step - 1) / 129
        skill = 0.35 + gain * (1 - math.exp(-3 * p)) / (1 - math.exp(-3)) + 0.01 * (seed - 2) * p
        kept, share = round(n[0] + p * (n[1] - n[0])), k[0] + p * (k[1] - k[0])
        tokens = kept * 16 * 31
        update = 0.03 + 0.004 * kept + tokens * share * 2e-5
        times = {"generate": 0.26 + 0.02 * rng.random(), "reward": 0.02, "exchange": 0.001, "score": tokens * 4e-6}
        times |= {"select": 0.003, "update": update, "sync": 0.03, "checkpoint": 0.3 if step % 50 == 0 else 0.0}
        times |= {"evaluate": 1.2 if step % 20 == 0 else 0.0}
        times["step"] = sum(times.values()) - times["checkpoint"] - times["evaluate"] + 0.01
        between = times["checkpoint"] + times["evaluate"]
        wall, trained, generated = (
            wall + times["step"] + between,
            trained + round(tokens * share),
            generated + 32 * 16 * 31,
        )
        lines.append(
            {
                "step": step,
                "progress": p,
                "wall_time": round(wall, 3),
                "reward/mean": skill + rng.gauss(0, 0.03),
                "reward/std": 0.45,
                "reward/zero_std_groups": 0.02 + 0.3 * p + 0.02 * rng.random(),
                "advantage/var_all": 0.93 - 0.2 * p + rng.gauss(0, 0.01),
                "advantage/var_selected": 1.9 - 1.1 * p + rng.gauss(0, 0.05),
                "advantage/mean_selected": rng.gauss(0, 0.05),
                "selection/usefulness": 1.0 - max(0, p - 0.6) * 0.6,
                "selection/effective_groups": 15.5 - 4 * p + rng.gauss(0, 0.3),
                "selection/rollouts": kept * 16,
                "selection/rollouts_total": 512,
                "tokens_trained": trained,
                "tokens_generated": generated,
                "schedule/n": kept,
                "schedule/k": share,
                "policy/entropy": 0.32 * math.exp(-1.2 * p) + rng.gauss(0, 0.006),
                "policy/entropy_selected": 0.9 * math.exp(-0.8 * p) + rng.gauss(0, 0.02),
                "policy/approx_kl": abs(rng.gauss(2e-4, 1e-4)),
                "loss": rng.gauss(0, 0.02),
                "grad_norm": 0.6 + 0.5 * math.exp(-4 * p) + abs(rng.gauss(0, 0.08)),
                "learning_rate": 1e-3,
                "mismatch/mean_abs": abs(rng.gauss(2e-6, 3e-7)),
                "completion/length": 31 + rng.gauss(0, 0.4),
                "completion/truncated": max(0.0, 0.02 - 0.02 * p),
                "throughput/tokens_per_s": 9000 + rng.gauss(0, 300),
                "memory/peak_gb": 0.4,
            }
            | {f"time/{name}": seconds for name, seconds in times.items()}
        )
        if step % 20 == 0 or step == 130:
            evaluations.append(evaluation(step, wall, trained, skill + 0.01))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (directory / "eval.jsonl").write_text("".join(json.dumps(record) + "\n" for record in evaluations))
    write_samples(directory, steps)
    return directory


def evaluation(step: int, wall_time: float, trained: int, pass_at_1: float) -> dict:
    record = {
        "step": step,
        "wall_time": wall_time,
        "tokens_trained": trained,
        "data": "precedence",
        "n": 8,
        "problems": 256,
    }
    for k in (1, 8):
        value = 1 - (1 - pass_at_1) ** (1 + 1.2 * math.log(k))
        record |= {f"pass@{k}": value, f"pass@{k}_ci": [value - 0.03, value + 0.03]}
    return record | {"mean_length": 31.0, "truncated": 0.01}


def write_samples(directory: Path, step: int, responses: tuple[str, ...] = ()) -> None:
    """Four samples: two problems, right and wrong; entropy sits on the operators that decide the order."""
    rng = random.Random(step)
    responses = responses or tuple(
        f"{text}\nThe answer is \\boxed{{{answer}}}.\n"
        for text, answer in [("6*3=18;3+18=21", 21), ("3+6=9;9*3=27", 27), ("8-2=6;6*4=24", 24), ("2*4=8;8-8=0", 0)]
    )
    records = []
    for i, response in enumerate(responses):
        entropies = [rng.random() * (1.4 if c in "0123456789" and rng.random() < 0.4 else 0.08) for c in response]
        bar = sorted(entropies)[-max(1, len(entropies) // 6)]
        records.append(
            {
                "step": step,
                "problem": ["3+6*3=", "8-2*4="][i // 2 % 2],
                "answer": ["21", "0"][i // 2 % 2],
                "prompt": ["3+6*3=", "8-2*4="][i // 2 % 2],
                "response": response,
                "reward": float(i in (0, 3)),
                "advantage": [1.32, -0.74, -1.9, 0.51][i % 4],
                "selected": i != 1,
                "tokens": list(response),
                "entropies": entropies,
                "kept": [i != 1 and h >= bar for h in entropies],
            }
        )
    path = directory / "samples" / f"step_{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


# --- numbers --------------------------------------------------------------------------------------------------------


def test_mean_and_spread_of_equal_steps():
    x, mean, spread = mean_and_spread([([1, 2, 3], [0.1, 0.4, 0.9]), ([1, 2, 3], [0.3, 0.4, 0.3])])
    assert x.tolist() == [1, 2, 3]
    assert mean == pytest.approx([0.2, 0.4, 0.6])
    assert spread == pytest.approx([statistics.stdev(pair) for pair in ((0.1, 0.3), (0.4, 0.4), (0.9, 0.3))])


def test_mean_and_spread_covers_what_all_runs_have_reached():
    # By wall time no two runs share a point: y = x / 10 and y = 1 - x / 10 at their own times.
    curves = [(np.array(x, float), np.array(y, float)) for x, y in (([0, 4, 8], [0, 0.4, 0.8]), ([1, 5], [0.9, 0.5]))]
    x, mean, spread = mean_and_spread(curves)
    assert x.tolist() == [1, 4, 5]
    assert mean == pytest.approx([0.5, 0.5, 0.5])
    assert spread == pytest.approx([statistics.stdev([v / 10, 1 - v / 10]) for v in (1, 4, 5)])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(1, 50))
def test_smooth_is_the_centred_mean_that_shrinks_at_the_ends(values, window):
    got = smooth(np.array(values), window)
    for i, value in enumerate(got):
        reach = min(window // 2, i, len(values) - 1 - i)
        assert value == pytest.approx(statistics.fmean(values[i - reach : i + reach + 1]), abs=1e-8)


@pytest.mark.parametrize(
    "freedom, quantile", [(1, 12.7062047), (2, 4.3026527), (4, 2.7764451), (9, 2.2621572), (29, 2.0452296)]
)
def test_t_quantile_is_that_of_the_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=1e-6)


def test_intervals_over_seeds():
    values = [0.70, 0.74, 0.75, 0.77, 0.79]
    got = student_interval(values)
    half = 2.7764451 * statistics.stdev(values) / math.sqrt(5)
    assert (got.value, got.low, got.high) == pytest.approx((0.75, 0.75 - half, 0.75 + half))
    assert student_interval([0.5]).low is None
    # Welch, by hand: variances 1 and 4, 4 values each -> 5/4 / ... = 4.41 degrees of freedom
    a, b = [1.0, 1.0, 3.0, 3.0], [5.0, 5.0, 9.0, 9.0]
    va, vb = statistics.variance(a) / 4, statistics.variance(b) / 4
    freedom = (va + vb) ** 2 / (va**2 / 3 + vb**2 / 3)
    got = welch_interval(b, a)
    assert got.value == pytest.approx(5.0)
    assert got.high - got.value == pytest.approx(t_quantile(freedom) * math.sqrt(va + vb))
    assert freedom == pytest.approx(75 / 17)
    assert welch_interval([1.0], [0.0, 1.0]).low is None


def test_phases_add_up_to_the_wall_time():
    lines = [
        {"step": 1, "wall_time": 9.0, "time/generate": 2.0, "time/update": 1.0, "time/step": 3.5},
        {
            "step": 2,
            "wall_time": 14.0,
            "time/generate": 2.0,
            "time/update": 1.0,
            "time/step": 3.0,
            "time/evaluate": 1.5,
        },
    ]
    got = {name: values.tolist() for name, values in phase_seconds(lines).items()}
    assert got == {"generate": [2, 2], "update": [1, 1], "evaluate": [0, 1.5], "other": [0.5, 0.5]}


# --- run directories ------------------------------------------------------------------------------------------------


def test_curves_skip_what_is_missing_and_torn(tmp_path):
    lines = [{"step": 1, "loss": 0.5, "tokens_trained": 10}, {"step": 2, "loss": None}, {"step": 3, "loss": 0.25}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 4, "loss": 0.1')
    (run,) = load_runs([tmp_path])
    assert [v.tolist() for v in run.curve("loss")] == [[1, 3], [0.5, 0.25]]
    assert [v.tolist() for v in run.curve("loss", "tokens")] == [[10], [0.5]]
    assert run.last_step == 3 and run.curve("nothing")[0].tolist() == []


def test_evaluations_of_several_benchmarks_are_curves_of_their_own(tmp_path):
    records = [
        {"step": 0, "data": "a/b", "pass@1": 0.25, "pass@1_ci": [0.2, 0.3]},
        {"step": 0, "data": "c", "pass@1": 0.5},
        {"step": 9, "data": "a/b", "pass@1": 0.75, "pass@1_ci": [0.7, 0.8]},
    ]
    (tmp_path / "eval.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (run,) = load_runs([tmp_path])
    assert run.benchmarks == ["a/b", "c"]
    assert [v.tolist() for v in run.curve("eval/a/b/pass@1")] == [[0, 9], [0.25, 0.75]]
    assert [v.tolist() for v in run.interval("eval/a/b/pass@1")] == [[0, 9], [0.2, 0.7], [0.3, 0.8]]
    assert [v.tolist() for v in run.curve("eval/c/pass@1")] == [[0], [0.5]]


def small_run(directory: Path, config: dict | None) -> Path:
    directory.mkdir(parents=True)
    (directory / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
    if config is not None:
        (directory / "config.yaml").write_text(yaml.safe_dump(config))
    return directory


def groups_of(root: Path) -> dict[str, int]:
    return {group.name: len(group.runs) for group in group_runs(load_runs([root]))}


def test_runs_that_differ_in_the_seed_alone_are_one_group(tmp_path):
    for seed in range(3):
        for rate in (1e-3, 1e-4):
            config = {
                "optim": {"learning_rate": rate},
                "train": {"seed": seed, "output_dir": f"runs/{seed}{rate}"},
                "tracker": {"wandb": "off" if seed else "offline"},
            }
            small_run(tmp_path / f"d3s_lr{rate}_seed{seed}", config)
    assert groups_of(tmp_path) == {"d3s_lr0.0001": 3, "d3s_lr0.001": 3}


def test_groups_of_one_name_are_told_apart_by_their_settings(tmp_path):
    for i, n in enumerate((4, 8)):
        for seed in range(2):
            small_run(tmp_path / f"try{i}" / f"d3s-s{seed}", {"schedule": {"n_init": n}, "train": {"seed": seed}})
    runs = load_runs([tmp_path / "try0", tmp_path / "try1"])
    assert [(g.name, len(g.runs)) for g in group_runs(runs)] == [
        ("d3s (schedule.n_init=4)", 2),
        ("d3s (schedule.n_init=8)", 2),
    ]


def test_equal_seeds_are_not_counted_as_independent(tmp_path):
    for name in ("first", "again"):
        small_run(tmp_path / name, {"train": {"seed": 0}})
    assert groups_of(tmp_path) == {"again": 1, "first": 1}


def test_without_configurations_directory_names_decide(tmp_path):
    for name in ("d3s_seed0", "d3s_seed1", "grpo-s0", "grpo-s1", "pods.seed=3.long", "s2"):
        small_run(tmp_path / name, None)
    assert groups_of(tmp_path) == {"d3s": 2, "grpo": 2, "pods.long": 1, tmp_path.name: 1}


# --- tables ---------------------------------------------------------------------------------------------------------


def columns(table: Table, row: int) -> dict[str, str]:
    return dict(zip(table.header, table.rows[row]))


def test_final_table_of_several_seeds(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"d3s-seed{seed}", seed=seed)
    groups = group_runs(load_runs([tmp_path]))
    row = columns(final_table(groups), 0)
    ends, rewards, trained = [], [], []
    for seed in range(3):
        evaluations = [json.loads(x) for x in (tmp_path / f"d3s-seed{seed}/eval.jsonl").read_text().splitlines()]
        metrics = [json.loads(x) for x in (tmp_path / f"d3s-seed{seed}/metrics.jsonl").read_text().splitlines()]
        ends.append(evaluations[-1]["pass@1"])
        rewards.append(statistics.fmean(line["reward/mean"] for line in metrics[-13:]))  # a tenth of 130
        trained.append(metrics[-1]["tokens_trained"])
    half = 4.3026527 * statistics.stdev(ends) / math.sqrt(3)
    mean = statistics.fmean(ends)
    assert row["Pass@1 after"] == f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"
    assert row["Pass@1 before"] == "0.350"
    assert row["reward"].startswith(f"{statistics.fmean(rewards):.3f} [")
    assert row["trained tokens"].startswith(f"{statistics.fmean(trained) / 1000:.0f}k")
    assert (row["group"], row["seeds"], row["steps"]) == ("d3s", "3", "130")


def test_a_single_run_has_the_interval_over_problems(tmp_path):
    groups = group_runs(load_runs([write_run(tmp_path / "run")]))
    record = json.loads((tmp_path / "run/eval.jsonl").read_text().splitlines()[-1])
    low, high = record["pass@8_ci"]
    row = columns(final_table(groups), 0)
    assert row["Pass@8 after"] == f"{record['pass@8']:.3f} [{low:.3f}, {high:.3f}]"
    assert "[" not in row["reward"]
    assert budget_tables(groups) == []


def test_equal_budgets_are_the_largest_that_all_have_reached(tmp_path):
    # Pass@1 is linear in tokens in both, so interpolation at 100 tokens is exact: 0.2 + 0.001 t and 0.2 + 0.002 t.
    for name, slope, tokens in (("slow", 0.001, (0, 150, 300)), ("fast", 0.002, (0, 50, 100))):
        for seed, shift in enumerate((0.0, 0.02)):
            run = small_run(tmp_path / f"{name}-s{seed}", {"loss": {"kind": name}, "train": {"seed": seed}})
            points = enumerate(tokens)
            records = [
                {
                    "step": 10 * i,
                    "tokens_trained": t,
                    "wall_time": 5.0 * i,
                    "data": "d",
                    "pass@1": 0.2 + slope * t + shift,
                }
                for i, t in points
            ]
            (run / "eval.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (table,) = budget_tables(group_runs(load_runs([tmp_path])))
    assert table.header[1::2] == ["at 20 steps", "at 100 tokens", "at 10 s"]
    fast, slow = table.rows
    assert [cell[:5] for cell in fast[1::2]] == ["0.410", "0.410", "0.410"] and fast[2::2] == ["–"] * 3
    assert [cell[:5] for cell in slow[1::2]] == ["0.510", "0.310", "0.510"]
    half = 4.3026527 * math.sqrt(2 * 0.0002 / 2)  # two variances of 0.0002 over 2 seeds each, 2 degrees of freedom
    assert slow[4] == f"-0.100* [{-0.1 - half:+.3f}, {-0.1 + half:+.3f}]"


def test_settings_that_differ(tmp_path):
    for name, n in (("a", 4), ("b", 8)):
        small_run(tmp_path / name, {"schedule": {"n_init": n, "k_init": 0.1}, "train": {"seed": 0}})
    (table,) = settings_table(group_runs(load_runs([tmp_path])))
    assert table.rows == [["schedule.n_init", "4", "8"]]


@pytest.mark.parametrize(
    "value, form, text",
    [
        *[(0.345, "share", "34%"), (0.052, "share", "5.2%"), (1.0, "share", "100%"), (0.0, "share", "0%")],
        *[(1234, "count", "1.23k"), (2_060_000, "count", "2.06M"), (31, "count", "31"), (-1500, "count", "-1.5k")],
        *[(2.5e-4, "number", "2.5e-4"), (1e-6, "number", "1e-6"), (0.1234, "number", "0.123"), (0, "number", "0")],
    ],
)
def test_values_are_written_short(value, form, text):
    assert format_value(value, form) == text


# --- pages ----------------------------------------------------------------------------------------------------------


class PageChecker(HTMLParser):
    """Collects what a page must not have: scripts, addresses, doubled ids, unclosed elements."""

    VOID = ("meta", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == [] and not self.rawdata

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            assert not name.startswith("on") and name not in ("src", "action", "srcset")
            if name.endswith("href"):
                assert value.startswith("#")
            if name == "id":
                self.ids.append(value)
            assert not re.search(r"url\((?!#)|https?:|//", value or ""), (name, value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            assert not re.search(r"url\(|@import|https?:", data)
        self.texts.append(data)


def check_page(path: Path) -> PageChecker:
    text = path.read_text(encoding="utf-8")
    page = PageChecker(text)
    assert {"script", "iframe", "img", "link", "object", "base", "form"}.isdisjoint(page.tags)
    assert len(page.ids) == len(set(page.ids))
    used, defined = set(re.findall(r"var\(--([\w-]+)\)", text)), set(re.findall(r"--([\w-]+):", text))
    assert used <= defined
    for series in set(re.findall(r"(?:stroke|fill): (#[0-9a-f]{6})", text)):
        pytest.fail(f"{series} does not follow the page's colors")
    return page


def test_a_single_run_as_a_page(tmp_path):
    run = write_run(tmp_path / "my run")
    (run / "warnings.jsonl").write_text(json.dumps({"step": 7, "key": "k", "message": HOSTILE}) + "\n")
    write_samples(run, 140, (HOSTILE, "</span></div></main>", "plain", "x" * 5000))
    assert main([str(run), "--by", "step,time"]) == 0
    page = check_page(run / "report.html")
    text = "".join(page.texts)
    assert "At step 130 of 130." in text and "step 7: <script>alert(1)</script>" in text
    assert page.tags.count("svg") == 2 * len(panels_for(group_runs(load_runs([run])))) + 1
    assert {"by-step", "by-time"} <= set(page.ids)
    assert {p.name for p in run.glob("*.png")} == {"report.png", "curves.png"}
    markdown = (run / "report.md").read_text()
    assert "![summary](report.png)" in markdown and "![all curves](curves.png)" in markdown


def test_a_comparison_of_hostile_names(tmp_path):
    names = ["<script>alert(1)<|b> $x$", "plain"]
    for name in names:
        write_run(tmp_path / name, kind=name, steps=60 if name == "plain" else 130)
    runs = [str(tmp_path / name) for name in names]
    assert main([*runs, "--output", str(tmp_path / "out"), "--title", HOSTILE, "--by", "tokens"]) == 0
    page = check_page(tmp_path / "out/report.html")
    text = "".join(page.texts)
    assert "2 runs in 2 groups. Not finished: plain (step 60 of 130)." in text
    assert "\x1b" not in text and "\u202e" not in text
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.md", "report.png"]
    markdown = (tmp_path / "out/report.md").read_text()
    assert "<script>" not in markdown.replace(f"`python -m d3s.report {' '.join(runs)}`", "")
    for line in re.findall(r"^\|.*\|$", markdown, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", line)) in (4, 14)  # three tables; no name adds a cell


@pytest.mark.parametrize("missing", [("eval.jsonl", "config.yaml"), ("metrics.jsonl",)])
def test_a_young_run_has_a_report(tmp_path, missing):
    run = write_run(tmp_path / "young", steps=1)
    for name in missing:
        (run / name).unlink()
    with open(run / "eval.jsonl", "a") as file:
        file.write('{"step": 20, "data')
    assert main([str(run), "--by", "step"]) == 0
    check_page(run / "report.html")


def test_pictures_are_pictures(tmp_path):
    run = write_run(tmp_path / "run", steps=40)
    assert draw_demo_picture(run) == run / "report.png"
    header = (run / "report.png").read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:24])
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and (width, height) == (2048, 1024)


def test_the_picture_says_what_was_gained(tmp_path):
    run = write_run(tmp_path / "run")
    (loaded,) = load_runs([run])
    assert _summary_title(loaded, "precedence") == "Pass@1 from 35% to 74% in 130 steps"
    assert _summary_facts(loaded, "precedence")[:2] == [
        "precedence, 256 held-out problems, 8 samples each",
        "trained on 8.8% of 2.06M generated tokens",
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_labels_stand_apart_in_the_order_of_their_values(values):
    heights = _apart(values, 0.1)
    ordered = sorted(zip(values, heights), reverse=True)
    assert all(height <= value for value, height in ordered)
    tops = sorted(heights, reverse=True)
    assert all(a - b >= 0.1 - 1e-9 for a, b in pairwise(tops))
    assert _apart([0.9, 0.2], 0.1) == [0.9, 0.2]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["nowhere"], "there is no run directory nowhere"),
        (["empty"], "empty has no metrics yet"),
        (["run", "--by", "steps"], "--by has 'steps'; allowed are step, tokens, time"),
        (["run", "--output", "run/metrics.jsonl"], "cannot write the report to run/metrics.jsonl"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    small_run(tmp_path / "run", None)
    (tmp_path / "empty").mkdir()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error and error.count("\n") == 1


def test_malformed_lines_are_left_out(tmp_path):
    """A copy of every line, in which one field holds what no tracker writes, changes no table and ends none."""
    malformed = ("null", "[1]", '"x"', "NaN", "1e999", "-1e308", "{}", "9" * 400)
    rng = random.Random(0)
    good, bad = (write_run(tmp_path / name, steps=6, seed=seed) for seed, name in enumerate(("good", "bad")))
    before = final_table(group_runs(load_runs([bad]))).rows
    for name in ("metrics", "eval", "warnings"):
        file, lines = bad / f"{name}.jsonl", []
        for line in file.read_text().splitlines() if file.exists() else ['{"step": 1, "message": "x"}']:
            record = json.loads(line)
            wrong = rng.choice(list(record))
            values = {k: rng.choice(malformed) if k == wrong else json.dumps(v) for k, v in record.items()}
            lines += [line, "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items()) + "}"]
        file.write_text("\n".join(lines) + "\n")
    assert final_table(group_runs(load_runs([bad]))).rows == before
    assert set(phase_seconds(load_runs([bad])[0].metrics)) == set(phase_seconds(load_runs([good])[0].metrics))
    for line in ("[1]", "train: [1]", "train: {steps: many, seed: [2]}", "a: {b: 2026-01-01}", "? [a, b]\n: 1"):
        (bad / "config.yaml").write_text(line)
        groups = group_runs(load_runs([good, bad]))
        assert len(groups) == 2
        assert settings_table(groups) and budget_tables(groups)


@pytest.mark.parametrize("without", [1, 2])
def test_a_comparison_without_token_counts(tmp_path, without):
    """The evaluations of one run, or of both, do not tell how many tokens had been trained."""
    runs = [write_run(tmp_path / name, steps=6, kind=name) for name in ("a", "b")]
    for run in runs[:without]:
        lines = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
        texts = (json.dumps({k: v for k, v in line.items() if k != "tokens_trained"}) for line in lines)
        (run / "eval.jsonl").write_text("\n".join(texts) + "\n")
    (table,) = budget_tables(group_runs(load_runs(runs)))
    tokens = [i for i, name in enumerate(table.header) if name.endswith("tokens")]
    assert len(tokens) == (without == 1)
    assert [table.rows[0][i] for i in tokens] == ["–"] * len(tokens)
    assert all(row[i + 1] == "–" for row in table.rows for i in tokens)


def test_files_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "run" / "metrics.jsonl").mkdir(parents=True)
    assert main([str(tmp_path / "run")]) == 2
    assert "metrics.jsonl: cannot be read (Is a directory)" in capsys.readouterr().err


# --- samples --------------------------------------------------------------------------------------------------------


def test_heat_is_the_advantage_times_the_entropy():
    record = {"advantage": -2.0, "tokens": ["a", "b", "c"], "entropies": [0.5, None], "kept": [True]}
    assert token_heats(record) == [1.0, 0.0, 0.0]
    assert token_heats({"response": "no tokens"}) == [0.0]


def test_the_terminal_shows_kept_tokens_and_no_control_character(tmp_path):
    write_samples(tmp_path, 3, (HOSTILE, "12+3"))
    step, records = load_samples(tmp_path)
    records[0]["kept"] = [False] * len(HOSTILE)
    records[1] |= {"selected": True, "kept": [True, False, False, True]}
    console = Console(width=200, file=io.StringIO())
    console.print(samples_table(records, brackets=True))
    out = console.file.getvalue()
    assert step == 3 and "⟦1⟧2+⟦3⟧" in out and "2/4" in out
    console = Console(width=200, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(samples_table(records, brackets=False))
    reversed_text = re.findall(r"\x1b\[(?:\d+;)*7(?:;\d+)*m([^\x1b]*)", console.file.getvalue())
    assert reversed_text == ["1", "3"]
    assert "<script>alert(1)</script> $x^2$ | **b** ␛[2J � [red]" in out


def test_the_page_boxes_kept_tokens_and_colours_by_heat(tmp_path):
    write_samples(tmp_path, 3)
    _, records = load_samples(tmp_path, 3)
    html = samples_html(records)
    assert html.count('class="tok kept"') == 1 + sum(sum(record["kept"]) for record in records)  # 1 in the key
    top = max(abs(r["advantage"]) * h for r in records for h in r["entropies"])
    levels = [abs(r["advantage"]) * h / top for r in records for h in r["entropies"]]
    assert re.findall(r"--h:([\d.]+)", html) == [f"{level:.2f}" for level in levels if level >= 0.01]
    assert re.findall(r'class="response ([\w ]+)"', html) == ["right", "wrong dropped", "wrong", "right"]
    assert html.count("<h3>") == 2  # the problems


def test_the_samples_command(tmp_path, capsys):
    write_samples(tmp_path, 3)
    write_samples(tmp_path, 12, (HOSTILE, HOSTILE))
    assert show_samples([str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    page = check_page(tmp_path / "page.html")
    assert f"{tmp_path.name}: samples of step 12" in page.texts
    assert show_samples([str(tmp_path), "--step", "3", "--limit", "1"]) == 0
    odd = {
        "problem": 1,
        "reward": "x",
        "advantage": None,
        "tokens": "abc",
        "entropies": [[]],
        "kept": 1,
        "response": "r",
    }
    nan = {"problem": "p", "advantage": 1.0, "tokens": ["r"], "entropies": [math.nan], "kept": [True], "reward": 1e999}
    file = tmp_path / "samples" / "step_000020.jsonl"
    file.write_text(json.dumps(odd) + "\n" + json.dumps(nan) + "\n")
    (tmp_path / "samples" / "step_last.jsonl").write_text("{}")
    for more in ([], ["--html", str(tmp_path / "odd.html")]):
        assert show_samples([str(tmp_path), *more]) == 0
    file.write_text("")
    assert show_samples([str(tmp_path)]) == 2 and "step_000020.jsonl: holds no samples" in capsys.readouterr().err
    file.unlink()
    assert show_samples([str(tmp_path), "--limit", "0"]) == 2 and "--limit is 0" in capsys.readouterr().err
    assert show_samples([str(tmp_path), "--step", "4"]) == 2
    assert "no samples of step 4; it has those of 3, 12" in capsys.readouterr().err
    assert show_samples([str(tmp_path / "nowhere")]) == 2
