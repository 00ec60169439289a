"""The value of a reward function, a number or a Scored with named parts and rewards of spans; a response's Outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from d3s.common import quote, shown
from d3s.groups import Span

LARGEST = 1e12  # absolute limit of a user's reward: sums of its square must fit float32


def about(
    answer: str | None = None, response: str | None = None, row: Any = None, problem: Any = None, **_: Any
) -> str:
    """Which call failed, by its arguments, as the end of a message."""
    texts = (("problem", row.get("problem") if row else problem), ("answer", answer), ("response", response))
    named = [f"{name} {quote(text)}" for name, text in texts if isinstance(text, str)]
    return " on " * bool(named) + ", ".join(named)


class InvalidValue(Exception):
    """A reward function returned something else than a reward: the value, and what was expected, in words."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(value, expected)
        self.value, self.expected = value, expected


@dataclass(frozen=True)
class Scored:
    """A reward in detail.

    Args:
        total: the reward of the response, spans included.
        parts: further values by name, which become metrics and change nothing else.
        spans: rewards (start, end, value) of parts of the response, in characters. Each is earned on the last token of
            its span; what `total` has beyond their sum is earned at the end of the response.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    spans: Sequence[Span] = ()


def as_scored(value: Any, response: str) -> Scored:
    """The value that a reward function returned for this response; numbers of NumPy and torch are accepted too.

    Raises: InvalidValue for anything else.
    """
    if isinstance(value, Scored):
        return Scored(_number(value.total, "Scored.total "), _parts(value.parts), as_spans(value.spans, response))
    return Scored(_number(value))


def _parts(parts: Any) -> dict[str, float]:
    """The checked parts of a Scored."""
    if not isinstance(parts, Mapping):
        raise InvalidValue(f"Scored.parts {shown(parts)}", "a dictionary")
    for name in parts:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidValue(f"Scored.parts with the name {shown(name)}", "letters, digits and underscores")
    return {name: _number(part, f"Scored.parts[{name!r}] ") for name, part in parts.items()}


def _number(value: Any, name: str = "") -> float:
    number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    if isinstance(number, bool | int | float) and abs(number) <= LARGEST:
        return float(number)
    raise InvalidValue(f"{name}{shown(value)}", f"a finite number from {-LARGEST:g} to {LARGEST:g}")


def as_spans(spans: Any, response: str) -> tuple[Span, ...]:
    """The spans (start, end, value) that a function returned for this response. Raises InvalidValue for others."""
    if not isinstance(spans, Sequence) or isinstance(spans, str):
        raise InvalidValue(f"the spans {shown(spans)}", "a list of (start, end, value)")
    return tuple(_span(span, response) for span in spans)


def _span(span: Any, response: str) -> Span:
    """A checked span. It must be within the response and not be empty."""
    is_span = isinstance(span, Sequence) and len(span) == 3 and all(type(i) is int for i in span[:2])
    if not is_span or not 0 <= span[0] < span[1] <= len(response):
        raise InvalidValue(
            f"the span {shown(span)}",
            f"(start, end, value) with 0 <= start < end <= {len(response)}, the length of the response",
        )
    return span[0], span[1], _number(span[2], f"in the span {shown(span)} the value ")
