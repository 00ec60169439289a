r"""Which part of a response is its final answer.

strict   the last `\boxed{...}` or `\fbox{...}` after the last `</think>`; nothing else counts. For training rewards.
lenient  without any box: `<answer>...</answer>`, `#### ...`, "answer is/: ...", the last formula, the last number, in
this
         order. For evaluating models that were never told to box.

Every scan here is linear in the length of the response: responses are hostile and may hold thousands of braces.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Extraction = Literal["strict", "lenient"]

MAX_RESPONSE = 1_000_000  # characters; only the end of a longer response is looked at
MAX_ANSWER = 20_000  # characters; a longer box is not an answer
MAX_JOINT = 8  # boxes stated together; more than this is spam, not an answer

_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*\n?[ \t]*(\{?)|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"\s*([^\s$]{1,200})")
_END_OF_TURN = re.compile(r"<\|[a-z_]{2,20}\|>")
# Words that join alternatives ("5 or maybe 6") or restate ("so the answer is"); a gap of only these makes two boxes
# one claim.
_JOINING = frozenset(
    (
        "and or either also maybe possibly perhaps alternatively it its is the a an answer answers are could can "
        "may might be other another one solution solutions value option choice both thus hence so therefore"
    ).split()
)
_WORDS = re.compile(r"[^\W_]+|=", re.UNICODE)
_NUMBER = r"[-+]?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+|[eE][-+]?\d+)?%?"
_OR_AFTER = re.compile(
    r"[\s$.,;:)\]}*\\]{0,12}(?:or|either)\s+(?:(?:maybe|possibly|perhaps|else|is|it|could|be|also)\s+){0,4}"
    r"(?:\\\(|\$)?\s*(" + _NUMBER + r"|\\frac\{[^{}]{1,20}\}\{[^{}]{1,20}\})",
    re.ASCII,
)
_OR_BEFORE = re.compile(
    r"(?:^|[\s$(])(" + _NUMBER + r")\s*(?:\\\)|\$)?,?\s+or\s+(?:maybe\s+|possibly\s+)?[\s$\\(\[*]{0,8}$", re.ASCII
)


@dataclass(frozen=True)
class Extracted:
    """The texts that the response puts forward as its answer, and how they were found ("box", "marker", "text").

    Almost always one text. Several mean that boxes were stated together; the response is right only if all are.
    """

    texts: tuple[str, ...]
    source: str


def extract(response: str, extraction: Extraction = "strict") -> Extracted | None:
    """The final answer of a response, or None when it states none (or an empty or unclosed box)."""
    text = response[-MAX_RESPONSE:]
    think = text.rfind("</think>")
    if think >= 0:
        text = text[think + len("</think>") :]
    if "\\boxed" in text or "\\fbox" in text:
        return _from_boxes(text)
    return _from_prose(text) if extraction == "lenient" else None


def find_boxes(text: str) -> list[tuple[int, int, str | None]]:
    r"""All outermost boxes as (start, end, content); content is None when the box never closes. One pass, no
    recursion."""
    boxes: list[tuple[int, int, str | None]] = []
    opened: list[tuple[int, int] | None] = []  # one entry per open brace; (start, content start) where it opens a box
    inside = 0
    bare_end = 0
    first = re.search(r"\\(?:boxed|fbox)", text)
    for match in _BOX_OR_BRACE.finditer(text, first.start()) if first else ():
        token = match.group()
        if token == "{":
            opened.append(None)
        elif token == "}":
            box = opened.pop() if opened else None
            if box:
                inside -= 1
                if not inside:
                    boxes.append((box[0], match.end(), text[box[1] : match.start()]))
        elif match.group(1) is not None and match.start() >= bare_end:
            if match.group(1):
                opened.append((match.start(), match.end()))
                inside += 1
            elif not inside and (bare := _BARE.match(text, match.end())):
                bare_end = bare.end()
                boxes.append((match.start(), bare_end, bare.group(1).rstrip(".,;:")))
    unclosed = next((box for box in opened if box), None)
    if unclosed:
        boxes = [box for box in boxes if box[0] < unclosed[0]]
        boxes.append((unclosed[0], len(text), None))
    return boxes


def _from_boxes(text: str) -> Extracted | None:
    boxes = find_boxes(text)
    if not boxes or boxes[-1][2] is None:
        return None
    joint = [boxes[-1][2]]
    last = len(boxes) - 1
    while last and _is_joining(text[boxes[last - 1][1] : boxes[last][0]]):
        last -= 1
        content = boxes[last][2]
        if content is not None and content not in joint:
            joint.append(content)
        if len(joint) > MAX_JOINT:
            return None
    if alternative := _OR_AFTER.match(text, boxes[-1][1]):
        joint.append(alternative.group(1))
    if alternative := _OR_BEFORE.search(text[max(0, boxes[last][0] - 60) : boxes[last][0]]):
        joint.append(alternative.group(1))
    if any(len(content) > MAX_ANSWER or not content.strip() for content in joint):
        return None
    return Extracted(tuple(joint), "box")


def _is_joining(gap: str) -> bool:
    """True when the text between two boxes adds nothing but joining words: both boxes then belong to one
    statement."""
    if len(gap) > 160:
        return False
    return all(word in _JOINING or len(word) == 1 for word in _WORDS.findall(gap.lower()))


# ---------------------------------------------------------------------------------------------- without a box (lenient)

_ANSWER_TAG = re.compile(r"<answer>(.{0,4000}?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]+)")
_MARKER = re.compile(
    r"\banswer(?:\s*\*\*)?\s*(?:is|are|was|equals|should be|would be|must be|=|:)(?:\s*\*\*)?\s*(?:equal to\s+)?:?",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_CHOICE = re.compile(r"\(([A-J])\)")
_BARE_CHOICE = re.compile(r"(?<![A-Za-z\\'’$])([A-H])(?![A-Za-z'’$])")
_PLAIN = re.compile(r"(?<![A-Za-z_\d.])" + _NUMBER + r"(?!\d)", re.ASCII)
_RELATION = re.compile(r"(?<![\w$\\])[A-Za-z]\s*(?:<=|>=|!=|[<>≤≥≠])\s*[-+]?\d+(?:\.\d+)?(?!\d)")
_SENTENCE_END = re.compile(r"\n|\.(?:\s|$)|<\|")


def _from_prose(text: str) -> Extracted | None:
    text = text[-20_000:]
    turn = _END_OF_TURN.search(text)
    if turn and text[: turn.start()].strip():
        text = text[: turn.start()]
    for pattern in (_ANSWER_TAG, _HASHES):
        if found := pattern.findall(text):
            return _made(found[-1], "marker")
    markers = list(_MARKER.finditer(text))
    if markers:
        rest = text[markers[-1].end() :].strip()
        stop = _SENTENCE_END.search(rest)
        claim = (rest[: stop.start()] if stop else rest)[:500]
        return _made(_claimed(claim) or claim, "marker")
    return _made(_claimed(text) or "", "text")


def _claimed(text: str) -> str | None:
    """The answer inside a sentence: its last formula or last number, whichever comes later; else a choice letter."""
    formula = _last(_FORMULA.finditer(text))
    tail_start = formula.end() if formula else 0
    number = _last(_PLAIN.finditer(text, tail_start))
    if formula and not number:
        return next(group for group in formula.groups() if group is not None)
    if relation := _RELATION.search(text, tail_start):
        return relation.group()
    if number:
        return _whole_plain(text, number)
    choices = _CHOICE.findall(text) or _BARE_CHOICE.findall(text)[:1]
    return choices[-1] if choices else None


def _last(matches: Iterator[re.Match[str]]) -> re.Match[str] | None:
    last = deque(matches, maxlen=1)
    return last[0] if last else None


def _whole_plain(text: str, number: re.Match[str]) -> str:
    """An undelimited text that is nothing but a formula (`x = 4`) counts whole, one inside prose only by its
    number."""
    stripped = text.strip().rstrip(".")
    return number.group() if re.search(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", "", stripped)) else stripped


def _made(text: str, source: str) -> Extracted | None:
    text = text.strip().strip("*").strip()
    return Extracted((text,), source) if text and len(text) <= MAX_ANSWER else None


def extract_answer(response: str, extraction: Extraction = "strict") -> str | None:
    """The text of the response's final answer (the last box), or None. For counting majorities and for display."""
    found = extract(response, extraction)
    return found.texts[0] if found else None
