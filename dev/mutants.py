"""Mutate functions of d3s and run the tests that concern them: which small faults would no test see?

python dev/mutants.py --sample 200 --output before.csv     (then change tests)
python dev/mutants.py --compare before.csv                 (runs the same mutants: exit code 1 if one now survives)
python dev/mutants.py --module d3s.loss d3s.advantage      (all mutants of two modules)

A mutant is named by module, function, kind and source text, so that it keeps its name where code moves inside a module.
Every mutant runs in a fork of this process, which has imported torch, pytest and the like once, and d3s never.
"""

import argparse
import ast
import contextlib
import copy
import csv
import importlib
import importlib.abc
import importlib.util
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WARM = ("pytest", "hypothesis", "numpy", "torch", "transformers", "accelerate", "datasets", "sympy", "pydantic", "yaml")
CORE = """advantage collector common loss tracking.metrics packing policy rules schedule selector
trainer actor.micro_batches config.checks config.fields config.load commands.command_line data.prompts
data.problems evaluation.estimators evaluation.intervals flops memory trials methods.bcpg_nsa
rewards.token_advantages verifier.equivalence verifier.extraction verifier.normalize verifier.relations
verifier.structure verifier.symbolic verifier.quantities verifier.identity programs.extraction sandbox.wire
sandbox.source"""
COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
COMPUTED |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.Add, ast.Pow: ast.Mult}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
SWAPPED |= {"argmin": "argmax", "argmax": "argmin", "floor": "ceil", "ceil": "floor", "zeros": "ones", "ones": "zeros"}


@dataclass(frozen=True)
class Mutant:
    """One fault of a module, the `place`-th of its faults."""

    name: str
    module: str
    place: int


def path_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def faults(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """Kinds of fault for one node, each with the node that replaces it (None: the statement is dropped)."""
    changed = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        changed.ops[0] = COMPARED[type(node.ops[0])]()
        yield "compare", changed
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in COMPUTED:
        changed.op = COMPUTED[type(node.op)]()
        yield "compute", changed
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and-or", changed
        yield "first-only", changed.values[0]
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        yield "constant", ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.UnaryOp):
        yield "operand-only", changed.operand
    elif isinstance(node, ast.Call):
        function = changed.func
        field = {ast.Name: "id", ast.Attribute: "attr"}.get(type(function))
        if field and getattr(function, field) in SWAPPED:
            setattr(function, field, SWAPPED[getattr(function, field)])
            yield "swap", changed
        if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
            yield "receiver-only", node.func.value
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield "negate", changed
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return-none", ast.Return(None)
    elif isinstance(node, ast.Raise | ast.Assign | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "drop", ast.Pass()


def put(node: ast.AST, field: str, place: int, child: ast.AST) -> None:
    """Set a child of a node, which may be one of a list."""
    if isinstance(items := getattr(node, field), list):
        items[place] = child
    else:
        setattr(node, field, child)


def mutants(module: str, wanted: int | None = None) -> tuple[list[Mutant], str]:
    """Every mutant of the functions of a module, and the text of the wanted one.

    Error texts, annotations and docstrings are left alone.
    """
    tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
    found, seen, texts = [], Counter(), [""]

    def visit(node: ast.AST, function: str) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            items = value if isinstance(value, list) else [value]
            for place, child in enumerate(items):
                if not isinstance(child, ast.AST):
                    continue
                inner = function
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    inner = f"{function}.{child.name}".lstrip(".")
                elif function:
                    text = " ".join(ast.unparse(child).split())[:60] if hasattr(child, "lineno") else ""
                    for kind, changed in faults(child):
                        key = f"{module}:{function}:{kind}:{text}"
                        seen[key] += 1
                        if len(found) == wanted:
                            put(node, field, place, changed)
                            texts.append(ast.unparse(ast.fix_missing_locations(tree)))
                            put(node, field, place, child)
                        found.append(Mutant(f"{key}#{seen[key]}", module, len(found)))
                if not isinstance(child, ast.Raise | ast.JoinedStr):
                    visit(child, inner)

    visit(tree, "")
    return found, texts[-1]


def tests_of(module: str) -> list[str]:
    """The files of tests/<package> that bear the module's name, or else all of them that import it."""
    *package, stem = module.split(".")[1:]
    files = sorted((ROOT / "tests").joinpath(*package).glob("test_*.py"))
    named = [str(path) for path in files if re.match(rf"test_{stem}(_|\.)", path.name)]
    return named or [str(path) for path in files if f"{module} " in path.read_text(encoding="utf-8")]


class Loader(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Import one module from the text of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name == self.mutant.module:
            return importlib.util.spec_from_file_location(name, path_of(name), loader=self)
        return None

    def get_filename(self, name: str) -> str:
        return str(path_of(name))

    def get_data(self, path: str) -> bytes:
        return mutants(self.mutant.module, self.mutant.place)[1].encode()


def run(mutant: Mutant | None, tests: list[str], limit_s: int) -> str:
    """Run tests in a fork, on the mutant or on the code as it is: "killed", "timeout" or "survived"."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        import pytest

        if mutant:
            sys.meta_path.insert(0, Loader(mutant))
        try:
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}", *tests])
        except BaseException:
            code = 1
        os._exit(int(code) != 0)
    deadline = time.monotonic() + limit_s
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    late = ended[0] == 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what a test has started
    if late:
        os.waitpid(child, 0)
        return "timeout"
    return "killed" if ended[1] else "survived"


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of the mutants at random: at first one of every function, then a second of each, and so on."""
    turns: Counter = Counter()
    ranks = {}
    for mutant in random.Random(seed).sample(mutants, len(mutants)):
        function = tuple(mutant.name.split(":")[:2])
        ranks[mutant] = (turns[function], len(ranks))
        turns[function] += 1
    chosen = set(sorted(mutants, key=ranks.__getitem__)[:count])
    return [mutant for mutant in mutants if mutant in chosen]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", nargs="+", help="default: the core")
    parser.add_argument("--sample", type=int, help="number of mutants, spread over the functions (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=120, metavar="SECONDS", help="time for one mutant")
    parser.add_argument("--compare", type=Path, metavar="CSV", help="run the mutants of an earlier table again")
    parser.add_argument("--output", type=Path, metavar="CSV", help="write the table here")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    before = {}
    if arguments.compare:
        with arguments.compare.open(encoding="utf-8") as file:
            before = {row["mutant"]: row["result"] for row in csv.DictReader(file)}
    modules = (
        sorted({name.partition(":")[0] for name in before})
        or arguments.module
        or [f"d3s.{name}" for name in CORE.split()]
    )
    chosen = [mutant for module in modules for mutant in mutants(module)[0]]
    if before:
        chosen = [mutant for mutant in chosen if mutant.name in before]
    if arguments.sample:
        chosen = sample(chosen, arguments.sample, arguments.seed)
    for name in WARM:
        importlib.import_module(name)
    tests = {module: tests_of(module) for module in sorted({mutant.module for mutant in chosen})}
    for module, files in tests.items():
        if not files or run(None, files, 10 * arguments.limit) != "survived":
            print(f"{module}: left out, it has no tests, or they fail on the code as it is", file=sys.stderr)
            tests[module] = []
    results = {}
    for mutant in chosen:
        if tests[mutant.module]:
            results[mutant.name] = run(mutant, tests[mutant.module], arguments.limit)
            print(f"{results[mutant.name]:9} {mutant.name}", flush=True)
    if arguments.output:
        with arguments.output.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("mutant", "result"), *results.items()])
    print(", ".join(f"{count} {result}" for result, count in sorted(Counter(results.values()).items())))
    lost = [name for name, result in results.items() if result == "survived" and before.get(name, result) != "survived"]
    for name in lost:
        print(f"no longer killed: {name}")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
