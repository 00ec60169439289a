"""Run many command lines of train.py in forks of one process that has imported the trainer, which takes most of a run.

    python tests/helpers/forked_runs.py < COMMANDS      one JSON list of arguments a line

Each line is answered by one line [exit code, output].
"""

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile

from tests.helpers.command_line import ROOT, environment


def run_forked(commands: list[list[str]], timeout: float = 600) -> list[tuple[int, str]]:
    """Exit code and output of each command line, which begins with the name of a script."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.forked_runs"],
        input="".join(json.dumps(command) + "\n" for command in commands),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def run_in_fork(arguments: list[str]) -> tuple[int, str]:
    """Run a script in a child as `python SCRIPT ...` would."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv, code = arguments, 0
            try:
                runpy.run_path(arguments[0], run_name="__main__")
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 1
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


if __name__ == "__main__":
    for module in ("d3s.trainer", "deepspeed", "transformers.models.qwen2.modeling_qwen2"):  # what every run imports
        importlib.import_module(module)
    sys.path.insert(0, str(ROOT))
    for line in sys.stdin:
        print(json.dumps(run_in_fork(json.loads(line))), flush=True)
