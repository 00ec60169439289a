"""The runs on one card: rows differ in what their names say, a budget is the same for all rows, runs come in order."""

import csv
import hashlib
import json
import random
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from d3s.config.load import load_config
from d3s.data import word_problems
from d3s.data.dataset import read_problems
from d3s.data.problems import load_problems
from research import card, card_records, card_tables, card_tasks
from research.card_rows import (
    BEST,
    MODELS,
    PAPER,
    PAPER_RANDOM,
    RANDOM,
    SEARCH_OF,
    SEARCHED,
    Claim,
    growing,
    means,
)


def options(run: card.Run) -> dict:
    """The resolved options of a run, flat."""
    arguments = run.command(Path("runs/card"))
    files = [argument for argument in arguments if argument.endswith(".yaml")]
    config = load_config(files, [argument for argument in arguments if argument not in files])
    sections = config.model_dump().items()
    return {f"{section}.{key}": value for section, values in sections for key, value in values.items()}


def differing(one: dict, other: dict) -> set[str]:
    return {key for key in one if one[key] != other[key]} - {"train.output_dir"}


def of_row(part: str, row: str) -> dict:
    return next(
        options(run)
        for run in card.searched() + card.by_length() + card.remedies()
        if (run.part, run.row) == (part, row)
    )


@pytest.mark.parametrize("part", ["long", "200 tokens", "gemma tokens", "remedy"])
def test_random_tokens_differ_in_their_rule_alone(part):
    rows = {"remedy": ("D3S, N = 4, K = 20 %", RANDOM)}.get(part, (PAPER, PAPER_RANDOM))
    assert differing(*(of_row(part, row) for row in rows)) == {"selector.tokens"}


def test_parts_by_length_differ_in_model_and_limit():
    short, long = (of_row(part, PAPER) for part in ("15 tokens", "200 tokens"))
    assert differing(short, long) == {"model.name", "rollout.max_completion_length"}
    assert long["rollout.max_completion_length"] == 400 and long["model.name"].endswith("wordy/model")


@pytest.mark.parametrize("row", SEARCHED)
def test_every_searched_step_has_256_responses(row):
    found = of_row("search", row)
    assert found["rollout.num_generations"] * found["train.prompts_per_step"] == 256
    assert found["eval.split"] == "validation"


def test_budgets_differ_in_the_size_of_groups_alone():
    runs = [options(run) for run in card.budgets() if run.seed == 1]
    names = {"rollout.num_generations", "train.prompts_per_step"}
    assert all(differing(run, runs[0]) == names for run in runs[1:])
    assert [run["rollout.num_generations"] for run in runs] == [4, 8, 16]
    assert all(run["rollout.num_generations"] * run["train.prompts_per_step"] == 128 for run in runs)
    assert runs[0]["train.steps"] == 4 * runs[0]["eval.every"]  # the smaller budget is that of the first evaluation


def test_constant_row_has_the_mean_of_both_ends():
    found = dict(text.split("=") for text in means((*growing(0.2, 0.5, 4, 16), "optim.num_minibatches=4")))
    names = [f"schedule.{name}_{end}" for name in "nk" for end in ("init", "final")]
    assert [float(found[name]) for name in names] == [10, 10, 0.35, 0.35] and found["optim.num_minibatches"] == "4"


def test_demonstrations_are_those_of_the_recorded_runs(tmp_path):
    card_tasks.write(tmp_path)
    digest = hashlib.sha256((tmp_path / "shown.jsonl").read_bytes()).hexdigest()
    assert digest.startswith("cbba31b41b44")


@pytest.mark.parametrize(
    ("style", "sums"),
    [
        ("spoken", r"That is (\d+) ([-+*/]) (\d+) = (\d+), so now I have (\d+)\."),
        ("wordy", r"care: (\d+) ([-+*/]) (\d+) = (\d+)\. .*?, and I keep (\d+) in mind"),
    ],
)
def test_spoken_solutions_are_right(style, sums):
    """Each sum holds and begins with the value before it; the box has the last value."""
    for seed in range(50):
        problem, text = card_tasks.spoken(random.Random(seed), style)
        found = re.findall(sums, text)
        assert len(found) == text.count("Step ") > 0 and problem.endswith("\n")
        for left, sign, right, value, again in found:
            assert word_problems.OPERATIONS[sign](int(left), int(right)) == int(value) == int(again)
        assert [one[3] for one in found[:-1]] == [one[0] for one in found[1:]]
        assert text.endswith(f"\\boxed{{{found[-1][3]}}}")


def test_sorting_problems_are_right_and_disjoint():
    splits = card_tasks.sorting_problems()
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [4096, 128, 128]
    problems = [pair for split in splits.values() for pair in split]
    assert len({problem for problem, _ in problems}) == len(problems)
    for problem, answer in problems:
        numbers = [int(number) for number in re.findall(r"\d+", answer)]
        assert sorted(re.findall(r"\d+", problem)) == sorted(map(str, numbers)) and 4 <= len(numbers) <= 6
        assert all(low < high for low, high in pairwise(numbers))


def test_sorting_rows_differ_in_what_they_select(monkeypatch):
    chosen = {"GRPO": ("GRPO, G = 4, 4 updates", 2e-5), "D3S": ("D3S, K 50 to 100 %", 1e-5)}
    monkeypatch.setattr(card, "choose", lambda output, family, part: chosen[family])
    grpo, d3s = (options(run) for run in card.of_seeds("sort", card.best(Path(), "sort")) if run.seed == 1)
    assert differing(grpo, d3s) > {"optim.learning_rate", "rollout.num_generations"}
    rows = {run.row: options(run) for run in card.sort_rows(Path()) if run.seed == 1}
    k, n = {"schedule.k_init"}, {"schedule.n_init", "schedule.n_final"}
    own = {"selector.cross_share", "schedule.n_shape"} | n | k
    assert {row: differing(found, grpo if row == "Dr. GRPO" else d3s) for row, found in rows.items()} == {
        RANDOM: {"selector.tokens"},
        "tokens alone": n,
        "rollouts alone": k,
        "D3S-I": {"selector.cross_share"},
        "PODS": own | {"selector.normalize", "loss.normalizer"},
        "D1S": own,
        "CPPO": own | {"selector.rollouts", "loss.normalizer"},
        "Dr. GRPO": {"reward.advantages", "loss.normalizer"},
    }


def write(folder: Path, name: str, rows: list[dict]) -> None:
    columns = [*card_records.KEYS, *card_records.COLUMNS[name]]
    lines = [columns, *([row.get(column, 0) for column in columns] for row in rows)]
    (folder / name).write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines))


@pytest.fixture
def search(tmp_path) -> Path:
    """Two rates of one row: one rises at once and ends lower; its steps cost a tenth."""
    steps, evaluations = [], []
    for rate, tokens, levels in ((1e-5, 1000, (0.0, 0.5, 0.5)), (2e-5, 10000, (0.0, 0.2, 0.8))):
        key = {"part": "search", "row": "GRPO", "rate": rate, "seed": 1}
        steps += [key | {"step": step, "tokens_generated": tokens * step} for step in (1, 2)]
        evaluations += [key | {"step": step, "pass@1": level} for step, level in enumerate(levels)]
    write(tmp_path, "steps.csv", steps)
    write(tmp_path, "evaluations.csv", evaluations)
    return tmp_path


def test_seconds_before_an_evaluation_are_those_of_its_steps(search):
    (cheap, dear) = card_records.curve(search, "search").values()
    base, per_token, _ = card_records.COST[""]
    step = [base + per_token * tokens for tokens in (1000, 10000)]
    assert [seconds for _, seconds, _ in cheap] == pytest.approx([0, step[0], 2 * step[0]])
    assert [seconds for _, seconds, _ in dear] == pytest.approx([0, step[1], 2 * step[1]])


def test_seconds_on_cores_are_half_of_the_cpu_time(tmp_path):
    metrics = {"time/step": 9, "time/cpu": 4, "tokens_generated": 0, "selection/flops": 0}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(metrics | {"step": step}) + "\n" for step in (1, 2)))
    (tmp_path / "eval.jsonl").write_text('{"step": 2, "right": [3, 8]}\n')
    for part, per_step in (("adapters", 4 / 2), ("search", card_records.COST[""][0])):
        card_records.record((part, "GRPO", "1", "1"), tmp_path, tmp_path)
        [[(step, seconds, row)]] = card_records.curve(tmp_path, part).values()
        assert (step, seconds, row["right"]) == (2, 2 * per_step, "38")


@pytest.mark.parametrize(("part", "limit"), [("sort", 128), ("gemma", 128), ("gemma tokens", 32)])
def test_problems_that_the_warm_up_showed_do_not_count(tmp_path, part, limit):
    """Its file holds some of the evaluated problems: those are right here, every other one in one sample."""
    card_tasks.write(tmp_path)
    shown = load_problems(str(tmp_path / "sorting-shown.jsonl"), limit=card_tasks.SHOWN[MODELS[part]])
    config = load_config(["tiny"], [f"eval.data=[{tmp_path}/sorting-test.jsonl]", f"eval.limit={limit}"])
    [asked] = read_problems(config).tests.values()
    seen = {problem.problem for problem in shown}
    right = "".join("8" if problem.problem in seen else "01"[i % 2] for i, problem in enumerate(asked))
    write(tmp_path, "evaluations.csv", [{"part": part, "row": "GRPO", "right": right, "pass@1": 0.5}])
    [row] = card_records.read(tmp_path, "evaluations.csv", part)
    counted = right.replace("8", "")
    assert 0 < len(counted) < limit and row["right"] == counted
    assert (row["pass@1"], row["pass@8"]) == (counted.count("1") / 8 / len(counted), counted.count("1") / len(counted))


def test_choice_is_at_an_equal_budget(search):
    """The dearer run ends higher, and is at 0.2 or below when the cheap one has ended."""
    assert card_records.choose(search, "GRPO", "search") == ("GRPO", 1e-5)


def test_cost_is_that_of_measured_steps():
    """The seconds of each recorded run within an eighth."""
    runs: dict[tuple[str, str], list[list[float]]] = {}
    with open(card_tables.MEASURED / "cores.csv", newline="") as file:
        for row in csv.DictReader(file):
            runs.setdefault((row["model"], row["run"]), []).append(
                [float(row[key]) for key in ("seconds", "tokens", "flops")]
            )
    for (model, _), steps in runs.items():
        seconds, tokens, flops = np.array(steps).sum(0)
        assert card_records.COST[model] @ np.array([len(steps), tokens, flops]) == pytest.approx(seconds, rel=1 / 8)


@pytest.fixture
def two_rows(tmp_path) -> Path:
    """GRPO and D3S with two seeds and two problems; D3S is at 8 of 8 where GRPO is at 4, at half of the cost.

    The same for sorting, where GRPO ends at 0 with a third seed.
    """
    steps, evaluations = [], []
    seeds_of = {"sort": (1, 2, 3)} | dict.fromkeys(("test", "gemma", "adapters"), (1, 2))
    seeds_of |= dict.fromkeys(SEARCH_OF.values(), (9,))
    for family, tokens, right in (("GRPO", 2000, (0, 4, 4)), ("D3S", 1000, (0, 8, 8))):
        for part, seeds in seeds_of.items():
            for seed in seeds:
                collapsed = (family, seed) == ("GRPO", 3)
                key = {"part": part, "row": family, "rate": 1e-5, "seed": seed}
                computed = {"tokens_trained": seed, "flops_share": seed / 10}
                steps += [key | computed | {"step": n, "tokens_generated": n * tokens} for n in (1, 2)]
                for n, r in enumerate(right):
                    first, more = (0, 0) if collapsed and n else (r, seed)
                    rates = {"step": n, "pass@1": first / 8, "pass@8": min(first, 1)}
                    evaluations.append(key | rates | {"right": f"{first}{min(first + more, 8)}"})
    write(tmp_path, "steps.csv", steps)
    write(tmp_path, "evaluations.csv", evaluations)
    return tmp_path


def test_tables_have_means_over_seeds(two_rows):
    assert "| D3S | 2 | 0.0 (0.0-0.0) | 100.0 (100.0-100.0) |" in card_tables.learning_table(two_rows, "test", 1)
    cost = sum(2 * c * x for c, x in zip(card_records.COST[""], (1, 1000, 0), strict=True))
    end = f"| 100.0 | 100.0 | 100.0 | 2 | {cost:,.0f} |"
    for row in (f"| SmolLM2, word problems, 2 steps | D3S | 2 {end}", f"| SmolLM2, sorting, 2 steps | D3S | 3 {end}"):
        assert row in card_tables.summary_table(two_rows)
    assert "| SmolLM2, sorting, 2 steps | GRPO | 3 | 39.6 | 39.6 | 66.7 |" in card_tables.summary_table(two_rows)
    cost = sum(2 * c * x for c, x in zip(card_records.COST[""], (1, 2000, 0), strict=True))
    found = card_tables.search_table(two_rows, "test")
    assert f"| **GRPO** | 1e-05 | 50.0 | 50.0 | 50.0 | {cost:,.0f} |" in found


def test_levels_are_those_of_the_problems(two_rows, monkeypatch):
    """The second of two problems, the only one of two steps, has 1 of 8 more right in seed 1 and 2 in seed 2."""
    problems = [SimpleNamespace(source=f"synthetic/words/{level}") for level in ("1-step", "2-step")]
    monkeypatch.setattr(card_tables, "load_problems", lambda *_, limit, **__: problems[:limit])
    assert "| GRPO | 0 | 19 | 50 | 69 |" in card_tables.levels_table(two_rows, "test")


def test_entropy_is_that_at_a_reward(tmp_path):
    """Means of three steps: rewards 0.21, 0.42, 0.63 and entropies 0.9, 0.8, 0.7; the other run never reaches 50 %."""
    steps = []
    for row, last in (("GRPO, G = 4", 0.63), ("D3S, K 5 to 20 %, G = 4", 0.2)):
        key = {"part": "search", "row": row, "rate": 1e-5, "seed": 1}
        values = zip((0, 0, 0.63, 0.63, last), (1, 0.9, 0.8, 0.7, 0.6), strict=True)
        steps += [key | {"step": n, "reward": reward, "entropy": entropy} for n, (reward, entropy) in enumerate(values)]
    write(tmp_path, "steps.csv", steps)
    table = card_tables.entropy_table(tmp_path)
    assert "| GRPO | 0.80, 1 | 0.80, 1 | 0.70, 1 |" in table
    assert "| D3S, K 5 to 20 % | 0.80, 1 | 0.80, 1 |  |" in table


def test_claims_are_decided_at_equal_budgets(two_rows):
    """In steps the rows are 8 and 4 of 8 apart at the end, less the second problem's; in seconds GRPO is half way."""
    by_steps, by_seconds = (
        card_tables.difference(two_rows, Claim("", f"{BEST}D3S", f"{BEST}GRPO", axis))["words"]
        for axis in ("steps", "seconds")
    )
    assert by_steps.tolist() == [[0.5, 3 / 8], [0.5, 2 / 8]]
    base, per_token, _ = card_records.COST[""]
    first, second = (base + per_token * tokens for tokens in (1000, 2000))
    place = min(1.0, 2 * first / second)
    assert by_seconds[0] == pytest.approx([1 - place * 0.5, 1 - (1 / 8 + place * 0.5)])
    claims = card_tables.claims_table(two_rows)
    assert "| not measured |" in claims and claims.count("| open |") == claims.count(" of 8 |") > 0
    assert "| yes |" not in claims and "| no |" not in claims  # of a part of the seeds


def test_runs_of_other_weights_are_no_pair(two_rows):
    """Seed 2 of one row answers otherwise before training than that of the other."""
    claim = Claim("", f"{BEST}D3S", f"{BEST}GRPO", "steps", "sort")
    with open(two_rows / "evaluations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    (first,) = [row for row in rows if (row["part"], row["row"], row["seed"], row["step"]) == ("sort", "D3S", "2", "0")]
    first["right"] = "12"
    write(two_rows, "evaluations.csv", rows)
    assert card_tables.difference(two_rows, claim)["words"].tolist() == [[0.5, 3 / 8], [1, 1]]  # of seeds 1 and 3


def test_collapsed_runs_can_be_left_out(two_rows):
    claim = Claim("", f"{BEST}D3S", f"{BEST}GRPO", "steps", "sort")
    assert card_tables.difference(two_rows, claim)["words"].tolist()[2] == [1, 1]
    assert card_tables.difference(two_rows, claim, collapsed=False)["words"].tolist() == [[0.5, 3 / 8], [0.5, 2 / 8]]
    assert "over the 2 of 8 seeds" in card_tables.survivors(two_rows)
    found = card_tables.survivors_computed(two_rows)
    assert "D3S trains 0.8 times fewer tokens" in found  # (1 + 2) / 2 tokens against 2
    assert "20 % of the FLOPs of a dense update, GRPO with 15 %" in found
