"""The runs on one card: rows differ in what their names say, a budget is the same for all rows, runs come in order."""

from pathlib import Path

import pytest

from d3s.config.load import load_config
from research import card


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
    return next(options(run) for run in card.searched() + card.others() if (run.part, run.row) == (part, row))


@pytest.mark.parametrize("part", ["long", "remedy"])
def test_random_tokens_differ_in_their_rule_alone(part):
    rows = {"long": (card.PAPER, card.PAPER_RANDOM), "remedy": ("D3S, N = 4, K = 20 %", card.RANDOM)}[part]
    assert differing(*(of_row(part, row) for row in rows)) == {"selector.tokens"}


@pytest.mark.parametrize("row", card.SEARCHED)
def test_every_searched_step_has_256_responses(row):
    found = of_row("search", row)
    assert found["rollout.num_generations"] * found["train.prompts_per_step"] == 256
    assert found["eval.split"] == "validation"


def test_constant_row_has_the_mean_of_both_ends():
    found = dict(text.split("=") for text in card.means((*card.growing(0.2, 0.5, 4, 16), "optim.num_minibatches=4")))
    names = [f"schedule.{name}_{end}" for name in "nk" for end in ("init", "final")]
    assert [float(found[name]) for name in names] == [10, 10, 0.35, 0.35] and found["optim.num_minibatches"] == "4"


def write(folder: Path, name: str, rows: list[dict]) -> None:
    columns = [*card.KEYS, *card.COLUMNS[name]]
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
    (cheap, dear) = card.curve(search, "search").values()
    step = [card.COST[0] + card.COST[1] * tokens for tokens in (1000, 10000)]
    assert [seconds for _, seconds, _ in cheap] == pytest.approx([0, step[0], 2 * step[0]])
    assert [seconds for _, seconds, _ in dear] == pytest.approx([0, step[1], 2 * step[1]])


def test_choice_is_at_an_equal_budget(search):
    """The dearer run ends higher, and is at 0.2 or below when the cheap one has ended."""
    assert card.choose(search, "GRPO") == ("GRPO", 1e-5)
