"""Read tables of programs from text."""


def parse_programs(text: str, prelude: str = "") -> dict[str, tuple[str, list[str]]]:
    """Return {name: (prelude and program, tests)}; `=== name`, the program, and `---` before each test."""
    table = {}
    for entry in text.strip().removeprefix("=== ").split("\n=== "):
        name, _, body = entry.partition("\n")
        program, *tests = body.strip("\n").split("\n---\n")
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
