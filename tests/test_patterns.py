"""Every regular expression of the package takes time linear in its text: pumped against what a quadratic one needs."""

import ast
import contextlib
import functools
import importlib
import random
import re
import signal
import time
from collections import deque
from collections.abc import Iterator
from itertools import product
from statistics import median
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from d3s.verifier.verifier import QUICK_LENGTH
from tests.helpers.configs import ROOT

LONG = 10_000  # characters of a response; a quadratic pattern needs 0.03 to 1 s, a linear one below 5 ms
SHORT = "equivalence identity latex normalize quantities relations structure symbolic units words".split()  # noqa: SIM905
# These modules of the verifier see pairs up to QUICK_LENGTH; longer ones only in a killable worker.
TRUSTED = ("d3s.report.panels",)  # reads drawings of this program alone
METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
ALPHABET = ("a", "A", "1", " ", "\n", "\\", "{", "}", "(", "$", ".", ",", "*", "`", "<", r"\(", r"\text{", "1,", "a ")
NO_MATCH = ("", "_\x00!\n")


class Slow(Exception):
    """The budget is spent."""


@functools.cache
def budget_s() -> float:
    """CPU seconds per text: a quarter of what a quadratic pattern needs here; linear ones need a twentieth."""
    spent = []
    for _ in range(5):
        start = time.process_time()
        re.search(r"x\s*y?\s*z", "x" + " " * LONG)
        spent.append(time.process_time() - start)
    return median(spent) / 4


def modules() -> Iterator[tuple[ModuleType, str]]:
    """The modules of the package that use `re`, with their source."""
    for path in sorted(ROOT.glob("d3s/**/*.py")):
        source = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if re.search(r"^(?:import re|from re import .*)$", source, re.MULTILINE) and name not in TRUSTED:
            yield importlib.import_module(name), source


def compiled(value: object, depth: int = 4) -> Iterator[re.Pattern]:
    """All patterns in a value: a pattern, a container or a class."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from compiled(item, depth - 1)
    elif depth and isinstance(value, dict):
        yield from compiled([*value, *value.values()], depth)
    elif depth and isinstance(value, type) and value.__module__.startswith("d3s"):
        yield from compiled(list(vars(value).values()), depth - 1)


def inline(call: ast.Call, names: dict[str, Any]) -> re.Pattern | None:
    """The pattern of `re.search(r"...", text)`; what only the function knows in it becomes an x."""

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.fix_missing_locations(ast.Expression(node)), "pattern", "eval"), names)

    class Known(ast.NodeTransformer):
        def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
            try:
                value(node.value)
            except NameError:
                return ast.Constant("x")
            return node

    with contextlib.suppress(NameError):  # of a pattern by name, which is in `compiled`
        flags = next((value(keyword.value) for keyword in call.keywords if keyword.arg == "flags"), 0)
        return re.compile(value(Known().visit(call.args[0])), flags)
    return None


def uses() -> dict[tuple[re.Pattern, str], str]:
    """Every (pattern, method) of the package with the place of one use; `search` where no method is named."""
    found: dict[tuple[re.Pattern, str], str] = {}
    for module, source in modules():
        names = vars(module)
        by_name: dict[str, set[str]] = {}
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner, method = node.func.value, node.func.attr
            if not isinstance(owner, ast.Name) or method not in METHODS:
                continue
            if owner.id != "re":
                by_name.setdefault(owner.id, set()).add(method)
            elif (pattern := inline(node, names)) is not None:
                found[pattern, method] = f"{module.__name__}:{node.lineno}"
        for name, value in names.items():
            for pattern in compiled(value):
                methods = by_name.get(name, set()) if isinstance(value, re.Pattern) else {"search"}
                found |= {(pattern, method): f"{module.__name__}.{name}" for method in methods}
    return found


def matches(pattern: re.Pattern) -> list[str]:
    """Some short texts that a pattern matches."""
    texts: list[str] = []

    @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.from_regex(pattern, alphabet="".join(sorted({*map(chr, range(1, 127)), "\u4e00", *pattern.pattern}))))
    def draw(text: str) -> None:
        texts.append(text[:60])

    with contextlib.suppress(Unsatisfiable):  # every match ends in a condition that random texts do not meet
        draw()
    return list(dict.fromkeys(texts))


def texts_for(pattern: re.Pattern, length: int) -> list[str]:
    """Pumped texts: parts of matches many times after what stands before them, then a text that cannot match."""
    generator = random.Random(0)
    cuts = [
        (text[:start], text[start:end])
        for text in matches(pattern)
        for start in range(len(text))
        for end in range(start + 1, min(start + 9, len(text)) + 1)
    ]
    starts = [start for start, _ in generator.sample(cuts, min(6, len(cuts)))]
    pumped = [*product(["", *starts], ALPHABET), *generator.sample(cuts, min(60, len(cuts)))]
    texts = (start + piece * (length // len(piece)) for start, piece in pumped)
    return list(dict.fromkeys(text + end for text in texts for end in NO_MATCH))


def run(pattern: re.Pattern, method: str, text: str) -> float:
    """CPU seconds of one use of a pattern, at most five budgets."""

    def stop(*_: object) -> None:
        raise Slow

    previous = signal.signal(signal.SIGVTALRM, stop)
    start = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 5 * budget_s())
        result = getattr(pattern, method)(*([""] if method.startswith("sub") else []), text)
        deque(result if method == "finditer" else (), maxlen=0)
    except Slow:
        return 5 * budget_s()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    return time.process_time() - start


def slow_text(pattern: re.Pattern, method: str, length: int) -> str | None:
    """A text of this length on which a pattern spends its budget four times in a row."""
    for text in texts_for(pattern, length):
        if all(run(pattern, method, text) > budget_s() for _ in range(4)):
            return text
    return None


def length_at(place: str) -> int:
    """The longest text that a pattern gets in a process that nobody kills."""
    module = place.removeprefix("d3s.verifier.").partition(".")[0].partition(":")[0]
    return QUICK_LENGTH if module in SHORT else LONG


def test_patterns_are_linear_on_pumped_texts() -> None:
    slow = {}
    for (pattern, method), place in uses().items():
        if (text := slow_text(pattern, method, length_at(place))) is not None:
            slow[f"{place} {method}"] = f"{text[:40]!r} ... {text[-10:]!r}"
    assert slow == {}


def test_pumped_texts_find_backtracking() -> None:
    """Patterns of each degree, and the same without backtracking."""
    for slow, quick in (
        (r"[0-9] ((?:[a-z]+\.?\s*){1,5})$", r"[0-9] ((?:[a-z]++\.?\s*+){1,5}+)$"),
        (r"^(a+)+b", r"^(a++)++b"),
        (r"x\s*y?\s*z", r"x\s*+(?:y\s*+)?z"),
        (r"^```(\w*)[^\n]*\n", r"^```(\w*+)[^\n]*+\n"),
    ):
        assert slow_text(re.compile(slow), "search", LONG) is not None, slow
        assert slow_text(re.compile(quick), "search", LONG) is None, quick
