"""Reward functions and classes of a user: arguments, errors, hanging calls and late results, against given values."""

import json
import re
import sys
import threading
import time
from concurrent.futures import Future

import pytest

from d3s.common import UserError, printable
from d3s.config.schema import RewardConfig
from d3s.reward import REWARD_RULES
from d3s.rewards import judge as module
from d3s.rewards.judge import Judge
from d3s.rewards.scored import Scored
from tests.helpers.configs import ROOT
from tests.helpers.fake_server import answering_server

HERE = f"{__name__}:"
ROW = {"problem": "what is 3+4?", "level": 2}
RELEASED = threading.Event()  # hanging calls return once it is set
CLOSED, CALLS = [], []  # objects that were closed; what `waits` did


def two(response, answer):
    return 1.0


def with_default(response, answer, extraction="strict"):
    return float(extraction == "strict")


def with_row(response, answer, *, row):
    row["level"] += 1  # of a copy: the next call reads 2 again
    return row["level"]


def with_all(**arguments):
    return arguments["row"]["level"]


def with_option(row, *, factor):
    return factor * row["level"]


def of_group(responses, row):
    responses.reverse()  # of a copy
    return [Scored(len(response) + row["level"], {"place": i}) for i, response in enumerate(responses)]


def wrong_names(text, gold):
    return 1.0


def returns_text(response, answer):
    return "1.0"


def raises(response, answer):
    raise ValueError("no\x1b[31m reward\nfor this")


def exits(response, answer):
    sys.exit(3)


def slow(response, answer):
    time.sleep(0.2)
    return 1


def waits(response, answer):
    CALLS.append(f"{response} begins")
    RELEASED.wait(5)
    CALLS.append(f"{response} ends")
    return 1


def hangs(response, answer):
    if "hang" in response:
        RELEASED.wait(5)
    return 0.5


class Doubles:
    """A class with its own thread for every response."""

    def __init__(self, workers, *, more=0):
        self.factor, self.calls = workers + more, 0

    def submit(self, response, answer, row):
        self.calls += 1
        future = Future()
        threading.Timer(0.01, lambda: future.set_result(self.factor * row["level"])).start()
        return future

    def score_group(self, responses, answer, row):
        return row["totals"]

    def take_stats(self):
        return {"calls": self.calls}

    def close(self):
        CLOSED.append(self)


class Stuck(Doubles):
    def submit(self, response, answer):
        return Future()


class Cancels(Doubles):
    def submit(self, response, answer):
        future = Future()
        threading.Timer(0.01, future.cancel).start()
        return future


class NoFuture(Doubles):
    def submit(self, response, answer):
        return 1.0


class Broken(Doubles):
    def __init__(self):
        raise OSError("no model")


class OfGroups:
    """A class may have one method."""

    def score_group(self, responses, answer):
        return [len(response) for response in responses] if answer else None


@pytest.fixture
def make():
    """make(name, option=value, ...): a judge, which is closed after the test."""
    judges = []

    def make(name, rule=(), **options):
        value = {"rule": HERE + name, **dict(rule)} if rule else HERE + name
        judges.append(Judge(REWARD_RULES, value, RewardConfig(workers=3, **options)))
        return judges[-1]

    yield make
    RELEASED.clear()
    for judge in judges:
        judge.close()


@pytest.mark.parametrize(
    ("name", "rule", "value"),
    [
        ("two", {}, 1),
        ("with_default", {}, 1),
        ("with_default", {"extraction": "lenient"}, 0),
        ("with_row", {}, 3),
        ("with_all", {}, 2),
        ("with_option", {"factor": 5}, 10),
        ("Doubles", {}, 6),
        ("Doubles", {"more": 1}, 8),
        ("OfGroups", {}, 1),
    ],
)
def test_rewards_receive_what_they_take(make, name, rule, value):
    judge = make(name, rule)
    assert [judge.submit("r", "7", ROW).result(5) for _ in range(2)] == [Scored(value)] * 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wrong_names", "needs 'text', which is no argument .* the arguments are response, answer, row"),
        ("with_option", "needs 'factor', .*; set it by {rule: .*with_option, factor: VALUE}"),
        ("Broken", r"raised OSError: no model \(test_judge.py, line \d+\)$"),
        ("threading:Event", "has no method submit or score_group"),
        ("asyncio:sleep", "is an async function, expected a plain function"),
        ("trl:asyncio:sleep", "is an async function, expected a plain function"),
        ("verl:threading:Event", "is a class, expected a plain function"),
        ("builtins:max", "has no readable signature"),
        ("json:decoder", "expected module:function"),
    ],
)
def test_impossible_rewards_are_refused(name, problem):
    value = name if ":" in name else HERE + name
    with pytest.raises(UserError, match=f"^reward.functions: .*{problem}"):
        Judge(REWARD_RULES, value, RewardConfig())


def test_functions_of_groups_see_all_responses(make):
    """Alone, a response is a group of one. The values are those of a function that may change its list."""
    judge = make("of_group")
    assert judge.score_group(["a", "bbb"], "7", ROW) == [Scored(5, {"place": 0}), Scored(3, {"place": 1})]
    assert judge.submit("aa", "7", ROW).result(5) == Scored(4, {"place": 0})
    assert not judge.alone and make("OfGroups").score_group(["a", "bb"], "7", ROW) == [Scored(1), Scored(2)]
    with pytest.raises(UserError, match="OfGroups returned None, expected a list of 1 numbers on problem"):
        make("OfGroups").score_group(["a"], "", ROW)


def test_a_function_is_called_once_at_a_time_in_order(make):
    """In a thread of its own, so that a slow call does not hold up the caller."""
    CALLS.clear()
    judge = make("waits")
    futures = [judge.submit(response, "a") for response in "xyz"]
    assert not futures[0].done()
    RELEASED.set()
    assert [f.result(5).total for f in futures] == [1, 1, 1]
    assert CALLS == ["x begins", "x ends", "y begins", "y ends", "z begins", "z ends"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", r" raised ValueError: no␛\[31m reward for this \(test_judge.py, line \d+\) on problem"),
        ("exits", r" raised SystemExit: 3 \(test_judge.py, line \d+\) on problem"),
        ("returns_text", " returned '1.0', expected a finite number .* on problem"),
        ("NoFuture", ".submit returned a float, expected a Future on problem"),
        ("Cancels", " raised CancelledError on problem"),
    ],
)
def test_failures_name_function_and_problem_or_count_as_zero(make, name, reason, capsys):
    """One sentence, in printable characters; the texts are cut to 60 characters. Afterwards nothing is called."""
    judge, response = make(name), "the\x1b[2J response " + "x" * 500
    error = judge.submit(response, "7", ROW).exception(5)
    message = str(error)
    assert re.match(rf"reward.functions: {HERE}{name}{reason}", message) and len(message) < 500
    assert isinstance(error, UserError) and '"what is 3+4?"' in message and 'answer "7"' in message
    assert message.isprintable() and f'"{printable(response)[:59]}…"' in message
    assert judge.submit("another", "a").exception(0) is error
    zero = make(name, errors="zero")
    assert [zero.submit("r", "a", ROW).result(5) for _ in range(3)] == [Scored(0.0)] * 3
    assert zero.take_stats()["failures"] == 3 and zero.take_stats()["failures"] == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "counts as 0" in warning and '"what is 3+4?"' in warning


@pytest.mark.parametrize("name", ["hangs", "Stuck"])
def test_hanging_calls_end_at_the_limit(make, name):
    started = time.monotonic()
    with pytest.raises(UserError, match=r"did not return within 0.24 s \(12 x reward.timeout_s\) on problem .*3\+4"):
        make(name, timeout_s=0.02).submit("hang", "7", ROW).result(5)
    assert time.monotonic() - started < 1.2


def test_calls_after_a_hanging_one_are_scored(make):
    """The limit is per call: those that wait in the queue do not count as hanging. The late result is dropped."""
    judge = make("hangs", errors="zero", timeout_s=0.025)
    futures = [judge.submit(response, "a") for response in ("hang", "b", "hang", "d")]
    assert [f.result(5).total for f in futures] == [0, 0.5, 0, 0.5]
    assert judge.take_stats() == {"failures": 2}
    RELEASED.set()
    time.sleep(0.05)
    assert futures[0].result().total == 0 and judge.submit("e", "a").result(5).total == 0.5


def test_classes_report_counts_and_are_closed(make):
    CLOSED.clear()
    judge = make("Doubles")
    judge.submit("r", "a", ROW).result(5)
    assert judge.take_stats() == {"calls": 1}
    judge.close()
    assert len(CLOSED) == 1
    assert make("OfGroups").take_stats() == {}


def test_slow_functions_are_named_while_they_run(make, monkeypatch, capsys):
    """Each warning comes after twice the time of the one before, and none after the function has returned."""
    monkeypatch.setattr(module, "SLOW_S", 0.02)
    assert make("slow").submit("r", "7", ROW).result(5).total == 1.0
    time.sleep(0.05)
    warnings = capsys.readouterr().err.splitlines()
    time.sleep(0.3)
    assert not capsys.readouterr().err
    assert warnings and all(f"{HERE}slow has not returned for" in line for line in warnings)
    assert '"what is 3+4?"' in warnings[0] and len(warnings) <= 4


def test_impossible_values_of_groups_are_named(make):
    judge = make("Doubles")
    assert judge.score_group(["r", "s"], "7", {"totals": [1, 0.5]}) == [Scored(1.0), Scored(0.5)]
    assert judge.score_group(["r", "s"], "7", {"totals": None}) is None is make("two").score_group(["r"], "7", {})
    for totals in ([1.0], 3, [1.0, float("nan")]):
        with pytest.raises(UserError, match=r'Doubles returned .*, expected .* on answer "7"'):
            make("Doubles").score_group(["r", "s"], "7", {"totals": totals})
    zero = make("Doubles", errors="zero")
    assert zero.score_group(["r", "s"], "7", {"totals": 3}) == [Scored(0.0)] * 2
    assert zero.take_stats()["failures"] == 2


GRADES = {"7": 0.7, " 10\n": 1.0, "100": 0.0, "I say 9": 0.0}


def test_documented_judge_reads_a_grade(tmp_path, monkeypatch):
    """The example of docs/rewards.md as it stands, and a server that replies with what the response says."""

    def reply(method, path, body):
        [message] = json.loads(body)["messages"]
        [text] = re.findall(r"1\+2=.*<(.*)>", message["content"], re.S)
        return 200, {"choices": [{"message": {"content": text}}]}

    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/rewards.md").read_text(), re.M | re.S)
    (tmp_path / "documented_judge.py").write_text(next(block for block in blocks if "ModelJudge" in block))
    monkeypatch.syspath_prepend(tmp_path)
    with answering_server({"/v1/chat/completions": reply}) as url:
        monkeypatch.setattr("documented_judge.ModelJudge.url", f"{url}/v1/chat/completions")
        judge = Judge(REWARD_RULES, "documented_judge:ModelJudge", RewardConfig())
        graded = {text: judge.submit(f"<{text}>", "3", {"problem": "1+2="}) for text in GRADES}
        assert {text: future.result(30).total for text, future in graded.items()} == GRADES
    with pytest.raises(UserError, match="ModelJudge raised"):
        judge.submit("r", "3", {"problem": "p"}).result(30)
    judge.close()
