"""Train a policy by reinforcement learning with verifiable rewards.

    accelerate launch train.py --config configs/tiny.yaml [configs/method/pods.yaml ...] [train.steps=50 ...]

Later files override earlier ones, and section.key=value overrides all files. docs/configuration.md lists every key.
"""

import os
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

from d3s.commands.command_line import read_arguments, run_and_exit
from d3s.common import silence_libraries
from d3s.config.checks import require_defaults
from d3s.config.schema import Config


def main() -> int:
    args, config = read_arguments(__doc__)
    return start(config, args.resume, args.dry_run)


def start(
    config: Config, resume: str, dry_run: bool = False, train: Callable[[Config, Path | None], int] | None = None
) -> int:
    """Check the configuration, then print its plan or train. Returns the exit code."""
    require_defaults(config, "train.py", "sft")
    if all(path.startswith(("synthetic:", "reasoning-gym:")) for path in config.data.weights):  # which have no fields
        require_defaults(config, f"train.py with {config.data.label}", "data.problem_field", "data.answer_field")
    silence_libraries()
    if dry_run:
        from d3s.plan.dry_run import print_plan

        print_plan(config)
        return 0
    from d3s.trials import attempt_rules

    attempt_rules(config)
    return in_run_directory(config, resume, train or run)


def in_run_directory(config: Config, resume: str, run: Callable[[Config, Path | None], int]) -> int:
    """Lock the run directory, find the checkpoint to resume, and run; ranks but the first only run."""
    from d3s.checkpoint import find_resume, read_state
    from d3s.tracking.mirrors import check_mirrors
    from d3s.tracking.run_directory import check_resume, lock_run_directory

    if os.environ.get("RANK", "0") != "0":
        return run(config, None)
    check_mirrors(config.tracker)
    with lock_run_directory(config.train.output_dir):
        checkpoint = find_resume(config.train.output_dir, resume)
        for line in check_resume(checkpoint, read_state(checkpoint)["step"], config) if checkpoint else []:
            print(line)
        return run(config, checkpoint)


def run(config: Config, checkpoint: Path | None, kind: str = "d3s.trainer:Trainer") -> int:
    """Train by the class that `kind` names, which is imported now. Returns the exit code."""
    trainer = resolve_name(kind)(config, checkpoint)
    trainer.ends_process = True
    code = trainer.train()
    trainer.close()
    return code


if __name__ == "__main__":
    run_and_exit(main)
