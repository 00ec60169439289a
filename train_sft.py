"""Warm up a model by supervised training on demonstrations: d3s/commands/sft.py."""

from d3s.commands.sft import main
from d3s.config.command_line import run_and_exit

if __name__ == "__main__":
    run_and_exit(main)
