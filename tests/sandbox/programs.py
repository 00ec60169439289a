"""Read a table of programs and their tests from text: `=== name`, the program, and `---` before each test."""


def parse_programs(text: str, prelude: str = "") -> dict[str, tuple[str, list[str]]]:
    """Return {name: (prelude and program, tests)}."""
    table = {}
    for entry in text.strip().removeprefix("=== ").split("\n=== "):
        name, _, body = entry.partition("\n")
        program, *tests = body.strip("\n").split("\n---\n")
        assert tests and name not in table, name
        table[name] = prelude + program, tests
    return table
