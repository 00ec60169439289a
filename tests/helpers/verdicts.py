"""Decide about a response as a worker of the verifier does, in this process."""

from d3s.verifier.equivalence import equivalent
from d3s.verifier.extraction import extract
from d3s.verifier.latex import UnreadableError
from d3s.verifier.symbolic import equal_formulas


def are_equal(gold: str, answer: str, response: str = r"\boxed{%s}") -> bool:
    """Whether the answer in a response of this form is right."""
    extracted = extract(response % answer)
    try:
        return extracted is not None and all(equivalent(gold, text, equal_formulas) for text in extracted)
    except UnreadableError:
        return False
