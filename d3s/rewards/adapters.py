"""Rewards written for TRL and for verl: `trl:module:function` and `verl:module:function` in reward.functions.

TRL's functions are called once for a complete group, with lists of equal length: prompts, completions, and every column
of the data set. Texts are plain, unless the column `prompt` is a list of messages or the option `conversational` is
true. None in the list that they return counts as 0, as in TRL.

verl's `compute_score(data_source, solution_str, ground_truth, extra_info)` is called for one response; with
`solution_strs` and the other plurals, for a group. The ground truth is that of the column reward_model, else the
answer. Of a dictionary `score` is the reward, and the other numbers become metrics. Both are called by name, without
what they do not take; further keys of {rule: NAME, key: value} are keyword arguments, as verl's reward_kwargs.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from d3s.rewards.scored import LARGEST, Scored

# (arguments by name, options, what a message names of the call) -> what the function returned
Call = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]
OF_THE_CALL = ("prompt", "completion", "completion_ids")  # columns that TRL does not pass


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # which the rule refuses
        return False


def from_trl(function: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """A function of a group that calls one of TRL's."""

    def reward(
        responses: list[str], answer: str, row: dict[str, Any], conversational: bool = False, **options: Any
    ) -> Any:
        prompt = row.get("prompt") or row.get("problem", "")
        if conversational and isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        chat = not isinstance(prompt, str)
        columns = {name: [value] * len(responses) for name, value in row.items() if name not in OF_THE_CALL}
        columns["prompts"] = [prompt] * len(responses)
        columns["completions"] = [[{"role": "assistant", "content": r}] for r in responses] if chat else responses
        values = call(columns, options, {"answer": answer, "row": row})
        values = values.tolist() if hasattr(values, "tolist") else values  # of NumPy or torch
        return [0.0 if value is None else value for value in values] if isinstance(values, list | tuple) else values

    return reward


def from_verl(function: Callable[..., Any], call: Call) -> Callable[..., Any]:
    """A function of a response that calls one of verl's, or a function of a group."""

    def arguments(answer: str, row: dict[str, Any]) -> dict[str, Any]:
        model = row.get("reward_model")
        truth = model.get("ground_truth", answer) if isinstance(model, Mapping) else answer
        extra = row.get("extra_info") or {}
        return {"data_source": row.get("data_source"), "ground_truth": truth, "extra_info": extra}

    def reward(response: str, answer: str, row: dict[str, Any], **options: Any) -> Any:
        known = {"answer": answer, "row": row, "response": response}
        return _as_scored(call(arguments(answer, row) | {"solution_str": response}, options, known))

    def rewards(responses: list[str], answer: str, row: dict[str, Any], **options: Any) -> Any:
        lists = {f"{name}s": [value] * len(responses) for name, value in arguments(answer, row).items()}
        values = call(lists | {"solution_strs": responses}, options, {"answer": answer, "row": row})
        return [_as_scored(value) for value in values] if isinstance(values, list | tuple) else values

    return rewards if takes(function, "solution_strs") else reward


def _as_scored(value: Any) -> Any:
    """A dictionary with `score` as a Scored, whose parts are its other numbers; other values themselves."""
    if not isinstance(value, dict) or "score" not in value:
        return value
    numbers = {k: v for k, v in value.items() if isinstance(v, bool | int | float) and abs(v) <= LARGEST}
    return Scored(value["score"], {k: v for k, v in numbers.items() if str(k).isidentifier() and k != "score"})


ADAPTERS = {"trl": from_trl, "verl": from_verl}
# argument -> the library whose rewards take it
SIGNS = {"completions": "trl", "data_source": "verl", "solution_str": "verl", "solution_strs": "verl"}
