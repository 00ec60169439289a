"""Synthetic tasks, against Python's own arithmetic and brute force over all expressions and programs."""

import itertools
import json
import random
import re
import string
from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.data.synthetic import (
    EXAMPLES,
    LARGEST,
    LARGEST_ARGUMENT,
    SPLITS,
    TASKS,
    all_programs,
    countdown_reward,
    evaluate_expression,
    hidden_functions,
    split_of,
)


def outcomes(text):
    """Values of all (n-1)! orders of reduction, written out with parentheses and read by Python."""
    numbers, signs, values = re.findall(r"\d+", text), re.findall(r"[-+*]", text), []
    for order in itertools.permutations(range(len(signs))):
        parts = {i: (n, i, i) for i, n in enumerate(numbers)}  # the text around operand i and the range it covers
        for i in order:
            left, right = parts[i], parts[i + 1]
            joined = (f"({left[0]}{signs[i]}{right[0]})", left[1], right[2])
            parts |= dict.fromkeys(range(left[1], right[2] + 1), joined)
        values.append(eval(parts[0][0]))  # text made by this test
    return values


@pytest.mark.parametrize("name", TASKS)
def test_splits_are_disjoint_and_reproducible(name):
    task = TASKS[name]
    drawn = {split: [task.draw(split, 60, seed) for seed in (0, 1)] for split in SPLITS}
    texts = {split: {text for problems in drawn[split] for text, _, _ in problems} for split in SPLITS}
    for a, b in itertools.combinations(SPLITS, 2):
        assert not texts[a] & texts[b]
    for split, (first, other) in drawn.items():
        assert task.draw(split, 20, 0) == first[:20] != other[:20]
        assert len({text for text, _, _ in first}) == 60
    prompts = {prompt for prompt, _ in task.demonstrations(200, 0)}
    assert set(map(task.split_of or split_of, prompts)) == {"train"}
    assert not prompts & (texts["validation"] | texts["test"])


@pytest.mark.parametrize(("name", "operands"), [("precedence", (3, 4)), ("mixed", (2, 3, 4, 5, 6))])
def test_precedence_answers_and_difficulty(name, operands):
    problems = TASKS[name].draw("train", 400, 0)
    for text, answer, level in problems:
        assert re.fullmatch(r"[1-9]([-+*][1-9])*=", text)
        value = eval(text[:-1])  # an expression of digits and signs, by the line above
        assert answer == str(value)
        values = outcomes(text)
        assert len(values) == 1 or 2 * values.count(value) <= len(values)
        assert level == f"{len(text) // 2}-operands"
        terms = re.findall(r"[-+]?(?:\d+\*)*\d+", text.removesuffix("="))
        products = [eval(term[: end + 1]) for term in terms for end in range(2, len(term)) if term[end].isdigit()]
        steps = list(map(abs, products)) + list(itertools.accumulate(map(eval, terms)))
        assert all(0 <= step <= LARGEST for step in steps) and steps[-1] == value
    counts = Counter(len(text) // 2 for text, _, _ in problems)
    assert set(counts) == set(operands) and min(counts.values()) > 5


def test_precedence_demonstrations_reduce_random_pairs():
    first_pairs = {}
    for prompt, response in TASKS["precedence"].demonstrations(2000, 0):
        steps, boxed = response.removesuffix("}").split(" \\boxed{")
        remaining = {prompt.removesuffix("=")}  # texts of what may remain after the steps so far
        for step in steps.split(";"):
            pair, equals, value = step.partition("=")
            if equals:
                assert eval(pair) == int(value)
                places = [(t, i) for t in remaining for i in range(len(t)) if t.startswith(pair, i)]
                remaining = {t[:i] + value + t[i + len(pair) :] for t, i in places}
            else:
                remaining &= {step}
        assert boxed in remaining
        pairs = [prompt[i : i + 3] for i in range(0, len(prompt) - 2, 2)]
        if len(set(pairs)) == len(pairs):
            first_pairs.setdefault(len(pairs), []).append(pairs.index(steps.split("=")[0]))
    for count, places in first_pairs.items():
        for place in range(count):
            assert abs(places.count(place) / len(places) - 1 / count) < 0.07


# --- countdown ------------------------------------------------------------------------------------


def expressions_over(numbers):
    """Every expression over two or three numbers, flat and with parentheses."""
    for order in set(itertools.permutations(numbers)):
        for signs in itertools.product("+-*", repeat=len(order) - 1):
            yield "".join(itertools.chain(*zip(map(str, order), [*signs, ""])))
            if len(order) == 3:
                (a, b, c), (first, second) = order, signs
                yield from (f"({a}{first}{b}){second}{c}", f"{a}{first}({b}{second}{c})")


def test_countdown_problems_have_solutions():
    for text, answer, _ in TASKS["countdown"].draw("train", 60, 0):
        *numbers, target = map(int, re.split(",|->", answer))
        assert text == answer + ":" and numbers == sorted(numbers)
        assert 0 <= target <= LARGEST and target in map(eval, expressions_over(numbers))


def test_countdown_demonstrations_reach_target_by_chance():
    demonstrations = TASKS["countdown"].demonstrations(800, 0)
    for prompt, response in demonstrations:
        steps = re.findall(r"(\d+[-+*]\d+)=(\d+)[; ]", response)
        assert len(steps) == 2 and all(eval(pair) == int(value) <= LARGEST for pair, value in steps)
        assert countdown_reward(response, f"{prompt.split('->')[0]}->{steps[-1][1]}") == 1.0
    assert 0.5 < sum(countdown_reward(response, prompt[:-1]) for prompt, response in demonstrations) / 800 < 0.65


@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.integers(0, 60))
def test_countdown_reward_matches_brute_force(numbers, target):
    """Of all expressions of two or three numbers, those are rewarded whose value in Python is the target."""
    gold = f"{','.join(map(str, sorted(numbers)))}->{target}"
    for text in expressions_over(numbers):
        assert countdown_reward(f"so \\boxed{{{text}}}", gold) == float(eval(text) == target), text


WRONG = [
    "2*5",  # a number is left out
    "2*5+3+3",  # one is used twice
    "2*5+4-1",  # foreign numbers
    "23-10",  # digits of two numbers run together
    "2**5+3", "2*5+3=13", "-(0-2)*5+3", "__import__('os').system('x')",
    "(" * 5000 + "2" + ")" * 5000, "9" * 90 + "*" + "2*5+3",
    "٢*5+3",  # a digit that is not ASCII
    "",
]  # fmt: skip


def test_countdown_reward_reads_the_last_box_only():
    assert not any(countdown_reward(f"\\boxed{{{box}}}", "2,3,5->13") for box in WRONG)
    assert countdown_reward("\\boxed{1+1} then \\boxed{ (2 * 5) + 3 }", "2,3,5->13") == 1.0
    assert countdown_reward("\\boxed{2*5+3} then \\boxed{2+3+5}", "2,3,5->13") == 0.0
    assert countdown_reward("2*5+3", "2,3,5->13") == 0.0


# --- code -----------------------------------------------------------------------------------------


WIDE = list(itertools.product(range(15), repeat=2))


@cache
def python_function(program):
    return eval(f"lambda a, b: {program}")  # of all_programs


@cache
def wide_values(program):
    return tuple(python_function(program)(a, b) for a, b in WIDE)


def passes(program, tests):
    matches = [re.fullmatch(r"assert f\((\d+), (\d+)\) == (-?\d+)", test) for test in json.loads(tests)]
    return all(python_function(program)(int(m[1]), int(m[2])) == int(m[3]) for m in matches)


@pytest.fixture(scope="module")
def problems():
    return TASKS["code"].draw("train", 100, 0)


def test_problems_have_one_solution(problems):
    """Exactly the programs that equal one function everywhere agree with the examples, and they pass the tests.

    The tests have the examples, and further pairs.
    """
    values = set(map(wide_values, hidden_functions()))
    assert len(values) == len(hidden_functions()) and values == set(map(wide_values, all_programs()))
    for text, tests, level in problems[:20]:
        assert re.fullmatch(r"(\d,\d>-?\d+;){2}\d,\d>-?\d+:", text)
        examples = [tuple(map(int, re.findall(r"-?\d+", example))) for example in text[:-1].split(";")]
        assert len({(a, b) for a, b, _ in examples}) == EXAMPLES and level in ("2-operands", "3-operands")
        assert all(0 <= x <= LARGEST_ARGUMENT for a, b, _ in examples for x in (a, b))
        agreeing = [p for p in all_programs() if all(python_function(p)(a, b) == v for a, b, v in examples)]
        assert len(set(map(wide_values, agreeing))) == 1
        assert all(passes(p, tests) for p in agreeing)
        assert {f"assert f({a}, {b}) == {value}" for a, b, value in examples} <= set(json.loads(tests))
        assert sum(int(n) > LARGEST_ARGUMENT for n in re.findall(r"f\(\d+, (\d+)\)", tests)) >= 3


def test_demonstrations_agree_with_most_examples(problems, monkeypatch):
    """The best of all programs is right; a single random one hardly ever is."""
    monkeypatch.setattr("d3s.data.synthetic.PROGRAM_TRIES", 1)
    demonstrate, rng = TASKS["code"].demonstrate, random.Random(0)
    assert sum(passes(demonstrate(rng, text), tests) for text, tests, _ in problems) / len(problems) < 0.1
    monkeypatch.setattr("d3s.data.synthetic.PROGRAM_TRIES", 4000)
    assert all(passes(demonstrate(rng, text), tests) for text, tests, _ in problems[:10])


# --- expressions ----------------------------------------------------------------------------------

numbers = st.integers(0, 30).map(str)
signs = st.sampled_from(["+", "-", "*", " + ", "* "])
expressions = st.recursive(numbers, lambda e: st.tuples(e, signs, e).map("".join) | e.map("({})".format), max_leaves=30)


@given(expressions)
def test_expression_values_match_python(text):
    value = eval(text), list(map(int, re.findall(r"\d+", text)))  # an expression that this test has built
    assert evaluate_expression(text) == (value if len(text) <= 100 else None)


@given(st.text(alphabet="0123456789+-*() /._eE^x\n\\{}" + string.ascii_letters, max_size=120))
def test_expression_parser_accepts_no_more_than_python(text):
    parsed = evaluate_expression(text)
    if parsed is not None:
        assert re.fullmatch(r"[0-9+\-*() \t]+", text)
        spelled = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text.strip())  # Python refuses 007
        assert parsed[0] == eval(spelled)
