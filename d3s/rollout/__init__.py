"""Rollout engines: prompts in, sampled responses out."""
