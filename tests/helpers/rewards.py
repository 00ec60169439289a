"""Reward functions for training in tests: reward.functions=[tests.helpers.rewards:NAME]."""

from d3s.reward import Scored


def even_length(response: str, answer: str) -> float:
    """1 for about half of the responses of a random model."""
    return float(len(response) % 2 == 0)


def always(response: str, answer: str) -> float:
    """1 for every response."""
    return 1.0


def as_text(response: str) -> str:
    """A mistake, which the trial before a run finds."""
    return "1"


def rarely(response: str, answer: str) -> float:
    """1 for about one response in sixteen, so that many groups have no signal."""
    return float(sum(response.encode()) % 16 == 0)


def reads_column(response: str, answer: str, row: dict) -> float:
    """1 if the parity of the length is that of the column `parity` of the data set."""
    return float(len(response) % 2 == row["parity"])


def odd_or_fails(response: str) -> float:
    """1 for an odd length; for an even one it raises."""
    return 1 / (len(response) % 2)


def dense(response: str, answer: str) -> Scored:
    """The share of vowels, with a reward on every one of them."""
    spans = [(i, i + 1, 1 / 8) for i, character in enumerate(response) if character in "aeiou"]
    return Scored(len(spans) / 8, {"vowels": len(spans)}, spans)
