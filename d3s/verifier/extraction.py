r"""Extract the final answer of a response.

strict   the last `\boxed{...}` or `\fbox{...}` after the last thought, and nothing else. For training rewards.
         A box that its sentence denies ("not \boxed{5}", "\boxed{5} is wrong") is none, nor are others of that content.
lenient  without any box: `<answer>...</answer>`, else `#### ...`, else "answer is/: ...", else the last formula or
         number. For evaluating models whose prompt does not ask for a box.

Responses are hostile: every scan is linear, and only 20,000 characters on either side of the last box, or the last
20,000 of a response without one, are read by more than a search for a fixed text.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
from collections import deque
from collections.abc import Iterator
from typing import Literal

from d3s.responses import after_thoughts

Extraction = Literal["strict", "lenient"]
Box = tuple[int, int, str | None]  # start, end, content; None where it never closes

MAX_RESPONSE = 1_000_000  # characters; only the end of a longer response is searched
MAX_ANSWER = 20_000  # characters; a longer box is not an answer
CONTEXT = 200  # characters before and after a box that may join it with an alternative
MAX_JOINT = 8  # boxes in one statement; more are spam, not an answer
MAX_BOXES = 64  # at the end of a response; earlier ones are not read

_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*\n?[ \t]*(\{?)|\\.|[{}]", re.DOTALL)
# the argument of a box without braces: a number, a command or a single letter; else `\boxed` is a word of the sentence
_BARE = re.compile(
    r"\s*((?=[^\s$]{0,200}[0-9]|\\[A-Za-z])(?![A-Za-z]{2,20}[^A-Za-z=<>]{0,20}\s)[^\s$]{1,200}|[A-Za-z](?![\w'’])(?!\s+[a-z]{2}))"
)
# Words of the instruction to box the answer: a box that holds nothing else restates it, and is none.
_PLACEHOLDER_WORDS = frozenset(
    (
        "answer answers result solution response value number choice option letter expression content final your the "
        "my an a correct numerical numeric exact insert put write enter here goes to problem question in of this"
    ).split()
)
_KINDS = frozenset("integer fraction decimal final ans blank xxx simplified simplest form as or •".split())
_PLACEHOLDER_NOUN = re.compile(r"answer|result|solution|response|value|number|choice|option|letter|expression|content")
_UNPRINTED = re.compile(
    r"\\(?:text[a-z]*|math[a-z]*|mbox|emph|q?quad|[lc]?dots[a-z]?|square|Box|underline|_|[,;:! ])(?![A-Za-z])"
    r"|(?<!\\)[{}]|[<\[(](?=\s*[a-z])|(?<=[a-z])\s*[>\])]|[\s$.…_?~`'\"□]|\*\*",
    re.IGNORECASE,
)
_END_OF_TURN = re.compile(r"<\|[a-z_]{2,20}\|>")
# Words that join alternatives ("5 or maybe 6") or restate ("so the answer is"). With nothing else between them, two
# boxes are one statement.
_JOINING = frozenset(
    (
        "and or either also maybe possibly perhaps alternatively it its is the a an answer answers are could can "
        "may might be other another one solution solutions value option choice both thus hence so therefore vs versus "
        "if else otherwise first second guess text"
    ).split()
)
_WORDS = re.compile(r"[^\W_]+|=", re.UNICODE)
_NUMBER = r"[-+]?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+|[eE][-+]?\d+)?(?:\\?%)?"
_OR_AFTER = re.compile(
    r"[\s$.,;:)\]}*\\]{0,12}(?:or|either)\s++(?:(?:maybe|possibly|perhaps|else|is|it|could|be|also)\s++){0,4}"
    r"(?:\\\(|\$)?\s*+("
    + _NUMBER
    + r"(?!\d|\^(?!\{?\\circ))|\\frac\{[^{}]{1,20}\}\{[^{}]{1,20}\})(\s*(?:degrees?\b|°|\^\{?\\circ))?",
    re.ASCII,
)
_OR_BEFORE = re.compile(
    r"(?:^|[\s$(])("
    + _NUMBER
    + r")(?:\s*+(?:\\\)|\$|(?=,)))?+,?\s++or\s++(?:(?:maybe|possibly)\s++)?[\s$\\(\[*]{0,8}$",
    re.ASCII,
)
_FILLER = r"(?:(?:be|equal|equals|to|the|a|an|exactly|simply|necessarily|answer|correct|final|value|is|it|n)\s++){0,5}"
_DENIED_BEFORE = re.compile(
    rf"(?:\b(?:not|never|cannot|nor|neither|isn['’]t|wasn['’]t|can['’]t|won['’]t)[\s*_]++{_FILLER}|(?:\\neq?|\\not=|≠)\s*+)"
    r"[\s$\\(\[*:]*+$",
    re.IGNORECASE | re.ASCII,
)
_VERB = r"(?:is|was|are|would|could|cannot|can|must|might|may|be|clearly|obviously|also|actually|simply)"
# What denies an answer speaks of its truth ("is not right", "cannot be the answer"). Other statements about it ("is not
# an integer", "cannot be reduced") leave it, and so does "it is not possible" after a box, which speaks of the problem.
_DENIED_AFTER = re.compile(
    r"[\s$\\)\]*,_]{0,12}(?:(?:which|that|but)\s+){0,2}(?P<it>(?:it|this)\s+)?(?:\((?=[a-z ]{5,15}\)))?(?:"
    r"(?:that['’]s\s+)?(?:wrong|incorrect|not\s+correct)\b(?!\s+to\b)|"
    rf"(?:{_VERB}\s+){{1,5}}(?:wrong|incorrect|false|invalid|impossible|mistaken|erroneous|absurd|rejected|excluded)\b"
    rf"|(?:{_VERB}\s+){{1,5}}(?:the|an?)\s+(?:wrong|incorrect|false|invalid|mistaken|erroneous)\s+(?:answer|solution|result|guess)\b"
    rf"|(?:(?:{_VERB}\s+){{1,4}}not|(?:is|was|are|ca|could|would)n['’]t|cannot)(?:[.;!?](?:\s|$)|\s+"
    r"(?:(?:be|quite|actually|really|necessarily|even|fully|always|possibly)\s+){0,3}+(?:"
    r"(?:correct|right|true|valid|accurate|acceptable|allowed|admissible|consistent|it)\b(?!\s+to\b)"
    r"|(?(it)(?!)|(?:possible|feasible)\b)"
    r"|(?:the|a|an|my|our|your)\s+(?:[a-z]+\s+){0,2}(?:answer|solution|guess)\b|what\s|be[.,;!?]))"
    r"|(?:does\s+not|doesn['’]t|fails\s+to)\s+(?:work|satisfy|fit|hold)\b)",
    re.IGNORECASE | re.ASCII,
)
_IS_NO = re.compile(r"\s*+(?:\\text[a-z]*+\s*+)?\{?+\s*+(?:no|false|f)[.\s]*+\}?+[.\s]*+", re.IGNORECASE)
_IS_WRONG = re.compile(r"wrong|incorrect|mistaken|erroneous|answer|solution|guess", re.IGNORECASE)
_LISTING = re.compile(r"[\s$\\()]*(?:,\s*and|,|and)[\s$\\(]*(?:[a-z]\s*=\s*)?")
_ALTERNATIVES = re.compile(r"[\s$.,;:()\[\]*\\]*+(?:(?:or|nor|and|either|neither)[\s$.,;:()\[\]*\\]*+)?")


def extract(response: str, extraction: Extraction = "strict") -> tuple[str, ...] | None:
    """Return the texts that a response states as its answer. None without one, or with an unclosed last box.

    Almost always one text. Several texts are boxes of one statement; the response is right only if all of them are.
    """
    text = after_thoughts(response)
    if text is None:
        return None
    text = text[-MAX_RESPONSE:]
    last_box = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if last_box >= 0:
        near = text[max(0, last_box - MAX_ANSWER) : last_box + MAX_ANSWER + CONTEXT]
        boxes = [box for box in find_boxes(near) if not _is_placeholder(box[2])]
        boxes = [box for box in boxes if not _names_a_kind(box[2])] or boxes
        if boxes:
            return _from_boxes(near, boxes)
    return _from_prose(text) if extraction == "lenient" else None


def extract_answer(response: str, extraction: Extraction = "strict") -> str | None:
    """Return the text of the final answer (the last box), or None. For majority votes and for display."""
    texts = extract(response, extraction)
    return texts[0] if texts else None


def find_boxes(text: str) -> list[Box]:
    r"""Return all outermost boxes as (start, end, content); content is None when the box never closes. One pass."""
    boxes: list[Box] = []
    opened: list[tuple[int, int] | None] = []  # per open brace: (start, content start) if it opens a box
    open_boxes = 0
    bare_end = 0
    first = re.search(r"\\(?:boxed|fbox)", text)
    for match in _BOX_OR_BRACE.finditer(text, first.start()) if first else ():
        token = match.group()
        if token == "{":
            opened.append(None)
        elif token == "}":
            box = opened.pop() if opened else None
            if box:
                open_boxes -= 1
                if not open_boxes:
                    boxes.append((box[0], match.end(), text[box[1] : match.start()]))
        elif match.group(1) is not None and match.start() >= bare_end:
            if match.group(1):
                opened.append((match.start(), match.end()))
                open_boxes += 1
            elif not open_boxes and (bare := _BARE.match(text, match.end())):
                bare_end = bare.end()
                boxes.append((match.start(), bare_end, bare.group(1).rstrip(".,;:")))
    unclosed = next((box for box in opened if box), None)
    if unclosed:
        boxes.append((unclosed[0], len(text), None))  # boxes within it are not outermost, so none was added
    return boxes


def _is_placeholder(content: str | None) -> bool:
    """Does a box hold nothing, dots, or the words of an instruction (`your answer`)?"""
    if content is None or len(content) > 60:
        return False
    printed = _UNPRINTED.sub(" ", content).lower()
    words = printed.split()
    return not words or (all(w in _PLACEHOLDER_WORDS for w in words) and _PLACEHOLDER_NOUN.search(printed) is not None)


def _names_a_kind(content: str | None) -> bool:
    """Does a box only name a kind of answer (`integer`, `ans`)? Beside other boxes it is a placeholder."""
    words = _UNPRINTED.sub(" ", content or "").lower().replace("/", " ").split()
    return any(word in _KINDS for word in words) and all(word in _KINDS | _PLACEHOLDER_WORDS for word in words)


def _from_boxes(text: str, boxes: list[Box]) -> tuple[str, ...] | None:
    boxes = _without_denied(text, boxes[-MAX_BOXES:])
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
    gaps = [text[end:start] for (_, end, _), (start, _, _) in zip(boxes[last:], boxes[last + 1 :])]
    if len(joint) > 1 and all(map(_LISTING.fullmatch, gaps)):
        joint = [", ".join(reversed(joint))]  # `\boxed{1} and \boxed{2}` are a list
    if alternative := _OR_AFTER.match(text, boxes[-1][1]):
        joint.append(_in_unit_of(boxes[-1][2], *alternative.groups()))
    if alternative := _OR_BEFORE.search(text[max(0, boxes[last][0] - 60) : boxes[last][0]]):
        joint.append(alternative.group(1))
    if any(len(content) > MAX_ANSWER or not content.strip() for content in joint):
        return None
    return tuple(joint)


def _in_unit_of(content: str, alternative: str, degrees: str | None) -> str:
    r"""Write the alternative to an angle in its unit: `\frac{\pi}{3}` or 60 degrees, `60^\circ` or `\frac{\pi}{3}`."""
    if degrees and "\\pi" in content:
        return rf"\frac{{{alternative}\pi}}{{180}}"
    if "\\circ" in content or "°" in content:
        return alternative.replace("\\pi", "(180)")
    return alternative


def _without_denied(text: str, boxes: list[Box]) -> list[Box]:
    """Remove the boxes that their sentence denies, and the earlier boxes of the same content.

    The boxes after a denied one in a list ("not A or B") are denied with it.
    """
    kept: list[Box] = []
    end, is_denied = 0, False
    for start, stop, content in boxes:
        gap = text[max(end, start - 80) : start]
        in_list = is_denied and len(gap) < 60 and _ALTERNATIVES.fullmatch(gap)
        after = _DENIED_AFTER.match(text, stop, stop + 60)
        if after and _IS_NO.fullmatch(content or "") and not _IS_WRONG.search(after.group()):
            after = None  # `\boxed{\text{No}}, it is not true`
        is_denied = bool(in_list or _DENIED_BEFORE.search(gap) or after)
        if is_denied and content is not None:
            kept = [box for box in kept if box[2] != content]
        else:
            kept.append((start, stop, content))
        end = stop
    return kept


def _is_joining(gap: str) -> bool:
    """Does the text between two boxes hold joining words only, so that both boxes belong to one statement?"""
    if len(gap) > 160:
        return False
    return all(word in _JOINING or len(word) == 1 for word in _WORDS.findall(gap.lower()))


# --------------------------------------------------------------------------------------------- lenient, without a box

_ANSWER_TAG = re.compile(r"<answer>((?:[^<]|<(?!/?answer>))*+)</answer>", re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]+)")
_MARKER = re.compile(
    r"\banswer(?:\s*\*\*)?\s*(?:is|are|was|equals|should be|would be|must be|=|:)(?:\s*\*\*)?\s*(?:equal to\s+)?:?",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"[*\s]*(?:not|never|neither|unlikely|wrong|incorrect)\b", re.IGNORECASE)
_REJECTED = re.compile(
    r"[,(]?\s?\b(?:not|cannot|rather than|instead of|(?:ca|is|was|are|does|do|wo|could|would)n['’]t)\b.*",
    re.DOTALL | re.IGNORECASE,
)
_OR = re.compile(r"(?<![\\A-Za-z{])or\b")
_FORMULA = re.compile(  # delimiters of one kind do not nest, so that an open one is not followed to the end each time
    r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\(((?:[^\\]|\\(?![()]))++)\\\)|\\\[((?:[^\\]|\\(?![\[\]]))++)\\\]", re.DOTALL
)
_CHOICE = re.compile(r"\(([A-J])\)")
_BARE_CHOICE = re.compile(r"(?<![A-Za-z\\'’$])([A-H])(?![A-Za-z'’$])")
_POWER = r"(?:\s?[x×*]\s?10)?(?:\^(?:\{[-+]?\d+\}|[-+]?\d+))?"
_MINUS = str.maketrans("−–－", "---")
_PLAIN = re.compile(r"(?<![A-Za-z_\d.^])" + _NUMBER + _POWER + r"(?!\d)", re.ASCII)
_RELATION = re.compile(r"(?<![\w$\\])[A-Za-z]\s*(?:<=|>=|!=|[<>≤≥≠])\s*[-+]?\d+(?:\.\d+)?(?!\d)")
_SENTENCE_END = re.compile(r"\n|\.(?:\s|$)|<\|")


def _from_prose(text: str) -> tuple[str, ...] | None:
    text = text[-20_000:].translate(_MINUS)
    turn = _END_OF_TURN.search(text)
    if turn and text[: turn.start()].strip():
        text = text[: turn.start()]
    for pattern in (_ANSWER_TAG, _HASHES):
        if marked := pattern.findall(text):
            return _clean(marked[-1:])
    if marker := _last(_MARKER.finditer(text)):
        rest = text[marker.end() :].strip()
        if _NEGATION.match(rest):
            return None
        stop = _SENTENCE_END.search(rest)
        sentence = _REJECTED.sub("", (rest[: stop.start()] if stop else rest)[:500])
        return _clean([_answer_in(part) or part for part in _OR.split(sentence)])
    return _clean([_answer_in(text) or ""])


def _answer_in(text: str) -> str | None:
    """Return the last formula or last number of a sentence, whichever comes later; else a choice letter."""
    formula = _last(_FORMULA.finditer(text))
    tail_start = formula.end() if formula else 0
    number = _last(_PLAIN.finditer(text, tail_start))
    if formula and not number:
        return next(group for group in formula.groups() if group is not None)
    if relation := _RELATION.search(text, tail_start):
        return relation.group()
    if number:
        return _number_or_formula(text, number)
    choices = _CHOICE.findall(text) or _BARE_CHOICE.findall(text)[:1]
    return choices[-1] if choices else None


def _last(matches: Iterator[re.Match[str]]) -> re.Match[str] | None:
    last = deque(matches, maxlen=1)
    return last[0] if last else None


def _number_or_formula(text: str, number: re.Match[str]) -> str:
    """Return the full text when it is a formula without delimiters (`x = 4`), and only the number inside prose."""
    stripped = text.strip().rstrip(".")
    return number.group() if re.search(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", "", stripped)) else stripped


def _clean(texts: list[str]) -> tuple[str, ...] | None:
    texts = [text.strip().strip("*").strip() for text in texts]
    return tuple(texts) if all(text and len(text) <= MAX_ANSWER for text in texts) else None
