"""Warm up a model by supervised training on demonstrations: d3s/commands/sft.py."""

from d3s.commands.command_line import run_and_exit
from d3s.commands.sft import main

if __name__ == "__main__":
    run_and_exit(main)
