"""Evaluation: Pass@k, avg@n and maj@n with confidence intervals."""
