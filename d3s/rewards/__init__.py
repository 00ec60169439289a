"""Reward functions of users: loading, calling, their values, and advantages that differ between tokens."""
