"""Train a policy by reinforcement learning with verifiable rewards: d3s/commands/train.py."""

from d3s.commands.command_line import run_and_exit
from d3s.commands.train import main

if __name__ == "__main__":
    run_and_exit(main)
