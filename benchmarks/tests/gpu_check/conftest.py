"""Engines of the tests of d3s. Stages set the precision of accelerate for their process; each test starts without."""

import pytest

from tests.conftest import new_accelerator_state
from tests.rollout.conftest import built_engines, engines

__all__ = ["built_engines", "engines"]


@pytest.fixture(autouse=True)
def fresh_accelerator():
    """The state of a process without an Accelerator, before and after each test."""
    with new_accelerator_state():
        yield
