"""d3s: reinforcement learning with verifiable rewards and Dynamic Dual-level Down-Sampling (D3S).

From Python: d3s.train, d3s.evaluate and d3s.UserError, see docs/hacking.md#train-from-python.
"""

import os
from importlib import import_module
from typing import Any

# Read when torch is imported. Threads that wait by spinning take the cores from other processes and from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
__version__ = "0.1.0"
HOMES = dict.fromkeys(("train", "evaluate", "Run"), "d3s.commands.python") | {"UserError": "d3s.common"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, as the parts of d3s need no more than their own imports."""
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
