"""Problems of reasoning-gym: splits, scores of right and wrong answers, and which scorers execute a model's text.

What a scorer executes is known independently: Python announces each text that it compiles (sys.addaudithook).
"""

from importlib.util import find_spec

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.data import gym
from d3s.data.dataset import contents, read_problems
from d3s.data.problems import load_problems
from d3s.data.synthetic import SPLITS
from d3s.reward import RewardFunction
from d3s.tiny import byte_tokenizer
from tests.helpers.configs import ROOT
from tests.helpers.processes import run_python

pytestmark = [
    pytest.mark.skipif(not find_spec("reasoning_gym"), reason="reasoning-gym is not installed"),
    pytest.mark.slow,
]
TASKS = (  # of algebra, arithmetic, games, geometry, graphs, induction, logic and text
    "chain_sum", "base_conversion", "mini_sudoku", "tower_of_hanoi", "simple_geometry", "shortest_path", "arc_1d",
    "knights_knaves", "isomorphic_strings", "spell_backward",
)  # fmt: skip
EXECUTING = "binary_matrix countdown n_queens polynomial_multiplication puzzle24 spiral_matrix string_insertion".split()  # noqa: SIM905

WATCH = """
import sys
from d3s.gym import worker as gym_worker
gym_worker.serve()
compiled = []
sys.addaudithook(lambda event, values: event == "compile" and "7319407" in str(values[0]) and compiled.append(event))
for task in sys.argv[1:]:
    dataset = sys.modules["reasoning_gym.factory"].create_dataset(task, seed=1, size=9)
    entry, compiled[:] = dataset[0], []
    for form in ("7319407", "[[7319407, 1], [1, 2]]", '["7319407"]', "x + 7319407", "{'a': 7319407}"):
        try:
            dataset.score_answer(form, entry)
        except Exception:
            pass
    print(task, bool(compiled), bool(next(gym_worker.evaluators(dataset), None)))
"""


@pytest.fixture(scope="module")
def reward():
    """The reward of a configuration that sets none."""
    function = RewardFunction(Config().reward, 1)
    yield function
    function.close()


@pytest.mark.parametrize("task", TASKS)
def test_tasks_have_disjoint_splits_and_their_own_scores(task, reward):
    splits = {split: load_problems(f"reasoning-gym:{task}", split=split, limit=8) for split in SPLITS}
    texts = {" ".join(p.problem.split()).casefold() for problems in splits.values() for p in problems}
    assert len(texts) == 24
    assert splits["train"] == load_problems(f"reasoning-gym:{task}", limit=9)[:8]
    assert splits["train"] != load_problems(f"reasoning-gym:{task}", limit=8, seed=1)
    for problem in splits["test"][:3]:
        right = (rf"So \boxed{{{problem.answer}}}.", f"<answer>1</answer> no, <answer> {problem.answer}</answer>")
        wrong = (
            r"\boxed{0 0 zzz}",
            "<answer>zzz</answer>",
            problem.answer,
            "",
            f"<think><answer>{problem.answer}</answer>",
            rf"\boxed{{zzz}} or \boxed{{{problem.answer}}}",
        )
        pending = [reward.submit(text, problem.answer, problem.row) for text in (*right, *wrong)]
        scores = [outcome().reward for outcome in pending]
        assert scores[:2] == [1, 1] and max(scores[2:]) < 0.5


def test_scorers_that_execute_answers_are_refused():
    lines = run_python(WATCH, *EXECUTING, *TASKS, timeout=600).splitlines()
    verdicts = dict(line.split(" ", 1) for line in lines if line)
    assert verdicts == dict.fromkeys(EXECUTING, "True True") | dict.fromkeys(TASKS, "False False")
    with pytest.raises(
        UserError, match=r"reasoning-gym:countdown: its scorer evaluates text as code \(sympy\.parse_ex"
    ):
        load_problems("reasoning-gym:countdown")


def test_data_files_cannot_name_an_executing_scorer(reward):
    """Nor any other request of a worker than that for a score."""
    for drawn in (["puzzle24", {}, 1, 0], ["lcm", {"size": -1}, 1, 0], ["lcm"], [1, 2, 3, 4, 5, 6], []):
        assert reward.submit(r"\boxed{24}", "24", {gym.GYM: drawn})().reward == 0


def test_small_tasks_have_fewer_problems():
    problems = load_problems("reasoning-gym:coin_flip", limit=5000)
    assert 100 < len(problems) < 1000 and problems[:50] == load_problems("reasoning-gym:coin_flip", limit=50)


def test_options_reach_training_and_evaluation(reward):
    overrides = ["data.path=reasoning-gym:lcm", "eval.data=[reasoning-gym:lcm]", "data.limit=20", "eval.limit=5"]
    config = load_config(["tiny"], [*overrides, "data.options={lcm: {min_value: 90, max_value: 99}}"])
    problems = read_problems(config)
    for problem in (*problems.train, *problems.tests["lcm"]):
        numbers = [int(word.strip(",")) for word in problem.problem.split() if word.strip(",").isdecimal()]
        assert numbers and all(90 <= number <= 99 for number in numbers)
    # A fingerprint, as the package may draw otherwise.
    assert "data.path" in contents(config, problems, byte_tokenizer())


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("chainsum", {}, "reasoning-gym:chainsum: no such task (did you mean 'chain_sum'?)"),
        ("", {}, "reasoning-gym:: no such task; expected one of ab, "),
        ("lcm", {"lcm": {"min_vale": 1}}, "data.options: lcm has no option 'min_vale' (did you mean 'min_value'?)"),
        ("lcm", {"lcm": {"seed": 1}}, "data.options: lcm has no option 'seed'; its options are min_numbers, "),
        ("lcm", {"lcm": {"min_value": -1}}, 'data.options: lcm refuses {"min_value": -1} ('),
        ("lcm", {"lcm": {"min_value": "a"}}, 'data.options: lcm refuses {"min_value": "a"} ('),
        ("composite", {}, "data.options: composite refuses {} ("),
    ],
)
def test_bad_tasks_and_options_are_refused(source, options, expected):
    with pytest.raises(UserError) as refused:
        load_problems(f"reasoning-gym:{source}", limit=5, options=options)
    assert str(refused.value).startswith(expected) and "\n" not in str(refused.value)


def test_missing_package_and_unread_options_are_refused(monkeypatch):
    config = load_config(["tiny"], ["data.options={lcm: {min_value: 2}}"])
    with pytest.raises(
        UserError, match=r"data\.options: got 'lcm', expected the task of a reasoning-gym:TASK in data.path"
    ):
        read_problems(config)
    monkeypatch.setattr(gym, "find_spec", lambda name: None)
    with pytest.raises(UserError) as refused:
        load_problems("reasoning-gym:lcm")
    assert str(refused.value) == f"reasoning-gym:lcm: the package reasoning-gym is not installed; {gym.INSTALL}"
    monkeypatch.undo()
    monkeypatch.setattr(gym, "SERVE", "d3s.gym.worker:absent")
    with pytest.raises(UserError, match=r"^reasoning-gym:lcm: the process of reasoning-gym fails \(it did not start"):
        load_problems("reasoning-gym:lcm")
    assert gym.INSTALL.removeprefix("pip install ") in (ROOT / "pyproject.toml").read_text()
