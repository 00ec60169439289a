"""Extraction of the final answer, against hand-written answers and counted braces."""

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.extraction import MAX_ANSWER, MAX_JOINT, MAX_RESPONSE, extract, extract_answer, find_boxes
from d3s.verifier.verifier import verify

STRICT = {
    r"first \boxed{4}, then \boxed{5}": "5", r"$$\boxed{\frac{1}{\sqrt{2}}}$$": r"\frac{1}{\sqrt{2}}", r"\fbox{7}": "7",
    r"\boxed {9}": "9", r"$\boxed9$.": "9",
    r"\boxed{\text{so } \boxed{3}}": r"\text{so } \boxed{3}", r"\boxed{\{1,2\}}": r"\{1,2\}",
    r"<think>\boxed{1}</think>\boxed{2}": "2", r"<think>\boxed{1}</think> two": None,
    r"<think> I guess \boxed{5}": None, r"\boxed{4} <think> or \boxed{5}": None,
    r"<think>a</think> \boxed{4} <think> b": None, r"\boxed{5": None, r"\boxed{4} and so \boxed{5": None,
    r"\boxed{B} is the incorrect statement.": "B", r"\boxed{5} is the wrong answer.": None,
    r"\boxed{}": None, r"\boxedx{5}": None, "The answer is 5": None, "": None,
}  # fmt: skip
LENIENT = {
    "so 4.\n#### 1,234": "1,234", "<answer> 5 </answer>": "5", "we try 3 and 4. Answer: 42": "42", "so 3": "3",
    "The answer is $\\frac{5}{6}$. I hope it is correct.": r"\frac{5}{6}", "Final Answer: The largest $n$ is 34.": "34",
    "I think the correct answer is C": "C", "Therefore $x < 5$ is the solution.": "x < 5", "I do not know": None,
    r"The answer is 4, no: \boxed{5}": "5", "The answer is 4. No, the answer is not 4.": None,
    "<think> the answer is 5": None, "it ends with 2 and 10": "10", "The answer is 18 (not 17).": "18",
    "The answer is 18 , it can't be 17 or 16.": "18", r"so \( a \(\frac{x}{2}\)": r"\frac{x}{2}",
    "It is −5 degrees.": "-5", "The answer is –3 dollars": "-3", "an area of 5 cm^2": "5", "2^10 ways": "2^10",
    "about 1.5×10^8 meters": "1.5×10^8",
}  # fmt: skip


def test_final_answer_of_a_response() -> None:
    assert {response: extract_answer(response) for response in STRICT} == STRICT
    assert {response: extract_answer(response, "lenient") for response in LENIENT} == LENIENT


def test_boxes_of_one_statement_must_all_be_right() -> None:
    for response in (
        r"\boxed{5} \boxed{6}", r"\boxed{5} or \boxed{6}", r"\boxed{6} or \boxed{5}", r"\boxed{5} or maybe 6",
        r"Either 6 or \boxed{5}.", r"The answer is \boxed{6}. The answer is \boxed{5}.",
        " ".join(rf"\boxed{{{i}}}" for i in range(6)),
    ):  # fmt: skip
        assert len(extract(response)) > 1 and not verify(response, "5") and not verify(response, "6"), response


SUBJECTS = ["", " ", "$ ", ", which ", " which ", r"\) "]
FALSE = ["is wrong", "is clearly incorrect", "was false", "must be wrong", "would be impossible", "is invalid"]
NOT_RIGHT = [
    f"{verb} {predicate}"
    for verb in ("is not", "isn't", "cannot be", "can't be", "was clearly not", "would not be")
    for predicate in ("right", "correct", "valid", "the answer", "the final answer", "a solution", "it")
] + ["does not work", "doesn't satisfy the equation", "is not possible", "isn't."]
DENIED = [
    "The answer is not {}.", "It isn't ${}$.", "It can't be {}!", r"it is **not** \({}\)", r"so $x \neq {}$",
    "it is not equal to {}", "neither {} is it", "{}, it is wrong", "{}, it cannot be right",
    "{}, but that is wrong.", "{} (wrong)", "{} (not correct)", "{}, that's incorrect",
    *("{}" + subject + denial for subject in SUBJECTS[1:] for denial in FALSE + NOT_RIGHT),
]  # fmt: skip
STATED = [
    f"{verb} {predicate}"
    for verb in ("is not", "isn't", "was not", "is clearly not", "is also not")
    for predicate in (
        "an integer", "a prime", "divisible by 3", "affected by the order", "rounded", "in conflict with this", "zero",
        "the same as 8", "attained at the boundary", "in lowest terms yet", "only right but unique", "less than 3",
    )
] + [
    f"{verb} be {predicate}"
    for verb in ("cannot", "can't", "can not", "could not")
    for predicate in ("reduced further", "exceeded", "written as a fraction", "improved", "simplified")
]  # fmt: skip
STATEMENTS = [
    "Do not forget the sign: {}", "If not, {}", "{}. This is not obvious.", "{}, which is not 6", "{} (not 6)",
    "not only is it {}", "It is {}, not a prime.", "That was wrong. Now {}", "{}, it is not possible to do better",
    "He cannot have more than {}", "{} (which is odd)", "{}, but that is not all", "{} (correct to 3 digits)",
    "It is not 6 but {}", "{}, it is not possible.",
    *("{}" + subject + statement for subject in [*SUBJECTS[1:], ", and it "] for statement in STATED),
]  # fmt: skip


def test_denied_boxes_are_no_answer() -> None:
    for denied in (sentence.replace("{}", r"\boxed{5}") for sentence in DENIED):
        texts = ("{}", r"I find \boxed{{5}}. Wait: {}", r"I find \boxed{{4}}. And {}", r"{}. The answer is \boxed{{6}}")
        assert [extract_answer(text.format(denied)) for text in texts] == [None, None, "4", "6"], denied
    assert extract(r"neither \boxed{5} nor \boxed{6}") is None is extract(r"It is not \boxed{5} or \boxed{6}.")


def test_statements_about_an_answer_do_not_deny_it() -> None:
    answers = {sentence: extract_answer(sentence.replace("{}", r"\boxed{5}")) for sentence in STATEMENTS}
    assert {sentence: answer for sentence, answer in answers.items() if answer != "5"} == {}


def test_a_no_is_not_denied_by_saying_that_something_is_false() -> None:
    for no, after in product(
        (r"\text{No}", "False", "no", r"\text{false.}"), ("it is not true", "that is false", "it is impossible")
    ):
        assert extract_answer(rf"\boxed{{{no}}}, {after}.") == no
        assert extract_answer(rf"\boxed{{{no}}}, that is wrong.") is None
    assert extract_answer(r"\boxed{5}, it is false.") is None


KINDS = ["integer", r"\text{an integer}", "your integer", "final", "ans", "simplified fraction", "•", "xxx", "blank"]


def test_kinds_of_answers_are_placeholders_beside_other_boxes() -> None:
    for kind in KINDS:
        assert extract_answer(rf"Put an answer in \boxed{{{kind}}}. It is \boxed{{7}}.") == "7", kind
        assert extract_answer(rf"It is \boxed{{7}}, as \boxed{{{kind}}}.") == "7", kind
        assert extract_answer(rf"It is \boxed{{{kind}}}.") == kind


EMPTY = ["", " ", r"\ ", r"\,", "~", "...", "…", r"\ldots", r"\dots", "?", r"\text{}", "___", r"\square", r"\_\_"]
PLACEHOLDERS = EMPTY + [
    wrap % f"{before}{noun}{after}"
    for wrap in ("%s", r"\text{%s}", "<%s>", r"\textbf{%s}...", "[%s]")
    for before in ("", "your ", "Final ", "the correct ", "insert ")
    for noun in ("answer", "ANSWER", "result", "value")
    for after in ("", " here", " to the problem")
]
INSTRUCTIONS = [
    r"I must put the final answer in \boxed{}. ", r"Put your answer within $\boxed{}$, as asked.\n", r"Use \boxed. ",
    r"The answer must be in the form \boxed{}: ", r"I use \boxed as asked. ", r"(with \boxed) ", r"`\boxed` it: ",
]  # fmt: skip


def test_placeholders_and_the_word_boxed_are_no_box() -> None:
    """Neither before nor after the answer, nor alone; boxes without letters that answer something stay boxes."""
    for instruction in (text.replace("{}", f"{{{box}}}") for text in INSTRUCTIONS for box in PLACEHOLDERS):
        texts = ["{0}", r"{0}The answer is \boxed{{7}}", r"\boxed{{7}}. {0}", r"\boxed{{3}}. {0} So \boxed{{7}}. {0}"]
        assert [extract_answer(text.format(instruction)) for text in texts] == [None, "7", "7", "7"], instruction
        assert extract_answer(f"{instruction} The answer is 7", "lenient") == "7"
    for box in (r"\{\}", "<", ">", r"\emptyset", "()", "-", "A", r"\text{number of sides}", "x", r"\pi", "[]", "*"):
        assert extract_answer(rf"\boxed{{}} \boxed{{{box}}}") == box
    for bare in ("9", r"\frac{1}{2}", "B", "-3", "x=5", r"\text{B}"):
        assert extract_answer(rf"$\boxed {bare}$.") == bare.rstrip(".")


def test_alternative_of_an_angle_has_its_unit() -> None:
    """In another unit an equal alternative would look different, and any could not be told from a wrong one."""
    in_radians = (r"\frac\pi3", r"\frac{60\pi}{180}")
    assert [extract(rf"\boxed{{\frac\pi3}} or {a}") for a in ("60 degrees", r"$60^\circ$", "60°")] == [in_radians] * 3
    assert extract(r"\boxed{60^\circ} or $\frac{2\pi}{6}$") == (r"60^\circ", r"\frac{2(180)}{6}")
    assert extract(r"\boxed{60^\circ} or 45 degrees") == (r"60^\circ", "45")


def test_listed_boxes_are_a_list() -> None:
    for response in (r"\boxed{1}, \boxed{2}", r"$\boxed{1}$ and $\boxed{2}$", r"$x=\boxed{1}$ and $y = \boxed{2}$."):
        assert extract(response) == ("1, 2",) and verify(response, "(1,2)")


def test_equal_alternatives_are_right() -> None:
    assert verify(r"\boxed{\frac12} or \boxed{0.5}", "1/2") and verify(r"\boxed{\frac12}, so \boxed{0.5}", "1/2")
    assert extract(r"\boxed{2} and \boxed{2}") == ("2",)
    assert extract("The answer is 18, or 19", "lenient") == ("18,", "19")
    assert verify("The answer is 0.5 or $\\frac12$.", "1/2", "lenient")


@given(st.text(alphabet="{}\\ab5 ", max_size=30))
def test_box_content_matches_brace_counting(content: str) -> None:
    """A box ends where as many braces have closed as opened; escaped ones do not count."""
    characters = re.sub(r"\\.", "..", content + "}")
    depths = [1 + characters[:end].count("{") - characters[:end].count("}") for end in range(1, len(content) + 2)]
    assert find_boxes(rf"\boxed{{{content}}}")[0][2] == (content[: depths.index(0)] if 0 in depths else None)


def test_size_limits() -> None:
    joined = [rf"\boxed{{{number}}}" for number in range(MAX_JOINT + 1)]
    assert len(extract(" or ".join(joined[:-1]))) == MAX_JOINT and extract(" or ".join(joined)) is None
    assert extract_answer(", but this is wrong, and after more thought ".join(joined)) == str(MAX_JOINT)
    assert extract(rf"\boxed{{{'7' * MAX_ANSWER}}}") and extract(rf"\boxed{{{'7' * (MAX_ANSWER + 1)}}}") is None
    assert extract_answer(r"\boxed{5}" + " " * (MAX_RESPONSE - 9)) == "5"
    assert extract_answer(r"\boxed{5}" + " " * MAX_RESPONSE) is None
    # A box is found wherever it is; an open brace far before it does not matter.
    far, near = "x" * (MAX_ANSWER + 1), "x" * (MAX_ANSWER - 100)
    assert extract_answer(r"\boxed{" + far + r"\boxed{5}" + far) == "5"
    assert extract_answer(r"\fbox{" + near + r"\boxed{5}" + far) is None
    assert extract(rf"\boxed{{5{' ' * (MAX_ANSWER - 1)}}} or 6")[1] == "6"
