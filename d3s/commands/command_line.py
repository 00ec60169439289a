"""Command line of train.py and train_sft.py: arguments, exit codes, and the end of the process."""

import argparse
import contextlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from d3s.common import UserError, exit_code, short
from d3s.config.fields import expand_home
from d3s.config.load import load_config
from d3s.config.schema import Config

# what gloo and NCCL say in the other processes when one has ended
LOST = re.compile(r"(?:closed|reset) by peer|[Bb]roken pipe|remote process exited")
LAUNCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # of the processes of a launcher


def check_launch() -> None:
    """Raise UserError for an incomplete launch, in which processes would not find each other."""
    given = {name: os.environ[name] for name in LAUNCH if name in os.environ}
    if not {"RANK", "LOCAL_RANK"} & given.keys() and given.get("WORLD_SIZE", "1") == "1":
        return  # one process
    missing = [name for name in LAUNCH if name not in given]
    unread = [f"{name}={given[name]!r}" for name in LAUNCH[:3] if name in given and not given[name].isdecimal()]
    if missing or unread:
        problem = f"got {unread[0]}, expected a number" if unread else f"no {', '.join(missing)}"
        remedy = f"use torchrun or accelerate launch, or unset {', '.join(given)}"
        raise UserError(f"the launcher's environment: {problem}; {remedy}")


def read_arguments(description: str) -> tuple[argparse.Namespace, Config]:
    """Parse the arguments, and load the configuration that they name."""
    check_launch()
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    files = "YAML files or names of shipped ones (tiny, method/pods), then key=value overrides"
    add("--config", nargs="+", action="extend", default=[], type=expand_home, metavar="FILE", help=files)
    add("overrides", nargs="*", metavar="section.key=value", help="override single keys")
    resumed = "auto: the newest undamaged checkpoint; never (default): start a new run; or a checkpoint's path"
    add("--resume", default="never", type=expand_home, metavar="auto|never|CHECKPOINT", help=resumed)
    add("--dry-run", action="store_true", help="print what the run would compute; load no model")
    args = parser.parse_args()
    sources = args.config + args.overrides  # --config takes all arguments that follow it
    if not sources:
        raise UserError("--config: got no file and no section.key=value, expected either; begin with --config tiny")
    overrides = [source for source in sources if "=" in source and not os.path.isfile(source)]
    return args, load_config([source for source in sources if source not in overrides], overrides)


def run_and_exit(main: Callable[[], int | None]) -> NoReturn:
    """Run `main` and end the process with its exit code: 2 after a UserError, 1 after another exception."""
    try:
        code = exit_code(main)
    except KeyboardInterrupt:  # once training begins, the trainer handles the signal
        print("stopped before the first step", file=sys.stderr)
        code = 130
    except Exception as error:
        has_ranks = os.environ.get("WORLD_SIZE", "1") != "1"
        if has_ranks and isinstance(error, RuntimeError) and LOST.search(str(error)):
            reason = "the connection to another process of this run was lost; see its message or the launcher's"
            print(f"error: {reason} ({short(str(error))})", file=sys.stderr)
        else:
            traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):  # the reader of the pipe has ended
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # gloo's threads can abort a finished interpreter, or block one that failed
