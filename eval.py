"""Evaluate a model, python eval.py --model PATH --data NAME_OR_FILE ...: d3s/commands/eval.py."""

from d3s.commands.eval import program

if __name__ == "__main__":
    program()
