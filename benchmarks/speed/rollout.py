"""Time generation by d3s against a plain LLM.generate, and weight syncs.

    python -m benchmarks.speed.rollout [--rounds 7]      (make bench-rollout)

Three sides have the same engine settings and the same random model: vLLM's own `LLM.generate` with the options that a
trainer needs (log-probabilities of the sampled tokens, a seed per prompt, no detokenization), and d3s without and with
entropies. d3s also extracts tokens and log-probabilities from vLLM's objects, which the plain call leaves to its
caller. A fourth is the transformers engine. A second table has the seconds of weight syncs for models of several sizes.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Side, alternate, median, publish, serve, with_spread
from benchmarks.speed.workload import add_model_arguments, model_label, place_model, results_name, save_model

SYNC_MODELS = ((96, 2, 257), (256, 6, 32_000), (512, 8, 150_000))  # hidden, layers, vocabulary
GENERATION_COLUMNS = ["side", "tokens/s", "of plain", "tokens per CPU second", "of plain", "tokens"]
SYNC_COLUMNS = ["model", "MB", "seconds", "seconds per GB"]


def prompts_of(work: dict) -> list[list[int]]:
    """Distinct prompts of equal length."""
    return [[1 + (7 * i + j) % 200 for j in range(work["prompt_tokens"])] for i in range(work["prompts"])]


def serve_plain(work: dict) -> None:
    """Measure vLLM alone, with the engine settings of d3s."""
    from d3s.rollout.vllm_setup import prepare_vllm_environment

    prepare_vllm_environment()
    from vllm import LLM, SamplingParams

    from d3s.rollout.vllm_engine import PREFILL_TOKENS

    llm = LLM(
        work["model"],
        dtype=work["dtype"],
        seed=0,
        max_model_len=work["longest"],
        max_num_seqs=256,
        kv_cache_memory_bytes=2**29,
        distributed_executor_backend="external_launcher",
        enforce_eager=True,
        block_size=32,
        enable_chunked_prefill=False,
        max_num_batched_tokens=max(PREFILL_TOKENS, work["longest"]),
        skip_tokenizer_init=True,
        logprobs_mode="processed_logprobs",
    )
    prompts = [{"prompt_token_ids": ids} for ids in prompts_of(work)]
    common = {"n": work["n"], "temperature": 1.0, "max_tokens": work["tokens"], "logprobs": 0, "detokenize": False}

    def generate() -> dict:
        params = [SamplingParams(**common, seed=work["n"] * i) for i in range(len(prompts))]  # + 0 ... n - 1, as d3s
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return {"tokens": sum(len(c.token_ids) for output in outputs for c in output.outputs)}

    serve(generate)


def serve_d3s(work: dict, entropies: bool, name: str = "vllm") -> None:
    """Measure an engine of d3s/rollout."""
    from d3s.config.load import load_config
    from d3s.rollout import build_engine
    from d3s.rollout.engine import SamplingParams

    config = load_config([], [f"rollout.engine={name}"]).rollout
    engine = build_engine(work["model"], config, dtype=work["dtype"], max_model_len=work["longest"], seed=0)
    prompts = prompts_of(work)
    seeds = list(range(len(prompts) * work["n"]))

    def generate() -> dict:
        params = SamplingParams(max_tokens=work["tokens"])
        rollouts = engine.generate(prompts, work["n"], params, seeds, entropies=entropies)
        return {"tokens": sum(len(r.response_ids) for r in rollouts)}

    serve(generate)


def serve_sync(work: dict) -> None:
    """Measure the way from the actor's parameters to the engine's: Actor.weights and load_weights together."""
    from d3s.actor import Actor
    from d3s.config.load import load_config
    from d3s.launch import start_accelerator
    from d3s.rollout import build_engine

    config = load_config([], [])
    accelerator = start_accelerator(config)
    engine = build_engine(work["model"], config.rollout, dtype="float32", max_model_len=work["longest"], seed=0)
    actor = Actor(work["model"], config, accelerator, work["longest"])
    size = sum(p.numel() * p.element_size() for p in actor.lm.parameters())

    def sync() -> dict:
        started = time.perf_counter()
        engine.load_weights(actor.weights())
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "bytes": size, "per_gb": seconds / size * 2**30}

    serve(sync)


SIDES = {
    "plain": serve_plain,
    "d3s": lambda work: serve_d3s(work, entropies=False),
    "entropies": lambda work: serve_d3s(work, entropies=True),
    "transformers": lambda work: serve_d3s(work, entropies=True, name="transformers"),
    "sync": serve_sync,
}


def start(kind: str, work: dict, folder: Path) -> Side:
    return Side(["benchmarks.speed.rollout", "--side", kind, "--work", json.dumps(work)], folder / f"{kind}.log")


def time_generation(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """The measurements of the three sides."""
    work = {
        "model": str(place_model(folder / "model", args.vocabulary, args)),
        "dtype": args.dtype,
        "prompts": args.prompts,
        "n": args.n,
        "prompt_tokens": 16,
        "tokens": args.tokens,
        "longest": 32 + args.tokens,
    }
    names = {"LLM.generate": "plain", "d3s, no entropies": "d3s", "d3s, with entropies": "entropies"}
    names["transformers engine"] = "transformers"
    return alternate({name: start(kind, work, folder) for name, kind in names.items()}, args.rounds)


def time_syncs(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """The measurements of weight syncs, by model size."""
    reports = {}
    for hidden, layers, vocabulary in SYNC_MODELS[: args.syncs]:
        model = save_model(folder / f"model-{hidden}", vocabulary, hidden, layers)
        side = start("sync", {"model": str(model), "longest": 64}, folder)
        reports |= alternate({f"{layers} x {hidden}, vocabulary {vocabulary:,}": side}, args.rounds)
    return reports


def generation_rows(reports: dict[str, list[dict]]) -> list[list[str]]:
    """Tokens per second of each side, and their share of the first side's."""
    for measurement in (m for measurements in reports.values() for m in measurements):
        measurement["rate"] = measurement["tokens"] / measurement["wall"]
        measurement["cpu_rate"] = measurement["tokens"] / measurement["cpu"]
    plain = next(iter(reports.values()))
    rows = []
    for name, measurements in reports.items():
        cells = []
        for key in ("rate", "cpu_rate"):
            cells += [with_spread(measurements, key, 0), f"{median(measurements, key) / median(plain, key):.1%}"]
        rows.append([name, *cells, f"{median(measurements, 'tokens'):.0f}"])
    return rows


def sync_rows(reports: dict[str, list[dict]]) -> list[list[str]]:
    """Size and seconds of the weight sync of each model."""
    return [
        [
            name,
            f"{measurements[0]['bytes'] / 2**20:.0f}",
            with_spread(measurements, "seconds"),
            with_spread(measurements, "per_gb", 2),
        ]
        for name, measurements in reports.items()
    ]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=257)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    add_model_arguments(parser, layers=6)
    parser.add_argument("--syncs", type=int, default=len(SYNC_MODELS), help="number of model sizes to sync")
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
    size = f"{model_label(args, args.vocabulary)}, {args.dtype}"
    title = f"Generation: {args.prompts} x {args.n} responses of {args.tokens} tokens, {size}, {args.rounds} rounds"
    rows, record = generation_rows(generation), {"arguments": vars(args)}
    publish(results_name("rollout", args), title, GENERATION_COLUMNS, rows, record | {"measurements": generation})
    if not syncs:
        return
    title = f"Weight sync, float32, {args.rounds} rounds"
    publish("sync", title, SYNC_COLUMNS, sync_rows(syncs), {"measurements": syncs})


if __name__ == "__main__":
    main()
