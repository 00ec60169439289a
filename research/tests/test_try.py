"""Ideas beside the controls: what a word of the command means, on artificial runs what is reported of a difference."""

from dataclasses import replace
from importlib import import_module
from itertools import count

import numpy as np
import pytest

from d3s.common import UserError, exit_code
from d3s.config.load import load_config
from research.jobs import Job, Setting
from research.row import TASKS, Row
from research.rows import BY_NAME, D3S_SMALL
from research.statistics import interval
from research.tests.experiments import SerialPool, make_record, without_base_models

attempt = import_module("research.try")  # whose name is a keyword
SETTING, NUMBERS = Setting(1e-4), count()
RULES = """
def tokens(advantages, power=1.0):
    return advantages.abs() ** power

def rollouts(advantages, keep):
    return advantages.argsort(descending=True).argsort() < keep

def loss(logprobs, advantages, denominator):
    return (-logprobs * advantages / denominator).sum(), {}

def shape(progress):
    return progress

def number(advantages, entropies):
    return 3

def stranger(x):
    return x
"""


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """The name of a module of the user's own, new in every test."""
    module = f"rules{next(NUMBERS)}"
    (tmp_path / f"{module}.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    return module


# --- the idea ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word, option",
    [
        ("RULES.py:tokens", "selector.tokens"),
        ("RULES:rollouts", "selector.rollouts"),
        ("./RULES.py:loss", "loss.kind"),
        ("d3s/methods/vade.py:Vade", "data.order"),
    ],
)
def test_option_follows_from_the_function(rules, word, option):
    """Arguments alone do not tell: a loss too may take nothing but advantages."""
    first, second = attempt.arguments_of([word.replace("RULES", rules), "loss.beta=0"])
    module, _, function = first.rpartition(":")
    assert module in (f"{option}={rules}", f"{option}=d3s.methods.vade")
    assert word.endswith(function) and second == "loss.beta=0"


@pytest.mark.parametrize(
    "words, problem",
    [
        (["RULES:shape"], "fits schedule.n_shape and schedule.k_shape; name the option, as in schedule.n_shape=RULES:"),
        (["RULES:stranger"], "fits no option by its arguments and what it returns; name the option"),
        (["RULES:number"], "selector.tokens: RULES:number returned int"),
        (["RULES:none"], "has no attribute 'none'"),
        (["nowhere.py:f"], "No module named 'nowhere'"),
        (["nowhere.yaml"], "nowhere.yaml: no such file"),
        (["entropy"], "entropy: expected module:function, section.key=value or a file"),
        (["selector.token=entropy"], "selector.token: unknown key; did you mean selector.tokens?"),
        (["selector.tokens=RULES:number"], "returned int"),
        (["train.steps=9"], "train.steps: set by research.try"),
        (["optim.learning_rate=x"], "optim.learning_rate"),
        (["configs/method/d3s.yaml"], "this is the control D3S; name what the idea changes"),
    ],
)
def test_unusable_ideas_are_one_sentence(rules, words, problem, capsys):
    words = [word.replace("RULES", rules) for word in words]
    assert exit_code(lambda: attempt.main(words)) == 2
    output = capsys.readouterr().err
    assert problem.replace("RULES", rules) in output and output.count("\n") == 1


def test_rules_change_groups_of_four_and_files_stand_alone(rules):
    small, pods = BY_NAME[D3S_SMALL], BY_NAME["PODS"]
    row = attempt.idea_of([f"{rules}:tokens"])
    assert row.arguments == (*small.arguments, f"selector.tokens={rules}:tokens") and row.rate_of == D3S_SMALL
    row = attempt.idea_of(["configs/method/pods.yaml"])
    assert (row.arguments, row.rate_of) == (pods.arguments, "PODS")  # has been searched
    row = attempt.idea_of([f"schedule.n_shape={rules}:shape", "optim.learning_rate=3e-4"])
    assert (row.arguments[:1], row.rate_of, row.rate) == (BY_NAME["D3S"].arguments, None, 3e-4)
    assert attempt.idea_of([f"{rules}:tokens"], search=True).rate_of is None


def test_changed_file_is_another_idea(rules, tmp_path):
    first = attempt.idea_of([f"{rules}:tokens"])
    assert attempt.idea_of([f"{rules}:tokens"]) == first
    (tmp_path / f"{rules}.py").write_text(RULES + "\n")
    assert attempt.idea_of([f"{rules}:tokens"]).name != first.name


# --- running ----------------------------------------------------------------------------------------------------------


IDEA = replace(BY_NAME[D3S_SMALL], name="idea [1]", steps=48, every=12, bases=TASKS, rate=1e-4, rate_of=None)


class Rounds:
    """A campaign whose runs take ten minutes of a fake clock each."""

    def __init__(self, *_) -> None:
        self.records, self.now, self.deadlines = {}, 0.0, []

    def run(self, jobs: list[Job]) -> bool:
        self.deadlines.append(self.deadline)
        self.now += 600.0 * len(jobs)
        for job in jobs:
            fields = {"row": job.row.name, "base": job.base, "seed": job.seed, "part": job.part}
            arguments = " ".join(job.setting.overrides())
            self.records[job.identity()] = make_record(range(0, 49, 12), [[4]] * 5, arguments=arguments, **fields)
        return True


@pytest.mark.parametrize("minutes, rounds", [(30, 1), (121, 2), (179, 2), (181, 3)])
def test_rounds_end_in_time(monkeypatch, tmp_path, minutes, rounds):
    """A round is one seed of every arm on both tasks; one that would end too late does not start."""
    campaign = Rounds()
    monkeypatch.setattr(attempt, "Campaign", lambda *_: campaign)
    monkeypatch.setattr(attempt, "step_costs", lambda *_: {})
    monkeypatch.setattr(attempt.time, "monotonic", lambda: campaign.now)
    runs, _ = attempt.train(IDEA, tmp_path, 2, minutes, False)
    assert set(runs) == {*attempt.CONTROLS, IDEA.name}
    for of_base in runs.values():
        assert {base: len(of_one) for base, of_one in of_base.items()} == dict.fromkeys(TASKS, rounds)
    seeds = {base: [run.seed for run in of_one] for base, of_one in runs[IDEA.name].items()}
    assert seeds[TASKS[0]] == [3000 + i for i in range(rounds)] and not set(seeds[TASKS[0]]) & set(seeds[TASKS[1]])


def test_time_without_a_whole_round_is_said(monkeypatch, tmp_path):
    campaign = Rounds()
    monkeypatch.setattr(campaign, "run", lambda jobs: Rounds.run(campaign, jobs[:4]))  # the deadline stops the others
    monkeypatch.setattr(attempt, "Campaign", lambda *_: campaign)
    monkeypatch.setattr(attempt, "step_costs", lambda *_: {})
    monkeypatch.setattr(attempt.time, "monotonic", lambda: campaign.now)
    with pytest.raises(UserError, match="--minutes: 1 are too few for one run"):
        attempt.train(IDEA, tmp_path, 2, 1, False)


def test_runs_are_paired_at_their_present_setting():
    def record(row: str, seed: int, rate: float, part: str = "try"):
        arguments = " ".join(Setting(rate).overrides())
        return make_record([0, 48], [[1], [2]], row=row, seed=seed, part=part, arguments=arguments)

    jobs = {name: Job("try", Row(name, ()), TASKS[0], 0, Setting(rate)) for name, rate in (("a", 1e-4), ("b", 2e-4))}
    others = [record("a", 2, 1e-4), record("a", 3, 1e-4), record("b", 3, 1e-4), record("b", 2, 2e-4, "sweep")]
    pair = record("a", 1, 1e-4), record("b", 1, 2e-4)
    assert attempt.paired([*others, *pair], jobs) == {name: {TASKS[0]: [run]} for name, run in zip("ab", pair)}


def test_costs_leave_out_the_first_steps(monkeypatch):
    """The first steps of a process pay for what is set up once."""

    def measure(chunk):
        assert [(job.row.steps, job.row.every) for job, _ in chunk.jobs] == [(20, 4)] * 2
        for job, _ in chunk.jobs:
            for step in (4, 8, 20):
                yield job.row.name, 0, chunk.base, chunk.index, step, f"{100 + 0.5 * step}"

    without_base_models(monkeypatch)
    monkeypatch.setattr(attempt, "ProcessPoolExecutor", SerialPool)
    monkeypatch.setattr(attempt, "measure", measure)
    jobs = [Job("try", replace(IDEA, name=name), TASKS[0], 0, SETTING) for name in "ab"]
    assert attempt.step_costs(jobs, 2) == {base: {"a": 0.5, "b": 0.5} for base in TASKS}


# --- the answer -------------------------------------------------------------------------------------------------------


def runs_of(right: dict[str, list[int]]) -> attempt.Runs:
    """An arm's runs with these even counts of 8 right at the end, half of them in the middle."""
    return {
        name: {
            base: [make_record([0, 24, 48], [[0, 0], [n // 2] * 2, [n] * 2], row=name, part="try") for n in counts]
            for base in TASKS
        }
        for name, counts in right.items()
    }


def costs_of(**seconds: float) -> attempt.Costs:
    return {base: dict(zip((*attempt.CONTROLS, "idea"), seconds.values())) for base in TASKS}


EVEN = costs_of(grpo=0.5, d3s=0.5, idea=0.5)


def test_equal_seconds_are_those_of_the_cheapest():
    """The idea takes twice as long, so it is read after half of its steps."""
    costs = costs_of(grpo=0.5, d3s=0.4, idea=0.8)
    runs = runs_of({name: [4, 4] for name in (*attempt.CONTROLS, "idea")})
    levels = {
        (name, axis): interval(attempt.scores(of_base, costs, axis)).value
        for name, of_base in runs.items()
        for axis in attempt.EQUAL
    }
    assert [levels[name, "steps"] for name in runs] == [0.5] * 3
    assert [levels[name, "seconds"] for name in runs] == pytest.approx([0.4, 0.5, 0.25])


@pytest.mark.parametrize(
    "idea, said",
    [
        ([6, 6], "idea is better than GRPO, G = 4 in as many CPU seconds, by +25.0 (+25.0 to +25.0) points."),
        ([2, 2], "idea is worse than GRPO, G = 4 in as many CPU seconds, by -25.0"),
        ([6, 2], "Cannot tell whether idea is better or worse than GRPO, G = 4 in as many CPU seconds: the difference"),
        ([6], "Cannot tell yet: an interval needs two runs on each task"),
    ],
)
def test_answer_says_what_can_be_told(idea, said):
    runs = runs_of({name: [4] * len(idea) for name in attempt.CONTROLS} | {"idea": idea})
    text = attempt.answer("idea", "idea", runs, EVEN)
    assert said in text and ("Cannot" in said) == ("Cannot" in text)
    assert "| idea | " in text and "| 0.500 | 50 |" in text


def test_looks_share_one_error_rate(monkeypatch, tmp_path):
    """Without a difference, seeds are added until one is called or six are there: in at most 5 % of the commands."""
    monkeypatch.setattr(attempt, "detectable", lambda gaps: 0.0)
    assert sum(map(attempt.spent, range(1, 10_000))) * len(attempt.CONTROLS) <= attempt.ERROR
    random, called, commands = np.random.default_rng(0), 0, 100
    for _ in range(commands):
        shared, own = (0.05 * random.standard_normal((len(TASKS), 6, 1)) for _ in range(2))
        noise = 0.3 * random.standard_normal((2, len(TASKS), 6, 32))
        gaps = [own + shared + noise[0], own - shared + noise[1]]  # to the two controls
        said = (
            attempt.verdict("idea", "control", dict(zip(TASKS, gap[:, : look + 1])), "seconds", look)
            for look in range(1, 6)
            for gap in gaps
        )
        called += any("Cannot" not in text for text in said)
    assert called / commands <= attempt.ERROR + 0.01


def test_same_runs_are_the_same_look(tmp_path):
    path = tmp_path / "looks.json"
    counts = [[4, 6], [4, 6], [4, 6, 6], [4, 6], [4, 6, 6, 4]]
    looks = [attempt.count_look(path, runs_of({"idea": right})) for right in counts]
    assert looks == [1, 1, 2, 1, 3]


def test_time_covers_what_comes_before_and_after(monkeypatch, tmp_path):
    """A run starts only if one like those that were measured ends in time."""
    campaign = Rounds()
    monkeypatch.setattr(attempt, "Campaign", lambda *_: campaign)
    monkeypatch.setattr(attempt.time, "monotonic", lambda: campaign.now)
    monkeypatch.setattr(attempt, "step_costs", lambda *_: setattr(campaign, "now", 300.0) or {})
    attempt.train(IDEA, tmp_path, 2, 100, False)  # six runs on two processes took 5 minutes for 20 of 48 steps
    first = 300 * 48 / 20 * 2 / 6
    assert campaign.deadlines[0] == 6000 - first and campaign.deadlines[1:] == []
    spent = []
    monkeypatch.setattr(attempt, "train", lambda *given: spent.append(given[3]) or 1 / 0)
    monkeypatch.setattr(attempt, "idea_of", lambda *_: IDEA)
    with pytest.raises(ZeroDivisionError):
        attempt.main(["selector.tokens=entropy", "--minutes", "15"], spent_s=120)
    assert spent == [pytest.approx(15 - 2 - attempt.FINISH_S / 60)]


def test_overlays_keep_what_they_set(monkeypatch, tmp_path):
    """Also the learning rate, which else would be that of a row; what the command sets itself is refused."""
    monkeypatch.setattr(attempt, "ROOT", tmp_path)
    monkeypatch.setattr(attempt, "config_of", lambda arguments: load_config([tmp_path / "own.yaml"]))
    for text, rate in (("optim: {learning_rate: 3.0e-3}", 3e-3), ("optim: {max_grad_norm: 0.5}", None)):
        (tmp_path / "own.yaml").write_text(text)
        row = attempt.idea_of(["own.yaml"])
        assert row.rate == rate and (row.rate_of is None) == (rate is not None)
    for text, key in (("train: {steps: 9}", "train.steps"), ("eval: {n: 2}", "eval.n")):
        (tmp_path / "own.yaml").write_text(text)
        with pytest.raises(UserError, match=f"^own.yaml: {key} is set by research.try"):
            attempt.idea_of(["own.yaml"])


def test_command_writes_table_and_picture(monkeypatch, tmp_path, capsys):
    runs = runs_of({name: [4, 6] for name in attempt.CONTROLS})
    monkeypatch.chdir(tmp_path)  # and back again: the command changes the directory
    monkeypatch.setattr(attempt, "ROOT", tmp_path)
    monkeypatch.setattr(attempt, "code_hash", lambda: "abc")
    monkeypatch.setattr(attempt, "idea_of", lambda words, search: IDEA)
    given = runs | {IDEA.name: runs_of({IDEA.name: [6, 8]})[IDEA.name]}
    costs = {base: {name: 0.3 for name in given} for base in TASKS}
    monkeypatch.setattr(attempt, "train", lambda *_: (given, costs))
    (tmp_path / "runs" / "try" / "abc").mkdir(parents=True)
    attempt.main(["selector.tokens=entropy"])
    written = {path.suffix: path for path in (tmp_path / "runs" / "try" / "abc").iterdir()}
    assert written[".md"].read_text().strip() in capsys.readouterr().out
    assert written[".png"].read_bytes()[:4] == b"\x89PNG"
