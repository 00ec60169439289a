"""Read tables of programs from text, and put a program in a block."""

import re


def parse_programs(text: str, prelude: str = "") -> dict[str, tuple[str, list[str]]]:
    """Return {name: (prelude and program, tests)}; `=== name`, the program, and `--- ` before each test."""
    table = {}
    for entry in text.strip().removeprefix("=== ").split("\n=== "):
        name, _, body = entry.partition("\n")
        program, *tests = re.split(r"\n---\s", body.strip("\n"))
        assert tests and name not in table, name
        table[name] = prelude + program, tests
    return table


def parse_lines(text: str) -> dict[str, str]:
    """Return {name: body of a function}; `name: line`, and `~` before each further line."""
    table: dict[str, str] = {}
    for line in text.strip().splitlines():
        if line.startswith("~"):
            table[name] += f"    {line[1:]}\n"  # noqa: F821 (a first line has a name)
        else:
            name, _, body = line.partition(": ")
            assert body and name not in table, name
            table[name] = f"    {body}\n"
    return table


def fenced(program: str, language: str = "python", mark: str = "```") -> str:
    return f"{mark}{language}\n{program}{mark}\n"
