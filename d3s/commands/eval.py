"""Command line of eval.py: evaluate a model, or the model of a run as the run did.

python eval.py --model PATH --data NAME_OR_FILE ... --n 32 --k 1,8
python eval.py --run RUN [--step N]
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from d3s.commands.runs import read_run, run_options
from d3s.common import UserError, exit_code, silence_libraries
from d3s.config import yaml12
from d3s.config.fields import Section, expand_home
from d3s.config.schema import DataConfig, EvalConfig, RewardConfig, RolloutConfig
from d3s.data.gym import check_tasks
from d3s.evaluation.estimators import parse_ks
from d3s.rules import FORMS


def parse_arguments(
    arguments: Sequence[str] | None = None, kind: type[argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.Namespace:
    parser = kind(description="Pass@k, avg@n and maj@n of a model with 95 % confidence intervals.")
    add = parser.add_argument
    add("--model", type=expand_home, help="directory, hub name, or tiny:TASK for a built-in base model")
    add("--run", type=expanded_path, help="instead: a run, by its settings of eval, data, model and rollout")
    add("--step", type=int, metavar="N", help="with --run: the checkpoint of step N (default: the trained model)")
    sources = "benchmark, NAME=FILE, file, hub name, synthetic:TASK or reasoning-gym:TASK (default: those of --run)"
    add("--data", default=[], nargs="+", action="extend", type=expand_home, help=sources)
    add("--n", type=int, default=32, help="samples per problem (default: 32)")
    add("--k", type=parse_ks, help="values of k for Pass@k, at most n (default: those of 1,8 or of --run up to n)")
    add("--temperature", type=float, default=1.0, help="sampling temperature; 0 is greedy (default: 1)")
    add("--top-p", type=float, default=1.0, help="nucleus sampling (default: 1, off)")
    add("--max-tokens", type=int, default=1024, help="response length limit in tokens (default: 1024)")
    add("--stop", default=[], nargs="+", action="extend", metavar="TEXT", help="texts that end a response; they stay")
    templates = "plain, base, chat, qwen-math, r1, or a text file that contains {problem}"
    auto = "auto, plain for built-in models, else chat where the tokenizer has a template for it, else base"
    add("--template", type=expand_home, default="auto", help=f"{templates} (default: {auto})")
    add("--system-prompt", metavar="TEXT", help="system turn before the problem, with --template chat")
    variables = """variables of the chat template, such as '{"enable_thinking": false}'"""
    add("--chat-template-kwargs", type=parse_template_arguments, default={}, metavar="JSON", help=variables)
    overlong = "problems whose prompt exceeds the model's positions: end (default), or drop and say how many"
    add("--overlong-prompts", choices=("error", "drop"), default="error", help=overlong)
    add("--options", type=parse_options, default={}, metavar="JSON", help="{TASK: {option: value}} of reasoning-gym")
    add("--split", default="test", help="split of hub data sets and synthetic tasks (default: test)")
    add("--limit", type=int, help="use a fixed random sample of at most LIMIT problems of each data set")
    add("--extraction", choices=("strict", "lenient"), default="strict", help="strict (default): answers must be boxed")
    scorer = "default: the data set's, else the verifier"
    add("--reward", type=parse_reward, help=f"your {FORMS} that scores the responses ({scorer})")
    engines = "inference engine: vllm (default), transformers, your module:Class or {rule: NAME, option: value}"
    add("--engine", type=parse_engine, default="vllm", help=engines)
    add("--dtype", choices=("float32", "bfloat16", "float16"), help="default: bfloat16 on a GPU, else float32")
    add("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    add("--output", type=expanded_path, help="directory to write or resume (default: runs/eval/HASH)")
    parser.set_defaults(limits=RewardConfig(), head_dtype="auto")  # without flags
    ks = (1, 8)
    args = parser.parse_args(arguments)
    given = args.options
    if bool(args.run) == bool(args.model):
        raise UserError("--model: expected a model, or a run by --run; give one of them")
    if args.step is not None and not args.run:
        raise UserError("--step: requires --run")
    if args.run:
        config = read_run(args.run)
        options = run_options(config)
        ks = options.pop("k")
        parser.set_defaults(**options)
        args = parser.parse_args(arguments)
        args.data = args.data or config.eval.data
        args.stop = args.stop or config.rollout.stop
    args.k = args.k or tuple(k for k in ks if k <= args.n) or (args.n,)
    if not args.data:
        raise UserError("--data: expected at least one benchmark, file, hub name or synthetic:TASK")
    check_tasks(given, args.data, "--options", "--data")
    if max(args.k) > args.n:
        raise UserError(f"--k: got pass@{max(args.k)}, expected at most --n = {args.n}")
    if "" in args.stop or len(args.stop) > 4:
        raise UserError(f"--stop: got {args.stop}, expected at most four texts that are not empty")
    return args


def expanded_path(text: str) -> Path:
    """A path, also where a shell leaves ~ as it is."""
    return Path(expand_home(text))


def option_parser(
    section: type[Section], name: str, expected: str, load: Callable[[str], Any] = json.loads
) -> Callable[[str], Any]:
    """A function that reads what an option of this section takes. It raises ArgumentTypeError for anything else."""

    def parse(text: str) -> Any:
        try:
            return getattr(section(**{name: load(text)}), name)
        except (ValueError, yaml.YAMLError):
            raise argparse.ArgumentTypeError(f"got {text!r}, expected {expected}") from None

    return parse


parse_engine = option_parser(RolloutConfig, "engine", FORMS, yaml12.load)
parse_reward = option_parser(EvalConfig, "reward", FORMS, yaml12.load)
parse_options = option_parser(DataConfig, "options", "{TASK: {option: value}} as JSON")
VARIABLES = "a JSON object of text, numbers, true, false and null"
parse_template_arguments = option_parser(DataConfig, "chat_template_kwargs", VARIABLES)


def run_program() -> None:
    """Evaluate by the arguments of the process."""
    args = parse_arguments()
    silence_libraries()
    from rich.console import Console

    from d3s.commands.evaluate import main
    from d3s.tracking.console import LastingOutput

    main(args, Console(file=LastingOutput(sys.stdout)))


def program() -> NoReturn:
    """Run the command line, and end the process."""
    signals = [signal.SIGINT]  # the last one ends the process

    def stop(number: int, _: object) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # clusters send it; treat it as Ctrl-C
    try:
        sys.exit(exit_code(run_program))
    except KeyboardInterrupt:
        print("interrupted; rerun the same command to resume", file=sys.stderr)
        sys.exit(128 + signals[-1])


if __name__ == "__main__":
    program()
