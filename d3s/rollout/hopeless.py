"""End responses that a user's function calls hopeless while they are generated (rollout.hopeless)."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from d3s.common import UserError
from d3s.rewards.functions import call_function, load_function, quote, shown

OPTION = "rollout.hopeless"


class HopelessRule:
    """Asks the user's function whether a response can still become right.

    It is asked when a new token contains one of the characters `asked_at`, and once for equal tokens of a problem in a
    call. Ranks that share an engine must end the same responses, so its answer may depend on its arguments alone.
    """

    def __init__(self, name: str, asked_at: str, tokenizer: Any) -> None:
        """Load `module:function`. Raises UserError if it does not exist or does not take two arguments."""
        self._name, self._function, self._tokenizer = name, load_function(name, OPTION, ("problem", "text")), tokenizer
        self._is_asked = lru_cache(maxsize=None)(lambda token: not set(asked_at).isdisjoint(tokenizer.decode([token])))

    def watch(self, problems: list[str]) -> Callable[[int, list[int]], bool]:
        """Return Engine.generate's `hopeless` for prompts of these problems."""
        verdicts: dict[tuple[int, ...], bool] = {}  # by index and tokens: decoding takes longer than most rules

        def hopeless(index: int, ids: list[int]) -> bool:
            if not self._is_asked(ids[-1]):
                return False
            key = index, *ids
            if key not in verdicts:
                verdicts[key] = self._ask(problems[index], self._tokenizer.decode(ids, skip_special_tokens=True))
            return verdicts[key]

        return hopeless

    def _ask(self, problem: str, text: str) -> bool:
        context = f"problem {quote(problem)}, text {quote(text)}"
        value = call_function(self._function, OPTION, self._name, (problem, text), context)
        if not isinstance(value, bool | np.bool_):
            raise UserError(f"{OPTION}: {self._name} returned {shown(value)} on {context}; expected True or False")
        return bool(value)
