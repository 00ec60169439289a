"""Evaluate a model, or the model of a run as the run did.

python eval.py --model PATH --data NAME_OR_FILE ... --n 32 --k 1,8
python eval.py --run RUN [--step N]
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import yaml
from rich.console import Console
from rich.markup import escape

from d3s.cgroups import free_memory
from d3s.commands.runs import find_run_model, read_run, run_options
from d3s.common import UserError, exit_code, silence_libraries, write_json
from d3s.config.fields import expand_home
from d3s.config.schema import VERIFIER, DataConfig, EvalConfig, RewardConfig, RolloutConfig
from d3s.data.problems import load_problems, name_sources
from d3s.data.prompts import ChatOptions, encode_prompts, resolve_template
from d3s.evaluation import evaluator
from d3s.evaluation.estimators import parse_ks
from d3s.evaluation.files import Sample, open_output
from d3s.evaluation.progress import EvaluationProgress
from d3s.evaluation.results import results_table
from d3s.evaluation.sampling import Request, Sampling, look_at, open_scores
from d3s.first_look import FirstResponses, engine_line, prompt_lines
from d3s.fitting import choose_cache
from d3s.memory import BYTES
from d3s.pretrained import default_dtype, load_pretrained
from d3s.reward import REWARD_RULES, RewardFunction, scorers
from d3s.rollout.engine import Engine
from d3s.rollout.vllm_setup import batch_invariant
from d3s.rules import FORMS, Value, rule_label
from d3s.shapes import find_shape, known_parameters
from d3s.threads import choose_threads
from d3s.tiny import find_model
from d3s.tracking.console import LastingOutput
from d3s.tracking.fingerprint import SETTINGS, WEIGHTS, hash_code, hash_contents, model_contents
from d3s.trials import attempt_engine, attempt_scores


def open_engine(path: str, kind: Value, dtype: str, max_model_len: int, seed: int, stop: Sequence[str] = ()) -> Engine:
    """Build an engine that does not share the machine with a training run. See rollout.stop."""
    import torch

    from d3s.rollout import build_engine

    choose_threads(known_parameters(path))
    settings = {"engine": kind, "gpu_memory_utilization": 0.85, "sleep": False, "stop": list(stop)}
    if torch.cuda.is_available():  # without an actor on the GPU there is memory for more concurrent sequences
        settings["max_num_seqs"] = 1024
    elif kind == "vllm" and (shape := find_shape(path)) and (free := free_memory()):
        number = BYTES[dtype]
        room = max(0, free - shape.parameters * number) // 2
        cache = choose_cache(shape, number, RolloutConfig().max_num_seqs, max_model_len, room)
        settings["kv_cache_gb"] = cache / 2**30
    return build_engine(path, RolloutConfig(**settings), dtype=dtype, max_model_len=max_model_len, seed=seed)


def parse_arguments(
    arguments: Sequence[str] | None = None, kind: type[argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.Namespace:
    parser = kind(description="Pass@k, avg@n and maj@n of a model with 95 % confidence intervals.")
    add = parser.add_argument
    add("--model", type=expand_home, help="directory, hub name, or tiny:TASK for a built-in base model")
    add(
        "--run",
        type=expanded_path,
        help="instead: the model of a run, by its settings of eval, data, model and rollout",
    )
    add("--step", type=int, metavar="N", help="with --run: the checkpoint of step N (default: the trained model)")
    add(
        "--data",
        default=[],
        nargs="+",
        action="extend",
        type=expand_home,
        help="benchmark, NAME=FILE, file, hub name, synthetic:TASK or reasoning-gym:TASK (default: those of --run)",
    )
    add("--n", type=int, default=32, help="samples per problem (default: 32)")
    add("--k", type=parse_ks, help="values of k for Pass@k, at most n (default: those of 1,8 or of --run up to n)")
    add("--temperature", type=float, default=1.0, help="sampling temperature; 0 is greedy (default: 1)")
    add("--top-p", type=float, default=1.0, help="nucleus sampling (default: 1, off)")
    add("--max-tokens", type=int, default=1024, help="response length limit in tokens (default: 1024)")
    add("--stop", default=[], nargs="+", action="extend", metavar="TEXT", help="texts that end a response; they stay")
    add(
        "--template",
        type=expand_home,
        default="auto",
        help="plain, base, chat, qwen-math, r1, or a text file that contains {problem} (default: auto, plain for "
        "built-in models, else chat where the tokenizer has a template for it, else base)",
    )
    add("--system-prompt", metavar="TEXT", help="system turn before the problem, with --template chat")
    add(
        "--chat-template-kwargs",
        type=parse_template_arguments,
        default={},
        metavar="JSON",
        help="""variables of the chat template, such as '{"enable_thinking": false}'""",
    )
    add(
        "--overlong-prompts",
        choices=("error", "drop"),
        default="error",
        help="problems whose prompt exceeds the model's positions: end (default), or drop and say how many",
    )
    add("--options", type=parse_options, default={}, metavar="JSON", help="{TASK: {option: value}} of reasoning-gym")
    add("--split", default="test", help="split of hub data sets and synthetic tasks (default: test)")
    add("--limit", type=int, help="use a fixed random sample of at most LIMIT problems of each data set")
    add("--extraction", choices=("strict", "lenient"), default="strict", help="strict (default): answers must be boxed")
    add(
        "--reward",
        type=parse_rule,
        help="your module:function or {rule: NAME, option: value} that scores the responses (default: the data set's, "
        "else the verifier)",
    )
    add(
        "--engine",
        type=parse_rule,
        default="vllm",
        help="inference engine: vllm, transformers, your module:Class or {rule: NAME, option: value} (default: vllm)",
    )
    add("--dtype", choices=("float32", "bfloat16", "float16"), help="default: bfloat16 on a GPU, else float32")
    add("--seed", type=int, default=0, help="seed of the samples (default: 0)")
    add(
        "--output",
        type=expanded_path,
        help="directory of samples and summary (default: runs/eval/HASH); rerun to resume",
    )
    parser.set_defaults(limits=RewardConfig())  # of scoring, without a flag
    usual = (1, 8)
    args = parser.parse_args(arguments)
    if bool(args.run) == bool(args.model):
        raise UserError("--model: expected a model, or a run by --run; give one of them")
    if args.step is not None and not args.run:
        raise UserError("--step: requires --run")
    if args.run:
        config = read_run(args.run)
        options = run_options(config)
        usual = options.pop("k")
        parser.set_defaults(**options)
        args = parser.parse_args(arguments)
        args.data = args.data or config.eval.data
        args.stop = args.stop or config.rollout.stop
    args.k = args.k or tuple(k for k in usual if k <= args.n) or (args.n,)
    if not args.data:
        raise UserError("--data: expected at least one benchmark, file, hub name or synthetic:TASK")
    return args


def expanded_path(text: str) -> Path:
    """A path, also where a shell leaves ~ as it is."""
    return Path(expand_home(text))


def parse_template_arguments(text: str) -> dict[str, Any]:
    """Parse what data.chat_template_kwargs takes, as JSON. Raises ArgumentTypeError for anything else."""
    try:
        return DataConfig(chat_template_kwargs=json.loads(text)).chat_template_kwargs
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected a JSON object of text, numbers, true, false and null"
        ) from None


def parse_options(text: str) -> dict[str, dict[str, Any]]:
    """Parse what data.options takes, as JSON. Raises ArgumentTypeError for anything else."""
    try:
        return DataConfig(options=json.loads(text)).options
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {{TASK: {{option: value}}}} as JSON") from None


def parse_rule(text: str) -> Value:
    """Parse what eval.reward takes, as YAML. Raises ArgumentTypeError for anything else."""
    try:
        return EvalConfig(reward=yaml.safe_load(text)).reward or ""
    except (ValueError, yaml.YAMLError):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {FORMS}") from None


def main(args: argparse.Namespace, console: Console) -> Path:
    """Evaluate, and print the results. Returns the directory with samples and summary.json."""
    sampling = Sampling(args.n, args.temperature, args.top_p, args.max_tokens, args.seed, args.extraction)
    if max(args.k) > args.n:
        raise UserError(f"--k: got pass@{max(args.k)}, expected at most --n = {args.n}")
    if "" in args.stop or len(args.stop) > 4:
        raise UserError(f"--stop: got {args.stop}, expected at most four texts that are not empty")
    if args.reward:
        replace(REWARD_RULES, option="--reward").rule(args.reward)
    attempt_engine(args.engine, RolloutConfig(stop=args.stop), "--engine")
    chat_settings = {"system_prompt": args.system_prompt, "chat_template_kwargs": args.chat_template_kwargs}
    chat_settings = {name: value for name, value in chat_settings.items() if value not in (None, {})}
    sources = name_sources(args.data)
    options = {"split": args.split, "limit": args.limit, "verified": args.reward in (None, VERIFIER)}
    options["options"] = args.options
    problems = {name: load_problems(source, sampled=True, **options) for name, source in sources.items()}
    path = str(find_run_model(args.run, args.step)) if args.run else find_model(args.model)
    tokenizer, budget = load_pretrained(path, args.max_tokens)
    args.template = resolve_template(args.template, tokenizer)
    if chat_settings and args.template != "chat":
        raise UserError(f"--{next(iter(chat_settings)).replace('_', '-')}: requires --template chat")
    chat = ChatOptions(args.system_prompt, args.chat_template_kwargs)
    prompts = {
        name: encode_prompts(p, args.template, tokenizer, budget, args.overlong_prompts, chat)
        for name, p in problems.items()
    }
    for name, encoded in prompts.items():
        if encoded.dropped:
            console.print(f"{escape(name)}: {encoded.dropped} prompts longer than {budget} tokens were dropped")
    dtype = args.dtype or default_dtype()
    files = hash_contents(model_contents(path))
    settings = {"model": args.model or path, "weights": files[WEIGHTS], "model_settings": files[SETTINGS]}
    settings |= {"engine": args.engine, "dtype": dtype, "data": hash_contents(problems)} | hash_code(
        [args.reward, args.engine]
    )
    settings |= {"template": args.template, "split": args.split, "limit": args.limit, **vars(sampling)}
    settings |= chat_settings | ({"reward": args.reward} if args.reward else {})
    settings |= {"stop": args.stop} if args.stop else {}
    settings |= {"batch_invariant": True} if batch_invariant() else {}
    settings |= {"overlong_prompts": "drop"} if args.overlong_prompts == "drop" else {}
    longest = max(len(ids) for encoded in prompts.values() for ids in encoded.ids)
    length = longest + args.max_tokens
    with ExitStack() as stack:
        limits = args.limits.model_copy(update={"extraction": args.extraction})
        verifier = RewardFunction(limits.model_copy(update={"functions": RewardConfig().functions}), 1)
        stack.callback(verifier.close)
        asked = {name: p.problems for name, p in prompts.items()}
        rules = scorers(asked, args.reward)
        attempt_scores(asked, args.reward, limits, "--reward")
        scores = stack.enter_context(open_scores(rules, verifier.score_functions(), limits, "--reward"))
        output = open_output(args.output, settings)
        engine = open_engine(path, args.engine, dtype, length, args.seed, args.stop)
        first = next(iter(prompts.values())).texts[0]
        about = prompt_lines(args.template, first, tokenizer, engine.stop_token_ids, args.stop, args.extraction)
        for label, text in [*about, ("engine", engine_line(engine))]:
            console.print(f"{label}: {text}", markup=False, highlight=False, soft_wrap=True)
        totals = {name: len(p.problems) * args.n for name, p in prompts.items()}
        progress = stack.enter_context(EvaluationProgress(console, totals, engine.max_num_seqs))
        look_options = ("--template", "--max-tokens", "--extraction", "--temperature" if args.temperature else None)
        look = FirstResponses(
            lambda text: console.print(escape(text), highlight=False), *look_options, asked="\\boxed" in first
        )

        def on_response(request: Request, sample: Sample) -> None:
            progress.add(request.data, sample.tokens)
            look_at(look, request, sample, rules[request.data])

        tests = {name: (p, scores[name]) for name, p in prompts.items()}
        options = {"ks": args.k, "on_progress": progress.advance, "on_response": on_response}
        results = evaluator.evaluate_to_files(output, engine, tokenizer, tests, sampling, **options)
        results = [replace(r, reward=rule_label(rules[r.data])) for r in results]
        records = [r.record() | {"dropped": prompts[r.data].dropped} for r in results]
        summary = {"settings": settings, "results": records, "verifier": verifier.take_stats()}
    write_json(output / "summary.json", summary)
    console.print(results_table(results), f"samples and summary: {escape(str(output))}", highlight=False)
    return output


def run_program() -> None:
    """Evaluate by the arguments of the process."""
    main(parse_arguments(), Console(file=LastingOutput(sys.stdout)))


def program() -> NoReturn:
    """Run the command line, and end the process."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clusters send SIGTERM; treat it as Ctrl-C
    silence_libraries()
    try:
        sys.exit(exit_code(run_program))
    except KeyboardInterrupt:
        sys.exit("interrupted; rerun the same command to resume")


if __name__ == "__main__":
    program()
