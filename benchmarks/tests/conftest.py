"""The fixtures and the Hypothesis profile of the tests of d3s."""

from tests.conftest import tied_model, without_generated_code

__all__ = ["tied_model", "without_generated_code"]
