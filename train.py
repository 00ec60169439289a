"""Train a policy by reinforcement learning with verifiable rewards.

    accelerate launch train.py --config configs/tiny.yaml [configs/method/pods.yaml ...] [schedule.n_init=4 ...]

Later files override earlier ones, and section.key=value overrides all files. docs/configuration.md lists every key.
"""

import argparse
import contextlib
import os
import sys
import traceback
from pathlib import Path

from d3s.common import exit_code
from d3s.config.load import load_config
from d3s.config.schema import Config


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config", nargs="+", required=True, metavar="FILE", help="YAML files, then key=value overrides"
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="override single keys")
    parser.add_argument(
        "--resume",
        default="never",
        metavar="auto|never|CHECKPOINT",
        help="auto: the newest undamaged checkpoint; never (default): start a new run; or a checkpoint's path",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print batches, schedule, passes and memory; load no model"
    )
    return parser.parse_args()


def main() -> int:
    args = arguments()
    sources = args.config + args.overrides  # --config takes all arguments that follow it
    config = load_config([s for s in sources if "=" not in s], [s for s in sources if "=" in s])
    if args.dry_run:
        from d3s.plan.dry_run import print_plan

        print_plan(config)
        return 0
    from d3s.common import silence_libraries

    silence_libraries()
    from d3s.checkpoint import find_resume
    from d3s.reward import VERIFIER, load_function
    from d3s.tracking.run_directory import check_resume, lock_run_directory

    if config.reward.function != VERIFIER:
        load_function(config.reward.function)
    if os.environ.get("RANK", "0") != "0":  # the first rank alone manages the run directory
        return run(config, None)
    with lock_run_directory(config.train.output_dir):
        checkpoint = find_resume(config.train.output_dir, args.resume)
        for line in check_resume(checkpoint, config) if checkpoint else []:
            print(line)
        return run(config, checkpoint)


def run(config: Config, checkpoint: Path | None) -> int:
    """Train, and return the exit code."""
    from d3s.trainer import Trainer

    trainer = Trainer(config, checkpoint)
    code = trainer.train()
    trainer.close()
    return code


if __name__ == "__main__":
    try:
        code = exit_code(main)
    except KeyboardInterrupt:  # once training begins, Trainer handles the signal
        print("stopped before the first step", file=sys.stderr)
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):  # the reader of the pipe has ended
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # gloo's threads can abort a finished interpreter, or block one that failed
