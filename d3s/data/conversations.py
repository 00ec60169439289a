"""Conversations as prompts: turns {role, content}, the last one by the user, checked before they are rendered."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from d3s.common import UserError
from d3s.data.rows import require_text

MESSAGES = "messages"  # the column with the conversation where a row has no problem
ROLES = ("system", "user", "assistant")
Turn = Mapping[str, str]


def read_turns(value: Any, field: str) -> tuple[Turn, ...]:
    """The turns in a field. Raises UserError, which begins with `field`, for anything that no model continues."""
    turns = list_turns(value, field, ROLES)
    if late := next((number for number, turn in enumerate(turns, 1) if turn["role"] == "system" and number > 1), None):
        raise UserError(f"{field}, turn {late}: got the role 'system', expected it in the first turn alone")
    if (role := turns[-1]["role"]) != "user":
        raise UserError(f"{field}: the last turn is by {role!r}, expected 'user', whom the model answers")
    return tuple(turns)


def list_turns(value: Any, field: str, roles: Collection[str], refused: Collection[str] | None = None) -> list[Turn]:
    """The turns in a field, by these roles. Raises UserError, which begins with `field`, for anything else.

    refused: keys beside role and content that a turn may not have; None: all.
    """
    if not isinstance(value, list) or not value:
        raise UserError(f"{field}: got {value!r:.60}, expected a list of turns {{role, content}}")
    turns = []
    for number, turn in enumerate(value, 1):
        place = f"{field}, turn {number}"
        if not isinstance(turn, dict):
            raise UserError(f"{place}: got {turn!r:.60}, expected {{role, content}}")
        if (role := turn.get("role")) not in roles:
            raise UserError(f"{place}: got the role {role!r:.40}, expected {', '.join(roles)}")
        for key, item in turn.items():
            empty = item in (None, "", [], {}) or (refused is not None and not item)  # columns of other rows are null
            if not empty and (key not in ("role", "content") if refused is None else key in refused):
                raise UserError(
                    f"{place}: got {key!r:.40}, which no prompt contains; write it into the content, or remove it"
                )
        turns.append({"role": role, "content": require_text(turn.get("content"), "content", place)})
    return turns


def conversation_text(turns: Sequence[Turn]) -> str:
    """What is said without the system turn: the problem that is compared with others and shown in samples."""
    return "\n\n".join(turn["content"] for turn in turns if turn["role"] != "system")
