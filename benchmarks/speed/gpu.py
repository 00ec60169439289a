"""One update in bfloat16 on a GPU: D3S, dense GRPO and, where it can be imported, TRL, at Qwen2.5's shapes.

    python -m benchmarks.speed.gpu [--shapes 0.5B,1.5B,7B] [--lengths 1024,4096] [--budget 460]      (make bench-gpu)

Random weights, 32 responses whose lengths vary between half of the limit and the limit. Needs torch, transformers and
accelerate, nothing else: so D3S is put together here from its parts (d3s/policy.py, packing.py, selector.py, loss.py)
as Actor.update does it in one process. Up to 2 B parameters are float32 under autocast, larger ones bfloat16
throughout. A side that runs out of memory says so. The table is printed and written after every side; no side begins
after `budget` seconds. The column "attention" has the operators that ran in the warm-up update, by the profiler.

MFU counts 6 FLOPs per weight of the trunk and token run forward with gradient, 6 per weight of the head and row, and
causal attention; scoring passes and recomputations do not count. It is relative to the matrix product rate that the
device reaches here.
"""

import argparse
import gc
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from benchmarks.harness import make_rollouts, publish
from benchmarks.speed.dense_grpo import DenseGrpo
from d3s.advantage import group_advantages
from d3s.loss import Clip, denominators, grpo_loss
from d3s.packing import Batch, pack, split_by_tokens
from d3s.policy import Policy, SelectedRowHead, packed_attention
from d3s.selector import select_rollouts, select_tokens

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SHAPES = {  # hidden, intermediate, layers, heads, key-value heads, vocabulary, tied
    "tiny": (64, 128, 2, 2, 1, 512, True),
    "0.5B": (896, 4864, 24, 14, 2, 151_936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151_936, True),
    "7B": (3584, 18944, 28, 28, 4, 152_064, False),
}
GROUP = 8
ATTENTION = re.compile("_scaled_dot_product_|_varlen_attn")
OURS = "ours, N = G, K = 100 %"
COLUMNS = [
    "shape",
    "tokens",
    "side",
    "seconds",
    "to D3S",
    "tokens/s",
    "MFU",
    "peak GB",
    "forwarded / rows",
    "attention",
]


def random_model(shape: str, attention: str) -> PreTrainedModel:
    """A Qwen2 of this shape with random weights, on the device."""
    hidden, intermediate, layers, heads, kv_heads, vocabulary, tied = SHAPES[shape]
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=32768,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    with DEVICE:
        return AutoModelForCausalLM.from_config(config, dtype=precision(shape), attn_implementation=attention)


def precision(shape: str) -> torch.dtype:
    """Of the parameters."""
    return torch.bfloat16 if shape == "7B" else torch.float32


class RandomPolicy(Policy):
    """d3s.policy.Policy around a model that was never saved."""

    def __init__(self, lm: PreTrainedModel) -> None:
        torch.nn.Module.__init__(self)
        self.lm = lm
        lm.get_output_embeddings().__class__ = SelectedRowHead


class D3s:
    """Selection and one optimizer step, as Trainer and Actor do it in one process."""

    def __init__(self, shape: str, keep: int, fraction: float, max_tokens: int) -> None:
        AttentionInterface.register("d3s_packed", packed_attention)
        self.policy = RandomPolicy(random_model(shape, "d3s_packed"))
        if precision(shape) == torch.float32:  # as Actor does in one process, whose parameters are float32
            self.policy.accumulate_in_place()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
        self.keep, self.fraction, self.max_tokens = keep, fraction, max_tokens

    def update(self, work: dict) -> dict[str, float]:
        """One step; the tokens it ran forward and the rows of its head."""
        advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, GROUP))
        kept = select_rollouts(advantages, self.keep).flatten().nonzero()[:, 0].tolist()
        responses = [work["responses"][i] for i in kept]
        entropies = torch.tensor([h for i in kept for h in work["entropies"][i]])
        per_token = advantages.flatten()[kept].repeat_interleave(torch.tensor([len(r) for r in responses]))
        batch = Batch([work["prompts"][i] for i in kept], responses, per_token, entropies, entropies)
        batch.selected = select_tokens(batch.advantages, batch.entropies, self.fraction)
        divisors = denominators("selected", batch.selected, batch.sequence_ids, len(kept), 0)
        lengths = batch.forward_lengths(cut=True)
        for group in split_by_tokens(list(range(len(kept))), lengths, self.max_tokens):
            micro = pack(batch, group, lengths)
            chosen = batch.selected[micro.flat]
            flat = micro.flat[chosen]
            with torch.autocast(DEVICE.type, torch.bfloat16):
                logprobs, _, _ = self.policy(micro, chosen, 1.0, entropies=True)
            gain, divisor = batch.advantages[flat].to(DEVICE), divisors[flat].to(DEVICE)
            loss, _ = grpo_loss(logprobs, logprobs.detach(), gain, None, Clip(0.2, 0.2), divisor)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return work_done(self.policy.lm, [n for n in lengths if n], int(batch.selected.sum()))


def dense(shape: str, micro_batch: int) -> Callable[[dict], dict[str, float]]:
    """The ordinary update of benchmarks/speed/dense_grpo.py."""
    side = DenseGrpo(random_model(shape, "sdpa"), micro_batch, "bfloat16")

    def update(work: dict) -> dict[str, float]:
        advantages = group_advantages(torch.tensor(work["rewards"]).view(-1, GROUP)).flatten()
        side.update(work["prompts"], work["responses"], advantages)
        return all_of(side.model, work)

    return update


def all_of(model: PreTrainedModel, work: dict) -> dict[str, float]:
    """What training every token takes, padding not counted."""
    lengths = [len(p) + len(r) for p, r in zip(work["prompts"], work["responses"])]
    return work_done(model, lengths, sum(map(len, work["responses"])))


def work_done(model: PreTrainedModel, lengths: list[int], rows: int) -> dict[str, float]:
    """FLOPs of forward and backward on sequences of these lengths, `rows` rows of the head."""
    config = model.config
    head = config.vocab_size * config.hidden_size
    vocabulary = head if config.tie_word_embeddings else 2 * head
    trunk = sum(p.numel() for p in model.parameters()) - vocabulary
    attention = config.num_hidden_layers * config.hidden_size * sum(n * n for n in lengths) * 6
    return {"flops": 6 * trunk * sum(lengths) + 6 * head * rows + attention, "forwarded": sum(lengths), "rows": rows}


# --- measuring -------------------------------------------------------------------------------------------------------


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def measure(update: Callable[[dict], dict], work: dict, rounds: int) -> dict:
    """Seconds of each of `rounds` updates after one that does not count, the peak of device memory in GB, and the
    attention operators of the first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        update(work)
    operators = {event.key.split("::")[-1] for event in profile.key_averages()}
    attention = sorted(name for name in operators if ATTENTION.match(name) and "backward" not in name)
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(rounds):
        synchronize()
        started = time.perf_counter()
        done = update(work)
        synchronize()
        seconds.append(time.perf_counter() - started)
    return done | {"seconds": seconds, "peak_gb": peak_gb(), "attention": [name.lstrip("_") for name in attention]}


def peak_gb() -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else 0.0


def trl_updates(shape: str, work: dict, micro_batch: int, rounds: int) -> dict:
    """TRL's trainer on the same rollouts; its times leave out the preparation of the batch. Raises: ImportError."""
    from trl import GRPOConfig

    from benchmarks.speed.trl_side import Turns, options, with_fixed_rollouts
    from d3s.tiny import byte_tokenizer

    class Watch(Turns):
        def on_step_begin(self, *args, **_) -> None:
            synchronize()
            self.trainer.preparing, self.started = (0.0, 0.0), time.perf_counter()

        def on_step_end(self, *args, **_) -> None:
            synchronize()
            seconds.append(time.perf_counter() - self.started - self.trainer.preparing[0])

    seconds: list[float] = []
    model = random_model(shape, "sdpa")
    longest = max(map(len, work["responses"]))
    asked = {"rollouts": len(work["responses"]), "group": GROUP, "micro_batch": micro_batch, "temperature": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        asked |= {"response_tokens": longest, "learning_rate": 1e-6}
        given = options(Path(folder), asked, rounds + 1) | {"use_cpu": DEVICE.type == "cpu", "bf16": True}
        with_fixed_rollouts(model, byte_tokenizer(), GRPOConfig(**given), work | asked, Watch(None)).train()
    return all_of(model, work) | {"seconds": seconds[1:], "peak_gb": peak_gb()}


def matrix_rate(size: int = 8192, warmup: float = 1.0) -> float:
    """FLOPs per second of a bfloat16 product of square matrices, after `warmup` seconds of them."""
    size = size if DEVICE.type == "cuda" else 512
    a = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    begun = time.perf_counter()
    while time.perf_counter() - begun < warmup:  # an idle device has low clocks
        a @ a
        synchronize()
    seconds = []
    for _ in range(12):
        synchronize()
        started = time.perf_counter()
        a @ a
        synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / statistics.median(seconds)


def sides(shape: str, length: int, args: argparse.Namespace) -> tuple[dict, dict[str, Callable[[], dict]]]:
    """The rollouts of a shape and length, and what to call for each side's result."""
    work = make_rollouts(SHAPES[shape][5], args.rollouts // GROUP, GROUP, args.prompt_tokens, length, ragged=True)
    micro = args.micro_batch
    budget = micro * (length + args.prompt_tokens)

    def ours(keep: int, fraction: float) -> Callable[[], dict]:
        return lambda: measure(D3s(shape, keep, fraction, budget).update, work, args.rounds)

    return work, {
        "D3S, N = G/4, K = 5 %": ours(GROUP // 4, 0.05),
        "D3S, N = 5/8 G, K = 12.5 %": ours(GROUP * 5 // 8, 0.125),
        OURS: ours(GROUP, 1.0),
        "dense GRPO": lambda: measure(dense(shape, micro), work, args.rounds),
        "TRL": lambda: trl_updates(shape, work, micro, args.rounds),
    }


def attempt(side: Callable[[], dict]) -> dict:
    """A side's result, alone on the device, or why there is none."""
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        return side()
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except ImportError as error:
        return {"failed": f"not installed ({error.name})"}


def rows_of(shape: str, length: int, results: dict[str, dict], rate: float, total: int) -> list[list[str]]:
    """One line per side. tokens/s are the batch's response tokens, whatever part of them was computed."""
    rows = []
    for name, result in results.items():
        if "failed" in result:
            rows.append([shape, str(length), name, result["failed"], *[""] * (len(COLUMNS) - 4)])
            continue
        middle = statistics.median(result["seconds"])
        base = statistics.median(next(iter(results.values())).get("seconds", [middle]))
        spread = f"{middle:.3f} ({min(result['seconds']):.3f}-{max(result['seconds']):.3f})"
        mfu, peak = f"{result['flops'] / middle / rate:.0%}", f"{result['peak_gb']:.1f}"
        cells = [spread, f"{middle / base:.1f}x", f"{total / middle:,.0f}", mfu, peak]
        computed = f"{result['forwarded']:,.0f} / {result['rows']:,.0f}"
        rows.append([shape, str(length), name, *cells, computed, ", ".join(result.get("attention", ["not known"]))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="0.5B,1.5B,7B" if DEVICE.type == "cuda" else "tiny")
    parser.add_argument("--lengths", default="1024,4096" if DEVICE.type == "cuda" else "32")
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=2, help="rollouts; ours: as many tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=460, help="seconds after which no side begins")
    args = parser.parse_args()
    started, rate = time.perf_counter(), matrix_rate()
    device = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    title = f"One update of {args.rollouts} rollouts in bfloat16 on {device} ({rate / 1e12:.2f} TFLOP/s measured)"
    done, record, skipped = [], {}, []
    for shape in args.shapes.split(","):
        for length in map(int, args.lengths.split(",")):
            work, todo = sides(shape, length, args)
            total, results = sum(map(len, work["responses"])), {}
            record[f"{shape}-{length}"] = results
            for name, side in todo.items():
                if time.perf_counter() - started > args.budget:
                    skipped.append(f"{shape} at {length}, {name}")
                    continue
                results[name] = attempt(side)
                rows = done + rows_of(shape, length, results, rate, total)
                publish("gpu", title, COLUMNS, rows, {"arguments": vars(args), "rate": rate, "cases": record})
            done += rows_of(shape, length, results, rate, total)
    if skipped:
        notes = f"no time was left for: {'; '.join(skipped)}"
        publish("gpu", title, COLUMNS, done, {"arguments": vars(args), "rate": rate, "cases": record}, notes)


if __name__ == "__main__":
    main()
