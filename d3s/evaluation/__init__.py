"""Evaluation: Pass@k, avg@n and maj@n with confidence intervals."""

from d3s.evaluation.estimators import pass_at_k

__all__ = ["pass_at_k"]
