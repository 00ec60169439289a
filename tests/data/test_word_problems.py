"""Word problems against formulas written by hand for each sentence, and Python's arithmetic."""

import itertools
import re

import pytest

from d3s.data.synthetic import SPLITS, TASKS
from d3s.data.word_problems import KINDS, NAMES, THINGS

# Sentences without name, things and numbers, shortened to what tells them apart -> the answer from the numbers
FORMULAS = {
    "has # X and gets # more": "{0} + {1}",
    "a friend has #. How many together": "{0} + {1}",
    "finds # X at home and # at school": "{0} + {1}",
    "has # X and gives away #": "{0} - {1}",
    "had # X and lost #": "{0} - {1}",
    "buys # bags of # X. How": "{0} * {1}",
    "buys # X for # dollars each": "{0} * {1}",
    "fills # boxes with # X each": "{0} * {1}",
    "shares # X equally among # friends": "{0} / {1}",
    "has # X, finds # and buys #": "{0} + {1} + {2}",
    "has # X, gets # and loses #": "{0} + {1} - {2}",
    "buys # bags of # X and finds # more": "{0} * {1} + {2}",
    "gets #, finds # and buys #": "{0} + {1} + {2} + {3}",
}


def masked(text):
    """The sentence of a problem without its name, things and numbers: its kind."""
    text = re.sub("|".join(itertools.chain(*NAMES.values())), "N", text)
    return re.sub(r"\d+", "#", re.sub(rf"\b({'|'.join(THINGS)})\b", "X", text))


def test_answers_are_those_of_the_sentences():
    kinds, levels = {}, {}
    for text, answer, level in TASKS["words"].draw("train", 1500, 0):
        (formula,) = (value for key, value in FORMULAS.items() if key in masked(text))
        value = eval(formula.format(*re.findall(r"\d+", text)))  # digits and signs, by the line above
        assert answer == str(int(value)) and value == int(value) > 0
        assert level == f"{len(re.findall('[-+*/]', formula))}-step"
        kinds[masked(text)] = kinds.get(masked(text), 0) + 1
        levels[masked(text)] = level
    assert len(kinds) == len(KINDS) >= 12 and min(kinds.values()) > 30
    chains = {masked(text) for text, _, _ in TASKS["chains"].draw("train", 300, 0)}
    assert set(levels.values()) == {"1-step", "2-step", "3-step"}
    assert chains == {kind for kind, level in levels.items() if level == "2-step"}


@pytest.mark.parametrize("seed", [0, 1])
def test_splits_share_neither_names_nor_numbers_of_a_kind(seed):
    names, numbers = {}, {}
    for split in SPLITS:
        texts = [text for task in ("words", "chains") for text, _, _ in TASKS[task].draw(split, 150, seed)]
        names[split] = {text.split()[0] for text in texts}
        numbers[split] = {(masked(text), *re.findall(r"\d+", text)) for text in texts}
    for a, b in itertools.combinations(SPLITS, 2):
        assert not names[a] & names[b] and not numbers[a] & numbers[b]


def test_demonstrations_are_right_and_of_other_kinds():
    kinds, boxes = {masked(text) for text, _, _ in TASKS["words"].draw("train", 1500, 0)}, 0
    for text, response in TASKS["words"].demonstrations(500, 0):
        steps, _, boxed = response.removesuffix("}").partition(" \\boxed{")
        numbers, value, boxes = sorted(re.findall(r"\d+", text)), None, boxes + bool(boxed)
        assert masked(text) not in kinds
        for step in steps.split("; "):
            left, right, result = re.fullmatch(r"(\d+) [-+*/] (\d+) = (\d+)", step).groups()
            assert eval(step.partition("=")[0]) == int(result)  # digits and a sign, by the line above
            assert value in (None, left)
            for number in [right] if value else [left, right]:
                numbers.remove(number)
            value = result
        assert boxed in ("", value) and not numbers
    assert boxes == pytest.approx(500 / 3, rel=0.2)
