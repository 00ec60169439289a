"""Conversations as prompts: turns {role, content}, the last one by the user, checked before they are rendered."""

from collections.abc import Mapping, Sequence
from typing import Any

from d3s.common import UserError
from d3s.data.rows import require_unicode

MESSAGES = "messages"  # the column with the conversation where a row has no problem
ROLES = ("system", "user", "assistant")
Turn = Mapping[str, str]


def read_turns(value: Any, name: str, location: str) -> tuple[Turn, ...]:
    """The turns in field `name` of a row. Raises UserError with the location for anything that no model continues."""
    field = f"{location}: field {name!r}"
    if not isinstance(value, list) or not value:
        raise UserError(f"{field}: got {value!r:.60}, expected a list of turns {{role, content}}")
    turns = tuple(_read_turn(turn, f"{field}, turn {number}", name, location) for number, turn in enumerate(value, 1))
    if late := next((number for number, turn in enumerate(turns, 1) if turn["role"] == "system" and number > 1), None):
        raise UserError(f"{field}, turn {late}: got the role 'system', expected it in the first turn alone")
    if (role := turns[-1]["role"]) != "user":
        raise UserError(f"{field}: the last turn is by {role!r}, expected 'user', whom the model answers")
    return turns


def _read_turn(turn: Any, place: str, name: str, location: str) -> Turn:
    if not isinstance(turn, dict):
        raise UserError(f"{place}: got {turn!r:.60}, expected {{role, content}}")
    if (role := turn.get("role")) not in ROLES:
        raise UserError(f"{place}: got the role {role!r:.40}, expected {', '.join(ROLES)}")
    content = turn.get("content")
    if not isinstance(content, str) or not content.strip():
        raise UserError(f"{place}: got the content {content!r:.60}, expected text")
    for key, item in turn.items():
        if key not in ("role", "content") and item not in (None, "", [], {}):  # columns of other rows are null
            raise UserError(f"{place}: got {key!r:.40}, expected role and content alone")
    return {"role": role, "content": require_unicode(content, name, location)}


def conversation_text(turns: Sequence[Turn]) -> str:
    """What is said without the system turn: the problem that is compared with others and shown in samples."""
    return "\n\n".join(turn["content"] for turn in turns if turn["role"] != "system")
