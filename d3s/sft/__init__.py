"""Supervised warm-up on demonstrations, with optional pruning of samples and tokens."""
