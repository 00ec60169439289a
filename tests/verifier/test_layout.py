r"""The layout that models write around answers (`\,`, `~`, `\displaystyle`, `$`) against the verdict without it."""

import re
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verifier.competition_answers import competition_answers
from benchmarks.verifier.generated_answers import generated_answers
from tests.helpers.verdicts import are_equal

CASES = [
    (case.gold, case.answer)
    for case in generated_answers(seed=17, draws=1)
    if not re.search(r"[*_`]i|color\[", case.answer)  # Markdown, which nothing wraps
] + [(gold, answer) for gold, answer, _ in competition_answers()]
SPACES = [
    r"\,", r"\;", r"\:", r"\!", r"\>", r"\ ", r"\/", "~", "{}", " ", "\n", r"\quad ", r"\qquad ", r"\thinspace ",
    r"\enspace ", r"\hspace{1em}", r"\hskip 1em ", r"\,\,", r"~\; ",
]  # fmt: skip
BEFORE = [*SPACES, r"\displaystyle ", r"\textstyle\,", r"\large ", "=", ": "]
AFTER = [*SPACES, ".", r"\,.", r".\,", r"\\", r"~.", r"\hfill "]
AROUND = [
    ("$", "$"), ("$$", "$$"), (r"\(", r"\)"), (r"\[ ", r" \]"), ("{", "}"), ("{ ", r"\,}"), (r"\displaystyle{", "}"),
    (r"\left.", r"\right."), (r"\text{$", "$}"), (r"\mbox{ $", "$ }"), (r"\ensuremath{", "}"),
    (r"$\displaystyle ", "$."), (r"\begin{equation*}", r"\end{equation*}"), (r"\begin{aligned} ", r" \end{aligned}"),
    (r"\begin{array}{c}", r"\end{array}"), (r"\color{blue}{", "}"), (r"\boldsymbol{", "}"),
]  # fmt: skip
TEXT_OR_ROWS = re.compile(r"text|math|mbox|\\rm|\\\\|begin|[A-Za-z]{4}|\\\$|mod|[*`]|[∎■]|\\(?:square|black|qed|check)")


def spaced(text: str, space: str) -> str:
    """Put a space command on both sides of signs and brackets, and after commas between items."""
    text = re.sub(r"\\left|\\right", "", text)
    before = "" if space == "{}" else space
    text = re.sub(r"(?<![e\\{^_(,\[])([-+=<>])(?=[^}])", lambda m: f"{before}{m[1]}{space}", text)
    return re.sub(r"(\()(?!.*_[0-9])|(?<!\{)(,)(?![0-9]{3})(?!\\)", lambda m: m[0] + space, text)


def sized(text: str) -> str:
    """Give parentheses the size commands that fit their content."""
    return re.sub(r"(?<!\\left)\((.*?)(?<!\\right)\)", r"\\left(\1\\right)", text) if "\\left" not in text else text


Layout = Callable[[str], str]
LAYOUTS: list[Layout] = (
    [lambda text, s=space: s + text for space in BEFORE]
    + [lambda text, s=space: text + s for space in AFTER]
    + [lambda text, w=wrap: w[0] + text + w[1] if not TEXT_OR_ROWS.search(text) else text for wrap in AROUND]
    + [lambda text, s=space: spaced(text, s) if not TEXT_OR_ROWS.search(text) else text for space in SPACES]
    + [sized]
)
RESPONSES = [r"\boxed{%s}", r"$$\boxed{%s}$$", r"\[\boxed{%s}.\]", r"So \(\,\boxed{ %s }\,\).", r"$\boxed {%s}$~"]


@settings(max_examples=400)
@given(
    st.sampled_from(CASES),
    st.lists(st.sampled_from(LAYOUTS), max_size=2),
    st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=3),
    st.sampled_from(RESPONSES),
)
def test_layout_never_changes_the_verdict(
    case: tuple[str, str], of_gold: list[Layout], of_answer: list[Layout], response: str
) -> None:
    """A right answer stays right, a wrong one wrong, whatever layout stands at the ends and inside of either side."""
    gold, answer = case
    for layout in of_gold:
        gold = layout(gold)
    for layout in of_answer:
        answer = layout(answer)
    assert are_equal(gold, answer, response) == are_equal(*case), (case, gold, answer)
