"""Responses with few, some and many words: the same steps and answers, runs that differ in one option, the table."""

from pathlib import Path

import pytest

from d3s.data.synthetic import find_task
from research import lengths


@pytest.mark.parametrize("words", lengths.STYLES)
def test_words_leave_steps_and_answer(words):
    around = lengths.STYLES[words][0]
    for _, solution in find_task("precedence").demonstrations(50, seed=1):
        text = lengths.written(solution, around)
        steps, answer = solution.split(" ")
        first, last = around.split("{}")
        assert text == "".join(f"{first}{step}{last} " for step in steps.split(";")) + answer


def test_runs_differ_in_rule_alone():
    pairs = [lengths.command("some", rule, 1e-4, 1) for rule in lengths.RULES]
    differing = {one.partition("=")[0] for one, other in zip(*pairs, strict=True) if one != other}
    assert differing == {"selector.tokens", "train.output_dir"}


def test_table_has_the_difference_of_the_rules(tmp_path: Path):
    """By |A| x H 4 of 8 are right, by random tokens 2; with many words 2 by both, and 8 in the search."""
    lines = [",".join(lengths.COLUMNS)]
    for words in lengths.STYLES:
        for rule in lengths.RULES:
            right = "4343" if rule == "advantage_entropy" and words != "many" else "2121"
            at = {0: "0000", lengths.STEPS // 2: right, lengths.STEPS: right}
            lines += [
                f"{words},{rule},1e-4,{seed},{step},50,9,0.5,{found}" for seed in (1, 2) for step, found in at.items()
            ]
            for rate, found in (("2e-4", "0000"), ("1e-4", "8888")):
                lines.append(f"{words},{rule},{rate},{lengths.SEARCH_SEED},{lengths.STEPS},90,9,0.5,{found}")
    path = tmp_path / "lengths.csv"
    path.write_text("\n".join(lines) + "\n")
    few, _, many = lengths.table(path).splitlines()[2:]
    assert few.startswith("| few, 50 tokens | 2 | 0.0001; 0.0001 | 0.0 | 43.8; 18.8; +25.0 (")
    assert "| 18.8; 18.8; +0.0 (" in many
    assert lengths.claim(path).startswith("The gain with few words is +25.0 (")
