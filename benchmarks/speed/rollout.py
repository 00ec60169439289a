"""Tokens per second of our generate against a bare LLM.generate, and seconds of a weight sync.

    python -m benchmarks.speed.rollout [--rounds 7]      (make bench-rollout)

Three sides with the same engine settings on the same random model: vLLM's own `LLM.generate` with the options that a
trainer needs (log-probabilities of the sampled tokens, a seed per prompt, no detokenization), and ours without and
with entropies. Ours also takes the tokens and log-probabilities out of vLLM's objects, which the bare call leaves to
its caller. The last table times weight syncs of models of several sizes.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Side, median, publish, race, save_model, serve, with_spread

SYNCED = ((96, 2, 257), (256, 6, 32_000), (512, 8, 150_000))  # hidden, layers, vocabulary


def prompts_of(work: dict) -> list[list[int]]:
    """Distinct prompts of equal length."""
    return [[1 + (7 * i + j) % 200 for j in range(work["prompt_tokens"])] for i in range(work["prompts"])]


def bare_side(work: dict) -> None:
    """vLLM alone, configured as our engine is."""
    from d3s.rollout.vllm_setup import prepare_vllm_environment

    prepare_vllm_environment()
    from vllm import LLM, SamplingParams

    llm = LLM(
        work["model"],
        dtype="float32",
        seed=0,
        max_model_len=work["longest"],
        max_num_seqs=256,
        kv_cache_memory_bytes=2**29,
        distributed_executor_backend="external_launcher",
        enforce_eager=True,
        block_size=32,
        skip_tokenizer_init=True,
        logprobs_mode="processed_logprobs",
    )
    prompts = [{"prompt_token_ids": ids} for ids in prompts_of(work)]
    common = {"n": work["n"], "temperature": 1.0, "max_tokens": work["tokens"], "logprobs": 0, "detokenize": False}

    def turn() -> dict:
        params = [SamplingParams(**common, seed=1000 * i) for i in range(len(prompts))]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return {"tokens": sum(len(c.token_ids) for output in outputs for c in output.outputs)}

    serve(turn)


def our_side(work: dict, entropies: bool) -> None:
    """d3s.rollout.vllm_engine's engine."""
    from d3s.config.load import load_config
    from d3s.rollout import build_engine
    from d3s.rollout.engine import SamplingParams

    config = load_config([], []).rollout
    engine = build_engine(work["model"], config, dtype="float32", max_model_len=work["longest"], seed=0)
    prompts = prompts_of(work)
    seeds = list(range(len(prompts) * work["n"]))

    def turn() -> dict:
        params = SamplingParams(max_tokens=work["tokens"])
        rollouts = engine.generate(prompts, work["n"], params, seeds, entropies=entropies)
        return {"tokens": sum(len(r.response_ids) for r in rollouts)}

    serve(turn)


def sync_side(work: dict) -> None:
    """From the actor's parameters to the engine's: what Actor.weights and load_weights take together."""
    from d3s.actor import Actor
    from d3s.config.load import load_config
    from d3s.distributed import start_accelerator
    from d3s.rollout import build_engine

    config = load_config([], [])
    accelerator = start_accelerator(config)
    engine = build_engine(work["model"], config.rollout, dtype="float32", max_model_len=work["longest"], seed=0)
    actor = Actor(work["model"], config, accelerator, work["longest"])
    size = sum(p.numel() * p.element_size() for p in actor.lm.parameters())

    def turn() -> dict:
        started = time.perf_counter()
        engine.load_weights(actor.weights())
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "bytes": size, "per_gb": seconds / size * 2**30}

    serve(turn)


SIDES = {
    "bare": bare_side,
    "ours": lambda work: our_side(work, entropies=False),
    "entropies": lambda work: our_side(work, entropies=True),
    "sync": sync_side,
}


def start(kind: str, work: dict, folder: Path) -> Side:
    command = [sys.executable, "-m", "benchmarks.speed.rollout", "--side", kind, "--work", json.dumps(work)]
    return Side(command, folder / f"{kind}.log")


def time_generation(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """The turns of the three sides."""
    model = save_model(folder / "model", args.vocabulary, args.hidden, args.layers)
    work = {
        "model": str(model),
        "prompts": args.prompts,
        "n": args.n,
        "prompt_tokens": 16,
        "tokens": args.tokens,
        "longest": 32 + args.tokens,
    }
    sides = {
        "LLM.generate": start("bare", work, folder),
        "ours, no entropies": start("ours", work, folder),
        "ours, with entropies": start("entropies", work, folder),
    }
    try:
        return race(sides, args.rounds)
    finally:
        for side in sides.values():
            side.close()


def time_syncs(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """Turns of weight syncs, by size of the model."""
    reports = {}
    for hidden, layers, vocabulary in SYNCED[: args.syncs]:
        model = save_model(folder / f"model-{hidden}", vocabulary, hidden, layers)
        side = start("sync", {"model": str(model), "longest": 64}, folder)
        name = f"{layers} x {hidden}, vocabulary {vocabulary:,}"
        reports |= race({name: side}, args.rounds)
        side.close()
    return reports


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=257)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--syncs", type=int, default=len(SYNCED), help="how many model sizes to sync")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.side:
        SIDES[args.side](json.loads(args.work))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generation, syncs = time_generation(args, folder), time_syncs(args, folder)
    for turns in generation.values():
        for turn in turns:
            turn |= {"rate": turn["tokens"] / turn["wall"], "cpu_rate": turn["tokens"] / turn["cpu"]}
    bare = generation["LLM.generate"]
    rows = []
    for name, turns in generation.items():
        share = [f"{median(turns, key) / median(bare, key):.1%}" for key in ("rate", "cpu_rate")]
        rates = [with_spread(turns, "rate", 0), with_spread(turns, "cpu_rate", 0)]
        rows.append([name, rates[0], share[0], rates[1], share[1], f"{median(turns, 'tokens'):.0f}"])
    size = f"{args.layers} layers x {args.hidden}, vocabulary {args.vocabulary:,}"
    title = f"Generation: {args.prompts} x {args.n} responses of {args.tokens} tokens, {size}, {args.rounds} turns"
    columns = ["side", "tokens/s", "of bare", "tokens per CPU second", "of bare", "tokens"]
    publish("rollout", title, columns, rows, {"arguments": vars(args), "turns": generation})
    rows = [
        [name, f"{turns[0]['bytes'] / 2**20:.0f}", with_spread(turns, "seconds"), with_spread(turns, "per_gb", 2)]
        for name, turns in syncs.items()
    ]
    title = f"Weight sync, float32, {args.rounds} turns"
    publish("sync", title, ["model", "MB", "seconds", "seconds per GB"], rows, {"turns": syncs})


if __name__ == "__main__":
    main()
