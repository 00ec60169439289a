"""Rewards as TRL and verl call them: functions in the style of their documentation, unchanged, and values by hand."""

import pytest

from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.reward import REWARD_RULES, RewardFunction
from d3s.rewards.judge import Judge
from d3s.rewards.scored import Scored

HERE = f"{__name__}:"
RESPONSES = ["so 4", "4", "five"]
PLAIN = {"problem": "2+2=", "answer": "4", "level": 3}
CHAT = PLAIN | {"prompt": [{"role": "user", "content": "2+2="}]}
VERL = PLAIN | {
    "data_source": "sums", "reward_model": {"style": "rule", "ground_truth": "4"}, "extra_info": {"index": 7},
}  # fmt: skip


def lengths(completions, **kwargs):
    assert kwargs["level"] == [3] * len(completions) and "prompt" not in kwargs
    return [float(len(completion)) for completion in completions]


def accuracy(completions, answer):
    return [completion.endswith(gold) for completion, gold in zip(completions, answer, strict=True)]


def by_prompt(prompts, completions, **kwargs):
    return [1.0 if completion.startswith(prompt[0]) else None for prompt, completion in zip(prompts, completions)]


def in_tuple(prompts, completions):
    return tuple(by_prompt(prompts, completions))


def accuracy_reward(completions: list[list[dict[str, str]]], answer: list[str], **kwargs) -> list[float | None]:
    contents = [completion[0]["content"] for completion in completions]
    return [float(content == gold) for content, gold in zip(contents, answer, strict=True)]


def last_message(prompts, completions):
    return [len(prompt[-1]["content"] + completion[-1]["content"]) for prompt, completion in zip(prompts, completions)]


def of_tokens(completions, completion_ids):
    return [len(ids) for ids in completion_ids]


def too_few(completions, **kwargs):
    return [1.0]


def nothing(completions, **kwargs):
    return None


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info["index"]) == ("sums", 7)
    return 1.0 if solution_str.endswith(ground_truth) else 0.0


def detailed(data_source, solution_str, ground_truth, extra_info, bonus=0.0, **kwargs):
    right = solution_str.endswith(ground_truth)
    return {"score": right + bonus, "acc": right, "pred": solution_str, "overlap": float("nan"), "nanoseconds": 10**400}


def batched(data_sources, solution_strs, ground_truths, extra_infos, scale=1):
    assert data_sources == ["sums"] * len(solution_strs) == [{7: "sums"}[info["index"]] for info in extra_infos]
    return [{"score": scale * s.endswith(gold), "acc": 1} for s, gold in zip(solution_strs, ground_truths, strict=True)]


def keyed(solution_str):
    return {"reward": 1.0}


def misspelt(solution, ground_truth):
    return 1.0


def values(rule, row, responses=RESPONSES):
    """Values of a group, by each response alone too where it is not the group that counts."""
    judge = Judge(REWARD_RULES, rule, RewardConfig())
    try:
        alone = [judge.submit(response, "4", row).result(5) for response in responses]
        assert judge.alone or judge.score_group(responses, "4", row) == alone
        return alone
    finally:
        judge.close()


@pytest.mark.parametrize(
    ("rule", "row", "expected"),
    [
        ("trl:" + HERE + "lengths", PLAIN, [4, 1, 4]),
        ("trl:" + HERE + "accuracy", PLAIN, [1, 1, 0]),
        ("trl:" + HERE + "by_prompt", PLAIN | {"problem": "first"}, [0, 0, 1]),  # None counts as 0
        ("trl:" + HERE + "in_tuple", PLAIN | {"problem": "first"}, [0, 0, 1]),
        ("trl:" + HERE + "accuracy_reward", CHAT, [0, 1, 0]),
        ("trl:" + HERE + "last_message", CHAT, [8, 5, 8]),
        ({"rule": "trl:" + HERE + "last_message", "conversational": True}, PLAIN, [8, 5, 8]),
        ("verl:" + HERE + "compute_score", VERL, [1, 1, 0]),
        ("verl:" + HERE + "compute_score", VERL | {"reward_model": None}, [1, 1, 0]),  # the answer
    ],
)
def test_functions_of_other_libraries_run_unchanged(rule, row, expected):
    assert [scored.total for scored in values(rule, row)] == expected


def test_dictionaries_of_verl_become_parts():
    """Other numbers than `score`; options are verl's reward_kwargs."""
    single = values({"rule": "verl:" + HERE + "detailed", "bonus": 0.5}, VERL)
    assert single == [Scored(1.5, {"acc": 1}), Scored(1.5, {"acc": 1}), Scored(0.5, {"acc": 0})]
    together = values({"rule": "verl:" + HERE + "batched", "scale": 2}, VERL)
    assert together == [Scored(2, {"acc": 1}), Scored(2, {"acc": 1}), Scored(0, {"acc": 1})]


@pytest.mark.parametrize(
    ("rule", "row", "problem"),
    [
        ("trl:" + HERE + "of_tokens", PLAIN, "of_tokens needs 'completion_ids' .* the arguments are problem, answer"),
        (
            "trl:" + HERE + "accuracy_reward",
            PLAIN,
            r"accuracy_reward raised TypeError: .* \(test_adapters.py, line \d+\) on .*answer \"4\"",
        ),
        (
            {"rule": f"trl:{HERE}lengths", "conversational": "no"},
            PLAIN,
            "lengths got conversational: 'no', expected true or false",
        ),
        ("trl:" + HERE + "nothing", PLAIN, "nothing returned None, expected a list of 3 numbers on problem"),
        ("trl:" + HERE + "too_few", PLAIN, r"too_few returned \[1.0\], expected a list of 3 numbers on problem"),
        ("verl:" + HERE + "misspelt", VERL, "misspelt needs 'solution' .* data_source, ground_truth, extra_info, sol"),
        ("verl:" + HERE + "keyed", VERL, "keyed returned {'reward': 1.0}, expected a finite number"),
    ],
)
def test_mistakes_are_named_before_a_run(rule, row, problem):
    with pytest.raises(UserError, match=f"^reward.functions: (trl|verl):{HERE}{problem}"):
        judge = Judge(REWARD_RULES, rule, RewardConfig())
        try:
            judge.attempt("4", row)
        finally:
            judge.close()


def test_groups_add_to_the_reward_of_responses():
    """With a weight, beside a function of a response; a strategy that asks earlier gets the value of it alone."""
    functions = ["boxed", ["verl:" + HERE + "batched", 0.5], ["trl:" + HERE + "lengths", -1]]
    reward_function = RewardFunction(RewardConfig(functions=functions), 10)
    responses = [r"\boxed{4}", "4"]
    scorings = [reward_function.submit(response, "4", VERL) for response in responses]
    before = [scoring(grouped=True) for scoring in scorings]
    assert [outcome.reward for outcome in before] == [1, 0]
    outcomes = reward_function.score_group(before, responses, [1, 1], "4", VERL)
    assert [o.reward for o in outcomes] == [1 - 9, 0.5 - 1] == [1 - 9 + 0.0, scorings[1]().reward]
    assert outcomes[1].parts == {"boxed": 0, "batched": 1, "lengths": 1, "batched/acc": 1}
    reward_function.close()
