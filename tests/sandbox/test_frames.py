"""A fuzzer of messages to the tester: whatever the solver sends, plain values and held objects come of it."""

import contextlib
import json
import random
import socket
import types
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

from d3s.sandbox import tester as module
from d3s.sandbox.remote import COPIES, Held, Refused
from d3s.sandbox.wire import MAPPINGS, PLAIN, SEQUENCES, Broken, decode, encode

TEXTS = ["", "a", "0x1", "-0x7f", "zz", "nan", "inf", "1E9", "00ff", "ValueError", "type", "builtins.eval", "__class__"]
ATOMS = [None, True, False, 0, 1, -1, 2, 10**30, 2**70, 1.5, float("nan"), {}, {"a": 1}, [], *TEXTS]
TABLE = {"a": 1, 2: (1, 2)}
VALUES = [3, 1 << 60, 1.5, 2j, b"a", bytearray(b"a"), [1, 2], (1,), {1}, frozenset({1}), deque([1]), TABLE.keys()]
VALUES += [TABLE.values(), TABLE.items(), TABLE, OrderedDict(a=1), Counter("aab"), range(9), Decimal(1)]
VALUES += [Fraction(1, 2), timedelta(1, 2, 3), date(2000, 1, 2), datetime(2000, 1, 2, 3, tzinfo=UTC), time(3, fold=1)]
FORMS = [encode(value, print) for value in VALUES]
FORMS += [["h", 1, True], ["copy", 1, ["t", [1]]], ["copy", 2, ["l", [1]]], ["default", ["h", 1], ["d", [[1, 2]]]]]
FORMS += [["h", 1], ["iter", 2], ["x"], ["T", "builtins.type"], ["M", "builtins", "eval"], ["C", 1], ["m", "a"]]
ATOMS += [form[0] for form in FORMS if type(form) is list]  # tags
ALLOWED = PLAIN | {Held, types.GeneratorType, defaultdict, *COPIES.values()}


def random_form(rng: random.Random, form=None):
    """A form of FORMS of which each part may be another form or an atom, and some may be doubled or missing."""
    if form is None or rng.random() < 0.15:
        form = rng.choice(FORMS if rng.random() < 0.6 else ATOMS)
    if type(form) is not list:
        return form
    parts = [random_form(rng, part) for part in form]
    return rng.choice([*[parts] * 18, parts[1:], parts * 2])


def check_types(value) -> None:
    """All types in a value are exactly those of the list."""
    assert type(value) in ALLOWED, type(value)
    if type(value) in (*SEQUENCES, *MAPPINGS):
        for member in value.items() if type(value) in MAPPINGS else value:
            check_types(member)


def decoded(tester: module.Tester, form):
    """What the tester makes of a form; None if it raises."""
    with contextlib.suppress(Exception, Refused, Broken):
        return decode(json.loads(json.dumps(form)), tester._resolve)


def test_decoded_values_have_types_of_the_list():
    tester, rng = module.Tester(-1), random.Random(0)
    kinds: set = set()
    for _ in range(8_000):
        value = decoded(tester, random_form(rng))
        check_types(value)
        kinds.add(type(value))
    assert {Held, types.GeneratorType, defaultdict, COPIES[tuple], *PLAIN} <= kinds  # the fuzzer reaches all of them


MESSAGES = ["v", "e", "q", "x", "", None, ["v"], 5]
TESTS = ("assert f(1) == 1 and f(2) == 2 and f(3) == 3", "try: f(4).a == 5\nexcept Exception: pass\nassert f(1) == 2")


def random_message(rng: random.Random):
    name = rng.choice([*TEXTS, "KeyError", "StopIteration", "SystemExit", "BaseException", "object"])
    return rng.choice(
        [
            ["v", random_form(rng)],
            ["v", ["l", [random_form(rng), ["d", [[rng.choice(TEXTS), random_form(rng)]]]]]],
            ["e", name, [random_form(rng) for _ in range(rng.randint(0, 2))]],
            ["q", ["l", [rng.choice(ATOMS), random_form(rng), random_form(rng)]]],
            [rng.choice(MESSAGES), *(random_form(rng) for _ in range(rng.randint(0, 3)))],
            random_form(rng),
        ]
    )


def test_random_answers_pass_no_test():
    """A solver that says anything: no test that needs three right answers passes, nothing but a verdict comes out."""
    rng = random.Random(2)
    verdicts = set()
    for _ in range(100):
        ours, theirs = socket.socketpair()
        data = bytearray()
        for message in [["v", None], *(random_message(rng) for _ in range(8))]:
            text = json.dumps(message).encode()
            data += len(text).to_bytes(4, "big") + text
        if rng.random() < 0.2:
            data[rng.randrange(len(data))] = rng.randrange(256)
        with ours, theirs:
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            tester = module.Tester(ours.fileno())
            tester.define(TESTS)
            for number, test in enumerate(TESTS):
                verdict = tester.run(test, number)
                assert verdict in (module.FAILED, module.REFUSED, module.CRASHED, module.MEMORY), (data, verdict)
                verdicts.add(verdict)
    assert verdicts >= {module.FAILED, module.CRASHED}
