"""Run programs that a language model wrote, against tests that they cannot see, without harm and without root."""

from d3s.sandbox.runner import Sandbox, TestReport, run_tests

__all__ = ["Sandbox", "TestReport", "run_tests"]
