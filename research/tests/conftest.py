"""The fixtures and the Hypothesis profile of the tests of d3s."""

from tests.conftest import gqa_model, tied_model, weak_base

__all__ = ["gqa_model", "tied_model", "weak_base"]
