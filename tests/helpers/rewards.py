"""Reward functions for training in tests: reward.function=tests.helpers.rewards:NAME."""


def even_length(response: str, answer: str) -> float:
    """1 for about half of the responses of a random model."""
    return float(len(response) % 2 == 0)


def always(response: str, answer: str) -> float:
    """1 for every response."""
    return 1.0


def rarely(response: str, answer: str) -> float:
    """1 for about one response in sixteen, so that many groups have no signal."""
    return float(sum(response.encode()) % 16 == 0)


def graded(response: str, answer: str) -> float:
    """0, 0.5 or 1."""
    return len(response) % 3 / 2
