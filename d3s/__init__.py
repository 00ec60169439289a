"""d3s: reinforcement learning with verifiable rewards and Dynamic Dual-level Down-Sampling (D3S)."""

__version__ = "0.1.0"
