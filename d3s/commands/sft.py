"""Warm up a model by supervised training on demonstrations, optionally pruned by Q-Tuning.

    accelerate launch train_sft.py --config configs/sft.yaml [configs/sft_q_tuning.yaml] [data.path=mine.jsonl ...]

docs/configuration.md says which sections it reads. RUN/model is the model.name of a run of train.py.
"""

from functools import partial

from d3s.commands.command_line import read_arguments, run_and_exit
from d3s.commands.train import in_run_directory, run
from d3s.common import UserError, silence_libraries
from d3s.config.checks import require_defaults
from d3s.config.schema import Config

READ = {"data.path", "data.split", "data.problem_field", "data.answer_field", "data.limit", "data.template"}
READ |= {"data.overlong_prompts", "data.max_prompt_length", "rollout.max_completion_length", "eval.every"}
UNREAD = {"optim.num_minibatches", "optim.num_iterations", "train.profile_steps"}
UNREAD |= {"tracker.samples", "tracker.samples_every"}
UNREAD |= {"reward", "selector", "schedule", "loss"}
UNREAD |= {f"{name}.{key}" for name in ("data", "rollout", "eval") for key in dict(getattr(Config(), name))} - READ


def main() -> int:
    args, config = read_arguments(__doc__)
    require_defaults(config, "train_sft.py", *UNREAD)
    if not config.sft.held_out:
        require_defaults(config, "train_sft.py without sft.held_out", "eval.every")
    if not isinstance(config.data.path, str):
        raise UserError(f"data.path: got {config.data.label}, expected one source; train_sft.py takes no weights")
    silence_libraries()
    from d3s.trials import attempt_rules

    attempt_rules(config)
    if args.dry_run:
        from d3s.plan.dry_run_sft import print_plan

        print_plan(config)
        return 0
    return in_run_directory(config, args.resume, partial(run, kind="d3s.sft.trainer:SftTrainer"))


if __name__ == "__main__":
    run_and_exit(main)
