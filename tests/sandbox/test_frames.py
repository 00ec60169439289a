"""A grammar fuzzer of messages to the tester: whatever the solver sends, plain values and held objects come of it."""

import contextlib
import json
import random
import socket
import types

from d3s.sandbox import tester as module
from d3s.sandbox.remote import Held, Refused
from d3s.sandbox.wire import FROM_MAPPING, FROM_SCALAR, FROM_SEQUENCE, PLAIN, Broken, decode

TAGS = [*FROM_SEQUENCE, *FROM_MAPPING, *FROM_SCALAR, "h", "iter", "x", "T", "M", "C", "m", "k", "builtins.type", ""]
TEXTS = ["", "a", "0x1", "-0x7f", "zz", "nan", "inf", "1E9", "00ff", "ValueError", "type", "builtins.eval", "__class__"]
ATOMS = [None, True, False, 0, 1, -1, 2, 10**30, 2**70, 1.5, float("nan"), *TEXTS]
ALLOWED = PLAIN | {Held, types.GeneratorType}
PARTS = 3  # most parts of a random form


def random_form(rng: random.Random, depth: int = 0):
    """A form of the grammar, in half of the cases with parts of the number and kind that its tag expects."""
    kind = rng.random()
    if depth > 3 or kind < 0.25:
        return rng.choice(ATOMS)
    parts = [random_form(rng, depth + 1) for _ in range(rng.randint(0, PARTS))]
    if kind < 0.35:
        return rng.choice([parts, dict(zip("abc", parts))])
    tag = rng.choice(TAGS)
    if kind < 0.6:
        return [tag, *parts]
    if tag in FROM_SEQUENCE:
        return [tag, [[p, p] for p in parts] if tag == "vi" else parts]
    if tag in FROM_MAPPING:
        return [tag, [[rng.choice(ATOMS), part] for part in parts]]
    numbers = [rng.randint(-3, 12) for _ in range(8)]
    arguments = {"i": ["0x1f"], "g": ["0x1p-3"], "c": ["0x1p1", "nan"], "b": ["00ff"], "ba": ["00"]}
    arguments |= {"r": ["0x0", "0x9", "0x2"]}
    arguments |= {"F": ["0x1", "0x2"], "D": ["1.50"], "td": numbers[:3], "da": [2000, 1, 2], "h": numbers[:1], "x": []}
    arguments |= {"dt": [[2000, 1, 2, 3, 4, 5, 6, 0], [0, 60, 0]], "ti": [[3, 4, 5, 6, 1], None], "iter": numbers[:1]}
    return [tag, *arguments.get(tag, parts)]


def check_types(value) -> None:
    """All types in a value are exactly those of the list."""
    assert type(value) in ALLOWED, type(value)
    if type(value) is dict or type(value).__name__ in ("OrderedDict", "Counter"):
        for pair in value.items():
            check_types(pair)
    elif type(value) in (list, tuple, set, frozenset) or type(value).__name__ in (
        "deque", "dict_keys", "dict_values", "dict_items"
    ):  # fmt: skip
        for member in value:
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
    assert {Held, types.GeneratorType, *PLAIN} == kinds  # the fuzzer reaches all of them


MESSAGES = ["v", "e", "q", "x", "", None, ["v"], 5]
TESTS = ("assert f(1) == 1 and f(2) == 2 and f(3) == 3", "try: f(4).a == 5\nexcept Exception: pass\nassert f(1) == 2")


def random_message(rng: random.Random):
    name = rng.choice([*TEXTS, "KeyError", "StopIteration", "SystemExit", "BaseException", "object"])
    return rng.choice(
        [
            ["v", random_form(rng)],
            ["v", ["l", [random_form(rng), ["d", [[rng.choice(ATOMS), random_form(rng)]]]]]],
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
