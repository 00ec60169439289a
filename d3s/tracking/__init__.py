"""Run directory, metrics, warnings and console output of a training run."""
