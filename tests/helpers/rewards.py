"""Reward functions of test runs, named in configurations as tests.helpers.rewards:NAME."""


def even_length(response: str, answer: str) -> float:
    """A reward that a model with random weights earns about half of the time."""
    return float(len(response) % 2 == 0)


def always(response: str, answer: str) -> float:
    """Right whatever the response is."""
    return 1.0


def rarely(response: str, answer: str) -> float:
    """Right about one time in sixteen, so that many groups are all wrong."""
    return float(sum(response.encode()) % 16 == 0)
