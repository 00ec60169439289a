"""The command d3s: the programs of a clone and the modules with a command line, by short names.

d3s train --config tiny [method/pods ...] [train.steps=50 ...]
accelerate launch -m d3s train --config tiny
"""

import runpy
import sys
from pathlib import Path

PROGRAMS = {
    "train": "d3s.commands.train",
    "sft": "d3s.commands.sft",
    "eval": "d3s.commands.eval",
    "compare": "d3s.evaluation.compare",
    "report": "d3s.report.__main__",
    "samples": "d3s.report.samples",
    "verify": "d3s.verifier.__main__",
    "check-code": "d3s.programs.check",
}


def main() -> None:
    """Run the program that the first argument names, with the arguments after it."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name not in PROGRAMS:
        text = f"usage: d3s PROGRAM [arguments]; programs are {', '.join(PROGRAMS)}; each has --help"
        print(text, file=sys.stdout if name in ("-h", "--help") else sys.stderr)
        sys.exit(0 if name in ("-h", "--help") else 2)
    sys.argv = [f"d3s {name}", *arguments]
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # reward functions of your own are next to you
    runpy.run_module(PROGRAMS[name], run_name="__main__")


if __name__ == "__main__":
    main()
