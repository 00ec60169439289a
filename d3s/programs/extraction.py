"""The program in a response: its code blocks, or the code between prose. Linear time for any text."""

import re
from collections.abc import Iterable

from d3s.responses import after_thoughts

MAX_ANSWER = 50_000  # characters at the end of a response, after its thinking; earlier ones are not read
LANGUAGES = ("python", "py", "python3", "py3")
MARKERS = {"[PYTHON]": "```python", "[BEGIN]": "```python", "[/PYTHON]": "```", "[DONE]": "```"}
WRITES = ("print", "stdout", "write")  # in a script, not in its output
FENCE = re.compile(r"^(?P<before>.*?)(?P<mark>`{3,}+|~{3,}+)(?P<label>.*)$", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*+")
MARGIN = re.compile(r"^\S", re.MULTILINE)
# Names that lines at the margin define: functions and classes, variables, what an import names.
DEFINITION = re.compile(
    r"^(?:(?:async[ \t]++)?(?:def|class)[ \t]++(\w++)"
    r"|([A-Za-z_]\w*+)[ \t]*+(?::[^=\n]*+)?=(?!=)"
    r"|(?:import|from)[ \t](.*+))",
    re.MULTILINE,
)
LOCAL = re.compile(r"^[ \t]++([A-Za-z_]\w*+)[ \t]*+=(?!=)", re.MULTILINE)  # variables of a function
# What follows a completed function: the stop sequences of HumanEval, Chen et al., arXiv 2107.03374, section 3.2.
NEXT_STATEMENT = re.compile(r"\n(?=class|def|#|if __name__|print)")
# A line that may belong to a program: blank, indented, a docstring, or at the margin one that looks like code.
LINE = (
    r"(?:[ \t]*+\n|[ \t][^\n]*+\n"
    r"|(?>\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)''')[^\n]*+\n"
    r"|(?:async[ \t]++)?(?:def|class)[ \t]++\w[^\n]*+\n"
    r"|(?:elif|else|except|finally|for|if|match|try|while|with|async)\b[^:\n]*+:[^\n]*+\n"
    r"|(?:[@#)\]}]|(?:assert|break|continue|del|from|global|import|nonlocal|pass|raise|return|yield)\b)[^\n]*+\n"
    r"|[A-Za-z_][\w.]*+\([^\n]*+(?<=[(),\[{])\n"
    r"|[A-Za-z_][\w.]*+(?:\[[^]\n]*+\])*+(?:[ \t]*+,[ \t]*+\w[\w.]*+)*+[ \t]*+"
    r"(?::[^=\n]*+)?(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)[^\n]*+\n)"
)
CODE = re.compile(f"{LINE}*+")
PROSE = re.compile(rf"(?:(?!{LINE})[^\n]*+\n)*+")


def extract_program(response: str, names: Iterable[str] = ()) -> str:
    """Return the program in a response.

    Of its blocks (``` or ~~~, the last one may be open; [PYTHON] or [BEGIN] to [DONE]) the last that defines one of the
    names, with the blocks that define what it uses. Where no block does, the lines of code around the first definition
    of a name. Without names, the last block, of those that print if any does. Else the last block, or the response.
    """
    names = set(names)
    answer = (after_thoughts(response) or "")[-MAX_ANSWER:]
    blocks = _blocks(answer, names)
    defined = [_defined(text) for _, text in blocks]
    defining = [i for i, (made, _, variables) in enumerate(defined) if names & (made | variables)]
    defining = defining or [i for i, (_, imported, _) in enumerate(defined) if names & imported]
    if not defining and (code := _code_between_prose(answer, names)) is not None:
        return code
    if not blocks:
        return answer
    last = [i for i, (language, _) in enumerate(blocks) if language] or [*range(len(blocks))]
    writing = [i for i in last if not names and any(word in blocks[i][1] for word in WRITES)]
    return _join(blocks, (defining or writing or last)[-1], names)


def complete_prompt(prompt: str, body: str) -> str:
    """Return a prompt that ends in a function's head and docstring, with its body, which ends before the next line at
    the margin. A body without indentation gets it; one whose leading space was stripped, its first line only.
    """
    body = body[PROSE.match(body + "\n").end() :].lstrip("\n")
    if body[:1].strip():
        first, _, rest = body.partition("\n")
        second = rest.lstrip("\n")
        if len(second) - len(second.lstrip(" ")) > (4 if first.rstrip().endswith(":") else 0):
            return complete_prompt(prompt, f"    {body}")
        code = NEXT_STATEMENT.split(body[: CODE.match(body + "\n").end()])[0]
        return prompt + "".join(f"    {line}" for line in code.splitlines(keepends=True))
    end = MARGIN.search(body)
    return prompt + (body[: end.start()] if end else body)


def defines(program: str, name: str) -> bool:
    """Whether a line at the margin defines a name."""
    return name in set().union(*_defined(program))


def _blocks(response: str, names: set[str], docstrings: bool = True) -> list[tuple[str, str]]:
    """The Python blocks of a text: language, "" if none is named, and content.

    A fence in a docstring is text of the program, unless the docstring never ends.
    """
    for marker, fence in MARKERS.items():
        response = response.replace(marker, f"\n{fence}\n")
    blocks: list[tuple[str, str]] = []
    mark, language, indent, start, read = "", "", "", 0, 0
    quotes = 0  # triple ones of the open block, an odd number of which holds a docstring open
    for fence in FENCE.finditer(response):
        quotes += sum(response.count(quote, read, fence.start("mark")) for quote in ('"""', "'''"))
        read = fence.end()
        if docstrings and mark and quotes % 2:
            continue
        before, label = fence["before"], fence["label"].strip()
        named = (label.split() or [""])[0].strip("{}.").lower()
        opens = "`" not in label and (not before.strip() or named in LANGUAGES)
        if mark and fence["mark"].startswith(mark) and (not label or (opens and named)):
            blocks.append((language, _dedented(response[start : fence.start()] + before.rstrip(), indent, names)))
            mark = ""
            if not label:
                continue
        if not mark and opens:
            mark, language, start, quotes = fence["mark"], named, fence.end() + 1, 0
            indent = "" if before.strip() else before
    quotes += sum(response.count(quote, read) for quote in ('"""', "'''"))
    if docstrings and mark and quotes % 2:
        return _blocks(response, names, docstrings=False)
    if mark and not (blocks or language) and CODE.fullmatch(head := response[: response.rindex(mark)]) and head.strip():
        blocks.append(("", head))  # a closing fence, whose opening one is in the prompt
    elif mark:
        blocks.append((language, _dedented(response[start:], indent, names)))
    return [(language, text) for language, text in blocks if language in ("", *LANGUAGES) and text.strip()]


def _dedented(content: str, indent: str, names: set[str]) -> str:
    """The lines without the indentation of their fence; and without that of the first, unless it is a function's."""
    text = _without(content, indent)
    body = text.lstrip("\n")
    flat = _without(text, body[: len(body) - len(body.lstrip(" \t"))])
    return flat if not names or names & set().union(*_defined(flat)) else text


def _without(text: str, indent: str) -> str:
    return ("\n" + text).replace("\n" + indent, "\n").strip("\n") + "\n"


def _defined(program: str) -> tuple[set[str], set[str], set[str]]:
    """The names that lines at the margin define: functions and classes, imports, and variables."""
    matches = DEFINITION.findall(program)
    imported = {word for _, _, names in matches for word in WORD.findall(names)}
    made, variables = ({match[i] for match in matches if match[i]} for i in (0, 1))
    return made, imported, variables


def _join(blocks: list[tuple[str, str]], last: int, names: set[str]) -> str:
    """A block with what it and the names need of the others."""
    defined = [_defined(text) for _, text in blocks]
    sources: dict[str, int] = {}  # the block of each name: the last one before, else the first one after
    for i in [*reversed(range(last + 1, len(blocks))), *range(last + 1)]:
        made, imported, variables = defined[i]
        usable = made | imported | (set() if i > last else variables)  # variables of a later block are of a use
        sources |= dict.fromkeys(usable, i)
    kept, wanted = {last}, names | _used(blocks[last][1])
    while wanted:
        if (source := sources.get(wanted.pop(), last)) not in kept:
            kept.add(source)
            wanted |= _used(blocks[source][1])
    return "\n".join(blocks[i][1] for i in sorted(kept))


def _used(program: str) -> set[str]:
    return set(WORD.findall(program)) - set(LOCAL.findall(program))


def _code_between_prose(response: str, names: set[str]) -> str | None:
    """The lines of code around the first definition of a name, without prose; None if there is none."""
    matches = DEFINITION.finditer(response)
    place = next((match.start() for match in matches if match[1] in names or match[2] in names), None)
    if place is None:
        return None
    text, start, end = response + "\n", 0, 0
    while end <= place:
        start = PROSE.match(text, end).end()
        end = CODE.match(text, start).end()
    return text[MARGIN.search(text, start).start() : end]
