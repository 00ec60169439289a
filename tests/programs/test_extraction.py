"""Programs in responses: every usual shape around every program, against the values of the program's function."""

from itertools import permutations, product

import pytest

from d3s.programs.extraction import complete_prompt, defines, extract_program
from tests.sandbox.programs import fenced

# Programs of which each defines double(x); wrong ones define it as x.
PROGRAMS = {
    "plain": "def double(x):\n    return 2 * x\n",
    "import": "import math\nfrom typing import List\n\ndef double(x: int) -> int:\n    return 2 * math.floor(x)\n",
    "constant": "FACTOR = 2\n\n\ndef double(x):\n    '''Twice.\n\n    >>> double(2)\n    '''\n    return FACTOR * x\n",
    "fence in a docstring": 'def double(x):\n    """Twice.\n\n    ```python\n    double(2)\n    ```\n    """\n'
    "    return 2 * x\n",
    "helper": "def twice(x):\n    return x + x\n\n\ndef double(x):\n    # the helper\n    return twice(x)\n",
    "decorated": "from functools import cache\n\n@cache\ndef double(x):\n    if x:\n        return 2 * x\n",
    "lambda": "double = lambda x: 2 * x\n",
    "class": "class Pair:\n    def __init__(self, x):\n        self.x = x\ndef double(x):\n    return 2 * Pair(x).x\n",
    "split": "def double(\n    x,\n):\n    return 2 * x\n",
}
DRAFT = "def double(x):\n    return x\n"


def indented(text: str, by: str = "    ") -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


SHAPES = {
    "bare": lambda p: p,
    "block": fenced,
    "block without a language": lambda p: fenced(p, ""),
    "block with attributes": lambda p: fenced(p, "python title=x"),
    "long fence": lambda p: fenced(p, "python", "````"),
    "prose around a block": lambda p: f"Here is the function.\n\n{fenced(p)}\nIt doubles x, so double(3) is 6.\n",
    "output after it": lambda p: fenced(p) + "\nIt prints\n\n" + fenced("6\n", ""),
    "use after it": lambda p: fenced(p) + "\nUse it:\n\n" + fenced("result = double(3)\nprint(result, input())\n"),
    "test after it": lambda p: fenced(p) + fenced("from solution import double\n\nassert double(2) == 4\n"),
    "draft before it": lambda p: f"First:\n\n{fenced(DRAFT)}\nThat is wrong.\n\n{fenced(p)}",
    "draft in thought": lambda p: f"<think>\nSay {fenced(DRAFT)} or so.\n</think>\n{fenced(p)}",
    "thought, then bare": lambda p: f"<think>{DRAFT}</think>\n{p}",
    "open fence": lambda p: f"Sure!\n```python\n{p}",
    "closed fence only": lambda p: f"{p}```\nThis works.\n",
    "open fence before another": lambda p: f"```python\n{DRAFT}\nNo:\n```python\n{p}```\n",
    "fence at the end of a line": lambda p: f"```python\n{p.rstrip()}```\nDone.\n",
    "indented block": lambda p: f"1. Write it:\n\n{indented(fenced(p), '   ')}\n2. Run it.\n",
    "indented program in a block": lambda p: fenced(indented(p)),
    "carriage returns": lambda p: fenced(p).replace("\n", "\r\n"),
    "markers of MBPP": lambda p: f"[BEGIN]\n{p}[DONE]\nMore text.\n",
    "markers of Llama": lambda p: f"[PYTHON]\n{p}[/PYTHON]\n[TESTS]\nassert double(1) == 3\n[/TESTS]\n",
    "done marker only": lambda p: f"{p}[DONE]\n[BEGIN]\nx = 1\n",
    "prose before it": lambda p: f"Here is the code:\n\n{p}",
    "prose after it": lambda p: f"{p}\nThis function doubles x: 2 * x = x + x.\n\nIf you like it, tell me: thanks!\n",
    "prose around it": lambda p: f"The answer is as follows.\n\n{p}\nExplanation:\n- it takes x\n1. it returns 2 * x\n",
}


def value(program: str) -> int:
    scope: dict = {"input": None}
    exec(program, scope)  # written by this test
    return scope["double"](3)


@pytest.mark.parametrize("shape", SHAPES)
def test_programs_are_found_in_all_shapes(shape):
    for name, program in PROGRAMS.items():
        assert value(extract_program(SHAPES[shape](program), {"double"})) == 6, name


def test_shapes_within_shapes_keep_the_last_program():
    """A wrong program in any shape, then prose, then the right one in any shape with a fence."""
    fences = [name for name in SHAPES if "```" in SHAPES[name]("") and "only" not in name and "open" not in name]
    for first, second in product(fences, fences):
        response = SHAPES[first](DRAFT) + "\nNo, that is not it.\n\n" + SHAPES[second](PROGRAMS["plain"])
        assert value(extract_program(response, {"double"})) == 6, (first, second)


def test_docstring_that_never_ends_hides_no_block():
    response = f'```python\n{DRAFT}    """Twice\n```\nNo:\n{fenced(PROGRAMS["plain"])}'
    assert value(extract_program(response, {"double"})) == 6


def test_blocks_that_belong_together_are_joined():
    half, double = "def half(x):\n    return math.floor(x / 2)\n", "def double(x):\n    return 4 * half(x + 1)\n"
    uses = fenced("half = 3\nprint(double(half), 1 / 0)\n")
    for blocks in permutations(["import math\n", half, double]):
        program = extract_program("Text.\n".join([*map(fenced, blocks), uses]), {"double"})
        assert all(block in program for block in blocks) and "1 / 0" not in program
    program = extract_program(fenced(half) + fenced(double) + fenced("6\n", ""), {"half", "double"})
    assert defines(program, "half") and defines(program, "double") and "6" not in program


@pytest.mark.parametrize(
    ("response", "program"),
    [
        (fenced("print(1)\n") + fenced("1\n", ""), "print(1)\n"),
        (fenced("print(1)\n", "") + fenced("1\n", ""), "print(1)\n"),
        (fenced("print(1)\n") + fenced("print(2)\n"), "print(2)\n"),
        (fenced("f = int\n") + fenced("print(f())\n") + fenced("1\n", ""), "f = int\n\nprint(f())\n"),
        (fenced("x\n", "text"), fenced("x\n", "text")),
        ("print(1)", "print(1)"),
        ("", ""),
    ],
)
def test_scripts_are_the_last_block_that_prints(response, program):
    assert extract_program(response) == program


PROMPT = 'def double(x):\n    """Twice x."""\n'
BODY = "    if x > 5:\n        return x + x\n    return 2 * x\n"
COMPLETIONS = {
    "body": BODY,
    "next function": BODY + "\n\ndef other(:\n",
    "next statement": BODY + "\nprint(double(3)",
    "prose": BODY + "\nThis function returns twice its argument, x = 3 gives 6.\n",
    "closing fence": BODY + "```\n\nDone.\n",
    "stripped": BODY.strip(),
    "without indentation": "if x > 5:\n    return x + x\nreturn 2 * x\n",
    "without indentation, then a call": "y = 2\nreturn y * x\n\nprint(double(3))\n",
    "prose before it": "Here is the rest:\n" + BODY,
    "block": fenced(BODY),
    "block without indentation": fenced("return 2 * x\n"),
}


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completions_continue_the_prompt(name):
    program = extract_program(COMPLETIONS[name], {"double"})
    assert not defines(program, "double")
    assert value(complete_prompt(PROMPT, program)) == 6
