"""The hint after the first responses, against responses made to deserve it or not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3s.first_look import FIRST, SMALLER_STEPS, FirstResponses, prompt_lines
from d3s.tiny import byte_tokenizer

OPTIONS = ("data.template", "rollout.max_completion_length", "reward.extraction")


def hints(responses, temperature="rollout.temperature", asked=False):
    """What is said of (problem, text, finished, answered)."""
    said = []
    look = FirstResponses(said.append, *OPTIONS, temperature, asked)
    for response in responses:
        look.add(*response)
    return said


def like(**changes):
    """FIRST good responses to four problems with these changes."""
    good = {"problem": 0, "text": "", "finished": True, "answered": True}
    return [tuple((good | {"problem": i // 4, "text": f"text {i}"} | changes).values()) for i in range(FIRST)]


@pytest.mark.parametrize(
    ("changes", "said", "option"),
    [
        ({"answered": False}, "have no answer, the last ends in 'text 15'", "data.template"),
        ({"answered": False}, "have no answer", "reward.extraction lenient"),
        ({"finished": False}, "are cut;", "rollout.max_completion_length"),
        ({"finished": False, "answered": False}, "are cut and have no answer;", "data.template"),
        ({"text": ""}, "are equal, ''", "rollout.temperature"),
        ({"text": "x", "finished": False}, "are equal, 'x'", "data.template"),
    ],
)
def test_hint_names_the_symptom_and_the_option(changes, said, option):
    (hint,) = hints(like(**changes) * 3)
    assert hint.startswith("hint: the first 16 responses ") and said in hint and option in hint.partition(";")[2]


def test_hint_knows_what_the_prompt_asks():
    (hint,) = hints(like(answered=False), asked=True)
    assert "though the prompt asks for \\boxed{}; set reward.extraction lenient" in hint and "data.template" not in hint


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=FIRST, max_size=40))
@settings(max_examples=50)
def test_hint_needs_all_of_the_first_responses(flags):
    responses = [(0, f"{i}", finished, answered) for i, (finished, answered) in enumerate(flags)]
    first = flags[:FIRST]
    expected = not any(finished for finished, _ in first) or not any(answered for _, answered in first)
    assert len(hints(responses)) == expected and not hints(responses[: FIRST - 1])


def test_long_step_says_its_end_and_one_hint():
    said = []
    look = FirstResponses(said.append, *OPTIONS, None)
    for done in (99, 100, 200):
        look.progress(0, done, 1000, 100.0)
    assert said == [
        "step 1: 99 of 1,000 responses after 100 s, 15 min left at this rate",
        f"hint: {SMALLER_STEPS}",
        "step 1: 100 of 1,000 responses after 100 s, 15 min left at this rate",
        "step 1: 200 of 1,000 responses after 100 s",
    ]


def test_greedy_responses_to_one_problem_are_equal():
    assert not hints(like(problem=0, text="x"), temperature=None)
    (hint,) = hints(like(text="x"), temperature=None)
    assert hint.endswith("; check data.template")


def test_prompt_lines_name_all_that_ends_a_response():
    tokenizer = byte_tokenizer()
    lines = dict(prompt_lines("chat", "1+1?\n", tokenizer, [0, 1, 300], ["</answer>"], "lenient"))
    assert lines["template"] == "chat" and lines["prompt"].startswith("--->1+1?")
    assert "<|endoftext|>, " in lines["ends"] and "token 300, " in lines["ends"]  # one that the tokenizer lacks
    assert "'</answer>'" in lines["ends"] and "####" in lines["ends"]
