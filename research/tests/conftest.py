"""The fixtures and the Hypothesis profile of the tests of d3s."""

from tests.conftest import base_model, gqa_model, tied_model

__all__ = ["base_model", "gqa_model", "tied_model"]
