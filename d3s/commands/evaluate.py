"""What eval.py does once its arguments are read: load model and problems, sample, score, write."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from d3s.cgroups import free_memory
from d3s.commands.runs import find_run_model
from d3s.config.schema import VERIFIER, RewardConfig, RolloutConfig
from d3s.data.problems import load_problems, name_sources
from d3s.data.prompts import ChatOptions, encode_prompts, resolve_template
from d3s.evaluation import evaluator
from d3s.evaluation.files import Sample, open_output, write_summary
from d3s.evaluation.progress import EvaluationProgress
from d3s.evaluation.results import results_table
from d3s.evaluation.sampling import Request, Sampling, look_at, open_scores
from d3s.first_look import FirstResponses, engine_line, prompt_lines
from d3s.fitting import choose_cache
from d3s.memory import BYTES
from d3s.pretrained import load_pretrained
from d3s.reward import REWARD_RULES, RewardFunction, scorers
from d3s.rollout import build_engine
from d3s.rollout.engine import Engine
from d3s.rollout.vllm_setup import batch_invariant
from d3s.rules import Value, rule_label
from d3s.shapes import find_shape, known_parameters
from d3s.threads import choose_threads
from d3s.tiny import find_model
from d3s.tracking.fingerprint import SETTINGS, WEIGHTS, hash_code, hash_contents, model_contents
from d3s.tracking.run_directory import lock_run_directory
from d3s.trials import attempt_engine, attempt_scores


def open_engine(
    path: str, kind: Value, dtype: str, max_model_len: int, stop: Sequence[str] = (), **options: Any
) -> Engine:
    """Build an engine that does not share the machine with a training run. `options` are further ones of build_engine.

    stop: see rollout.stop.
    """
    choose_threads(known_parameters(path))
    settings = {"engine": kind, "gpu_memory_utilization": 0.85, "sleep": False, "stop": list(stop)}
    if kind == "vllm" and torch.cuda.is_available():  # which recomputes what exceeds the memory
        settings["max_num_seqs"] = 1024
    elif kind == "vllm" and (shape := find_shape(path)) and (free := free_memory()):
        number = BYTES[dtype]
        room = max(0, free - shape.parameters * number) // 2
        cache = choose_cache(shape, number, RolloutConfig().max_num_seqs, max_model_len, room)
        settings["kv_cache_gb"] = cache / 2**30
    rollout = RolloutConfig(**settings)
    return build_engine(path, rollout, dtype=dtype, max_model_len=max_model_len, **options)


def main(args: argparse.Namespace, console: Console) -> Path:
    """Evaluate, and print the results. Returns the directory with samples and summary.json."""
    sampling = Sampling(args.n, args.temperature, args.top_p, args.max_tokens, args.seed, args.extraction)
    if args.reward:
        replace(REWARD_RULES, option="--reward").rule(args.reward)
    attempt_engine(args.engine, RolloutConfig(stop=args.stop), "--engine")
    options = {"split": args.split, "limit": args.limit, "verified": (args.reward or VERIFIER) == VERIFIER}
    options |= {"options": args.options, "sampled": True}
    problems = {name: load_problems(source, **options) for name, source in name_sources(args.data).items()}
    path = str(find_run_model(args.run, args.step)) if args.run else find_model(args.model)
    tokenizer, budget = load_pretrained(path, args.max_tokens)
    args.template = resolve_template(args.template, tokenizer)
    chat = ChatOptions(args.system_prompt, args.chat_template_kwargs)
    prompts = {}
    for name, own in problems.items():
        prompts[name] = encode_prompts(own, args.template, tokenizer, budget, args.overlong_prompts, chat)
        if dropped := prompts[name].dropped:
            console.print(f"{escape(name)}: {dropped} prompts longer than {budget} tokens were dropped")
    dtype = args.dtype or ("bfloat16" if torch.cuda.is_available() else "float32")
    files = hash_contents(model_contents(path))
    settings = {"model": args.model or path, "weights": files[WEIGHTS], "model_settings": files[SETTINGS]}
    settings |= {"engine": args.engine, "dtype": dtype, "data": hash_contents(problems)}
    settings |= hash_code([args.reward, args.engine])
    settings |= {"template": args.template, "split": args.split, "limit": args.limit, **vars(sampling)}
    further = {"system_prompt": None, "chat_template_kwargs": {}, "reward": None, "stop": [], "head_dtype": "auto"}
    further |= {"overlong_prompts": "error"}
    settings |= {name: getattr(args, name) for name, usual in further.items() if getattr(args, name) != usual}
    settings |= {"batch_invariant": True} if batch_invariant() else {}
    length = max(len(ids) for encoded in prompts.values() for ids in encoded.ids) + args.max_tokens
    with ExitStack() as stack:
        limits = args.limits.model_copy(update={"extraction": args.extraction})
        verifier = RewardFunction(limits.model_copy(update={"functions": RewardConfig().functions}), 1)
        stack.callback(verifier.close)
        asked = {name: p.problems for name, p in prompts.items()}
        rules = scorers(asked, args.reward)
        attempt_scores(asked, args.reward, limits, "--reward")
        scores = stack.enter_context(open_scores(rules, verifier.score_functions(), limits, "--reward"))
        output = open_output(args.output, settings)
        stack.enter_context(lock_run_directory(output, "--output"))
        engine = open_engine(path, args.engine, dtype, length, args.stop, seed=args.seed, head_dtype=args.head_dtype)
        stack.callback(engine.close)
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
        options = {"ks": args.k, "on_found": progress.advance, "on_response": on_response}
        results = evaluator.evaluate_to_files(output, engine, tokenizer, tests, sampling, **options)
        results = [replace(r, reward=rule_label(rules[r.data])) for r in results]
        records = [r.record() | {"dropped": prompts[r.data].dropped} for r in results]
        write_summary(output, records, verifier.take_stats())
    console.print(results_table(results), f"samples and summary: {escape(str(output))}", highlight=False)
    return output
