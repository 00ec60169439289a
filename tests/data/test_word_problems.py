"""Word problems against formulas written by hand for each sentence, and Python's arithmetic."""

import itertools
import re

import pytest

from d3s.data.synthetic import SPLITS, TASKS
from d3s.data.word_problems import KINDS, NAMES, THINGS

# Sentences without name, things and numbers, shortened to what tells them apart -> the answer from the numbers
FORMULAS = {
    "has # X and gets # more": "{0} + {1}",
    "has # X and gives away #": "{0} - {1}",
    "buys # bags of # X. How": "{0} * {1}",
    "shares # X equally among # friends": "{0} / {1}",
    "has # X, a friend has #. How many more": "{0} - {1}",
    "has # X, finds # and buys #": "{0} + {1} + {2}",
    "has # X, gets # and loses #": "{0} + {1} - {2}",
    "has # X, sells # and loses #": "{0} - {1} - {2}",
    "has # X and buys # bags of #": "{0} + {1} * {2}",
    "buys # bags of # X and gives away #": "{0} * {1} - {2}",
    "a friend has # times as many": "{0} + {0} * {1}",
    "dollars each and pays with # dollars": "{2} - {0} * {1}",
    "buys # bags of # X, gets # more and loses #": "{0} * {1} + {2} - {3}",
    "buys # bags of # X and # boxes of #": "{0} * {1} + {2} * {3}",
    "gets #, gives half away and loses #": "({0} + {1}) / 2 - {2}",
}


def masked(text):
    """The sentence of a problem without its name, things and numbers: its kind."""
    text = re.sub("|".join(itertools.chain(*NAMES.values())), "N", text)
    return re.sub(r"\d+", "#", re.sub(rf"\b({'|'.join(THINGS)})\b", "X", text))


def test_answers_are_those_of_the_sentences():
    kinds, levels = {}, set()
    for text, answer, level in TASKS["words"].draw("train", 1500, 0):
        (formula,) = (value for key, value in FORMULAS.items() if key in masked(text))
        value = eval(formula.format(*re.findall(r"\d+", text)))  # digits and signs, by the line above
        assert answer == str(int(value)) and value == int(value) > 0
        assert level == f"{len(re.findall('[-+*/]', formula))}-step"
        kinds[masked(text)] = kinds.get(masked(text), 0) + 1
        levels.add(level)
    assert len(kinds) == len(KINDS) >= 12 and min(kinds.values()) > 30
    assert levels == {"1-step", "2-step", "3-step"}


@pytest.mark.parametrize("seed", [0, 1])
def test_splits_share_neither_names_nor_numbers_of_a_kind(seed):
    names, numbers = {}, {}
    for split in SPLITS:
        texts = [text for text, _, _ in TASKS["words"].draw(split, 250, seed)]
        names[split] = {text.split()[0] for text in texts}
        numbers[split] = {(masked(text), *re.findall(r"\d+", text)) for text in texts}
    for a, b in itertools.combinations(SPLITS, 2):
        assert not names[a] & names[b] and not numbers[a] & numbers[b]


def test_demonstrations_calculate_right_but_choose_at_random():
    right, demonstrations = 0, TASKS["words"].demonstrations(2000, 0)
    for text, response in demonstrations:
        steps, boxed = response.removesuffix("}").split(" \\boxed{")
        known = set(re.findall(r"\d+", text)) | {"2"}
        for step in steps.split(";"):
            calculation, value = step.split("=")
            assert eval(calculation) == int(value)  # digits and a sign, else the next line fails
            assert set(re.fullmatch(r"(\d+)[-+*/](\d+)", calculation).groups()) <= known
            known.add(value)
        assert value == boxed
        (formula,) = (value for key, value in FORMULAS.items() if key in masked(text))
        right += eval(formula.format(*re.findall(r"\d+", text))) == int(boxed)
    assert 0.05 < right / len(demonstrations) < 0.25
