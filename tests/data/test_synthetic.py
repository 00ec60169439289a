"""Synthetic tasks, against Python's own arithmetic and brute force over all expressions and programs."""

import itertools
import json
import operator
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

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def parse(text):
    return [int(n) for n in re.findall(r"\d+", text)], re.findall(r"[-+*]", text)


def write(numbers, signs):
    return "".join(itertools.chain(*zip(map(str, numbers), [*signs, ""])))


def outcomes(numbers, signs):
    """Values of all (n-1)! orders of reduction, written out with parentheses and read by Python."""
    values = []
    for order in itertools.permutations(range(len(signs))):
        parts = {i: (str(n), i, i) for i, n in enumerate(numbers)}  # the text around operand i and the range it covers
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
    assert set(map(split_of, prompts)) == {"train"} and not prompts & (texts["validation"] | texts["test"])


@pytest.mark.parametrize(("name", "operands"), [("precedence", (3, 4)), ("mixed", (2, 3, 4, 5, 6))])
def test_precedence_answers_and_difficulty(name, operands):
    problems = TASKS[name].draw("train", 400, 0)
    for text, answer, level in problems:
        assert re.fullmatch(r"[1-9]([-+*][1-9])*=", text)
        value = eval(text[:-1])  # an expression of digits and signs, by the line above
        assert answer == str(value)
        values = outcomes(*parse(text))
        assert len(values) == 1 or 2 * values.count(value) <= len(values)
        assert level == f"{len(text) // 2}-operands"
        steps, terms = [], []  # the values of products, then of sums from left to right
        for sign, factors in re.findall(r"([-+]?)((?:\d+\*)*\d+)", text.removesuffix("=")):
            products = list(itertools.accumulate(map(int, factors.split("*")), operator.mul))
            steps += products[1:]
            terms.append(-products[-1] if sign == "-" else products[-1])
        steps += list(itertools.accumulate(terms))[1:]
        assert all(0 <= step <= LARGEST for step in steps) and steps[-1] == value
    counts = Counter(len(text) // 2 for text, _, _ in problems)
    assert set(counts) == set(operands) and min(counts.values()) > 5
    if name == "precedence":
        assert 0.3 < counts[3] / len(problems) < 0.7


def test_precedence_demonstrations_reduce_random_pairs():
    first_pairs = {}
    for prompt, response in TASKS["precedence"].demonstrations(2000, 0):
        steps, boxed = response.removesuffix("}").split(" \\boxed{")
        numbers, signs = parse(prompt)
        states = [[numbers, signs]]  # what may remain after the steps so far
        for step in steps.split(";"):
            if "=" not in step:
                states = [s for s in states if write(*s) == step]
                continue
            pair, value = step.split("=")
            assert eval(pair) == int(value)
            states = [
                [[*ns[:i], int(value), *ns[i + 2 :]], ss[:i] + ss[i + 1 :]]
                for ns, ss in states
                for i in range(len(ss))
                if write(ns[i : i + 2], ss[i : i + 1]) == pair
            ]
            assert states
        assert [[int(boxed)], []] in states
        if len({f"{a}{s}{b}" for a, s, b in zip(numbers, signs, numbers[1:])}) == len(signs):
            place = prompt.index(steps.split("=")[0]) // 2
            first_pairs.setdefault(len(signs), []).append(place)
    for count, places in first_pairs.items():
        for place in range(count):
            assert abs(places.count(place) / len(places) - 1 / count) < 0.07


# --- countdown ------------------------------------------------------------------------------------


def brute_force_values(numbers):
    """Every value of an expression over all the numbers, with intermediate results of any size."""
    if len(numbers) == 1:
        return {numbers[0]}
    values = set()
    for size in range(1, len(numbers)):
        for chosen in itertools.combinations(range(len(numbers)), size):
            rest = [n for i, n in enumerate(numbers) if i not in chosen]
            for a in brute_force_values([numbers[i] for i in chosen]):
                values |= {f(a, b) for b in brute_force_values(rest) for f in SIGNS.values()}
    return values


def test_countdown_problems_have_solutions():
    for text, answer, _ in TASKS["countdown"].draw("train", 60, 0):
        numbers, target = answer.split("->")
        numbers = [int(n) for n in numbers.split(",")]
        assert text == answer + ":" and numbers == sorted(numbers)
        assert 0 <= int(target) <= LARGEST and int(target) in brute_force_values(numbers)


def test_countdown_demonstrations_reach_target_by_chance():
    hits = 0
    demonstrations = TASKS["countdown"].demonstrations(800, 0)
    for prompt, response in demonstrations:
        steps, expression = response.removesuffix("}").split(" \\boxed{")
        for step in steps.split(";"):
            pair, value = step.split("=")
            assert eval(pair) == int(value) and 0 <= int(value) <= LARGEST
        gold = prompt[:-1]
        own = f"{gold.split('->')[0]}->{steps.split('=')[-1]}"
        assert countdown_reward(f"\\boxed{{{expression}}}", own) == 1.0
        hits += countdown_reward(response, gold)
    assert 0.5 < hits / len(demonstrations) < 0.65


@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.integers(0, 60), st.randoms())
def test_countdown_reward_matches_brute_force(numbers, target, rng):
    """Of all expressions of two or three numbers, those are rewarded whose value in Python is the target."""
    gold = f"{','.join(map(str, sorted(numbers)))}->{target}"
    rewarded, reached = 0, 0
    for order in set(itertools.permutations(numbers)):
        for signs in itertools.product("+-*", repeat=len(order) - 1):
            flat = "".join(itertools.chain(*zip(map(str, order), [*signs, ""])))
            shapes = [flat] if len(order) == 2 else [flat, f"({flat[:3]}){flat[3:]}", f"{flat[:2]}({flat[2:]})"]
            for text in shapes:
                rewarded += countdown_reward(f"so \\boxed{{{text}}}", gold) == 1.0
                reached += eval(text) == target
    assert rewarded == reached


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


def examples_of(text):
    assert re.fullmatch(r"(\d,\d>-?\d+;){2}\d,\d>-?\d+:", text)
    return [tuple(map(int, re.findall(r"-?\d+", example))) for example in text[:-1].split(";")]


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
        examples = examples_of(text)
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


@st.composite
def expressions(draw):
    """(text, the numbers in it), with random spaces and parentheses."""

    def build(depth):
        if depth == 0 or draw(st.booleans()):
            number = draw(st.integers(0, 30))
            return str(number), [number]
        (a, left), (b, right) = build(depth - 1), build(depth - 1)
        text = f"{a}{draw(st.sampled_from(['+', '-', '*', ' + ', '* ']))}{b}"
        return (f"({text})" if draw(st.booleans()) else text), left + right

    return build(3)


@given(expressions())
def test_expression_values_match_python(expression):
    text, numbers = expression
    expected = None if len(text) > 100 else (eval(text), numbers)  # an expression that this test has built
    assert evaluate_expression(text) == expected


@given(st.text(alphabet="0123456789+-*() /._eE^x\n\\{}" + string.ascii_letters, max_size=120))
def test_expression_parser_accepts_no_more_than_python(text):
    parsed = evaluate_expression(text)
    if parsed is not None:
        assert re.fullmatch(r"[0-9+\-*() \t]+", text)
        spelled = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text.strip())  # Python refuses 007
        assert parsed[0] == eval(spelled)
