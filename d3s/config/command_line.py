"""Command line of train.py and train_sft.py: arguments, exit codes, and the end of the process."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from d3s.common import exit_code
from d3s.config.load import load_config
from d3s.config.schema import Config


def read_arguments(description: str) -> tuple[argparse.Namespace, Config]:
    """Parse the arguments, and load the configuration that they name."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config",
        nargs="+",
        required=True,
        metavar="FILE",
        help="YAML files or names of shipped ones (tiny, method/pods), then key=value overrides",
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="override single keys")
    parser.add_argument(
        "--resume",
        default="never",
        metavar="auto|never|CHECKPOINT",
        help="auto: the newest undamaged checkpoint; never (default): start a new run; or a checkpoint's path",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what the run would compute; load no model")
    args = parser.parse_args()
    sources = args.config + args.overrides  # --config takes all arguments that follow it
    return args, load_config([s for s in sources if "=" not in s], [s for s in sources if "=" in s])


def run_and_exit(main: Callable[[], int | None]) -> NoReturn:
    """Run `main` and end the process with its exit code: 2 after a UserError, 1 after another exception."""
    try:
        code = exit_code(main)
    except KeyboardInterrupt:  # once training begins, the trainer handles the signal
        print("stopped before the first step", file=sys.stderr)
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):  # the reader of the pipe has ended
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # gloo's threads can abort a finished interpreter, or block one that failed
