"""Extraction of the final answer, against hand-written answers and a character-wise box search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier.extraction import MAX_ANSWER, MAX_JOINT, MAX_RESPONSE, Extracted, extract, extract_answer, find_boxes
from d3s.verifier.verifier import verify


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"first \boxed{4}, then \boxed{5}", "5"), (r"$$\boxed{\frac{1}{\sqrt{2}}}$$", r"\frac{1}{\sqrt{2}}"),
        (r"\fbox{7}", "7"), (r"\boxed {9}", "9"), (r"$\boxed 9$.", "9"), (r"$\boxed9$", "9"),
        (r"\boxed{\text{so } \boxed{3}}", r"\text{so } \boxed{3}"), (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"<think>\boxed{1}</think>\boxed{2}", "2"), (r"<think>\boxed{1}</think> two", None),
        (r"<think> I guess \boxed{5}", None), (r"\boxed{4} <think> or \boxed{5}", None),
        (r"<think>a</think> \boxed{4} <think> b", None), (r"\boxed{5", None), (r"\boxed{4} and so \boxed{5", None),
        (r"\boxed{}", None), (r"\boxedx{5}", None), ("The answer is 5", None), ("", None),
    ],
)  # fmt: skip
def test_strict_extraction(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so 4.\n#### 1,234", "1,234"), ("<answer> 5 </answer>", "5"), ("we try 3 and 4. Answer: 42", "42"),
        ("The answer is $\\frac{5}{6}$. I hope it is correct.", r"\frac{5}{6}"), ("I do not know", None),
        ("Final Answer: The largest $n$ is 34.", "34"), ("I think the correct answer is C", "C"),
        ("Therefore $x < 5$ is the solution.", "x < 5"), ("it ends with 2 and 10", "10"),
        (r"The answer is 4, no: \boxed{5}", "5"), ("The answer is 4. No, the answer is not 4.", None),
        ("<think> the answer is 5", None),
    ],
)  # fmt: skip
def test_lenient_extraction(response: str, answer: str | None) -> None:
    assert extract_answer(response, "lenient") == answer


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{5} \boxed{6}",
        r"\boxed{5} or \boxed{6}",
        r"\boxed{6} or \boxed{5}",
        r"The answer is \boxed{6}. The answer is \boxed{5}.",
        r"\boxed{5} or maybe 6",
        r"Either 6 or \boxed{5}.",
        " ".join(rf"\boxed{{{i}}}" for i in range(6)),
    ],
)
def test_boxes_of_one_statement_must_all_be_right(response: str) -> None:
    texts = extract(response).texts
    assert len(texts) > 1 and not verify(response, "5") and not verify(response, "6")


DENIALS = [
    "The answer is not {}.", "It isn't ${}$.", "It can't be {}!", r"it is **not** \({}\)", r"so $x \neq {}$",
    "it is not equal to {}", "{} is wrong.", "${}$ is not correct", "{}, which is incorrect", "it cannot be {}, no",
    "{} cannot be the answer",
]  # fmt: skip
KEPT = [
    "Do not forget the sign: {}", "If not, {}", "{}. This is not obvious.", "{}, which is not 6", "{} (not 6)",
    "not only is it {}", "It is {}, not a prime.", "That was wrong. Now {}", "{} is not only right but unique",
]  # fmt: skip


@pytest.mark.parametrize("sentence", DENIALS)
def test_denied_boxes_are_no_answer(sentence: str) -> None:
    denied = sentence.replace("{}", r"\boxed{5}")
    assert extract_answer(denied) is None
    assert extract_answer(rf"I find \boxed{{5}}. Wait: {denied}") is None
    assert extract_answer(rf"I find \boxed{{4}}. And {denied}") == "4"
    assert extract_answer(rf"{denied}. The answer is \boxed{{6}}") == "6"


@pytest.mark.parametrize("sentence", KEPT)
def test_other_negations_leave_the_box(sentence: str) -> None:
    assert extract_answer(sentence.replace("{}", r"\boxed{5}")) == "5"


@pytest.mark.parametrize("text", [r"neither \boxed{5} nor \boxed{6}", r"It is not \boxed{5} or \boxed{6}."])
def test_a_list_of_denied_boxes_has_no_answer(text: str) -> None:
    assert extract(text) is None


@pytest.mark.parametrize(
    "response", [r"\boxed{1}, \boxed{2}", r"$\boxed{1}$ and $\boxed{2}$", r"$x=\boxed{1}$ and $y = \boxed{2}$."]
)
def test_listed_boxes_are_a_list(response: str) -> None:
    assert extract_answer(response) == "1, 2"
    assert verify(response, "1,2") and verify(response, "(1,2)")
    assert not verify(response, "1") and not verify(response, "2")


def test_alternatives_in_prose_must_all_be_right() -> None:
    assert extract("The answer is 18, or 19", "lenient").texts == ("18,", "19")
    assert verify("The answer is 0.5 or $\\frac12$.", "1/2", "lenient")
    for rejection in ("(not 17)", "and not 17 or 16", "rather than 17", ", it can't be 17 or 16"):
        assert extract_answer(f"The answer is 18 {rejection}.", "lenient") == "18"


def test_equal_boxes_of_one_statement_are_right() -> None:
    assert verify(r"\boxed{\frac12} or \boxed{0.5}", "1/2") and verify(r"\boxed{\frac12}, so \boxed{0.5}", "1/2")
    assert len(extract(r"\boxed{2} and \boxed{2}").texts) == 1


@given(st.text(alphabet="{}\\boxed5 $", max_size=60))
def test_boxes_are_disjoint_parts_of_the_text(text: str) -> None:
    previous = 0
    for start, end, content in find_boxes(text):
        assert previous <= start < end <= len(text)
        assert text[start:].startswith(("\\boxed", "\\fbox"))
        assert content is None or content in text[start:end]
        previous = end


def first_box(text: str) -> str | None:
    """The content of the first `\\boxed{`, found by counting braces one character at a time."""
    start = text.index("\\boxed{") + len("\\boxed{")
    depth, escaped = 1, False
    for index in range(start, len(text)):
        if escaped:
            escaped = False
        elif text[index] == "\\":
            escaped = True
        elif text[index] in "{}":
            depth += 1 if text[index] == "{" else -1
            if not depth:
                return text[start:index]
    return None


@given(st.text(alphabet="{}\\ab5 ", max_size=30))
def test_box_content_matches_brace_counting(content: str) -> None:
    text = rf"\boxed{{{content}}}"
    assert find_boxes(text)[0][2] == first_box(text)


def test_source_tells_how_the_answer_was_found() -> None:
    assert extract(r"\boxed{3}") == Extracted(("3",), "box")
    assert extract("The answer is 3", "lenient") == Extracted(("3",), "marker")
    assert extract("so 3", "lenient") == Extracted(("3",), "text")


def test_many_joined_boxes_are_no_answer() -> None:
    joined = [rf"\boxed{{{number}}}" for number in range(MAX_JOINT + 1)]
    assert len(extract(" or ".join(joined[:-1])).texts) == MAX_JOINT
    assert extract(" or ".join(joined)) is None
    assert extract_answer(", but this is wrong, and after more thought ".join(joined)) == str(MAX_JOINT)


def test_size_limits() -> None:
    assert extract(rf"\boxed{{{'7' * MAX_ANSWER}}}") is not None
    assert extract(rf"\boxed{{{'7' * (MAX_ANSWER + 1)}}}") is None
    assert extract_answer(r"\boxed{5}" + " " * (MAX_RESPONSE - 9)) == "5"
    assert extract_answer(r"\boxed{5}" + " " * MAX_RESPONSE) is None


def test_braces_are_followed_around_the_last_box() -> None:
    """A box is found wherever it is; an open brace far before it does not matter."""
    far, near = "x" * (MAX_ANSWER + 1), "x" * (MAX_ANSWER - 100)
    for open_box in (r"\boxed{", r"\fbox{"):
        assert extract_answer(open_box + far + r"\boxed{5}" + far) == "5"
        assert extract_answer(open_box + near + r"\boxed{5}" + far) is None
    assert extract(rf"\boxed{{5{' ' * (MAX_ANSWER - 1)}}} or 6").texts[1] == "6"


def test_delimiters_of_formulas_do_not_nest() -> None:
    for opening, closing in ((r"\(", r"\)"), (r"\[", r"\]"), ("<answer>", "</answer>")):
        text = f"so {opening} a {opening}\\frac{{x}}{{2}}{closing}"
        assert extract_answer(text, "lenient") == r"\frac{x}{2}"
        assert extract_answer(opening * 5_000 + "7", "lenient") in ("7", opening * 5_000 + "7")
