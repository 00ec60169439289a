"""FLOPs of D3S and GRPO at the shapes of Qwen2.5, by arithmetic; no model is run.

    python -m benchmarks.speed.flops

Prints three tables and writes them between the marks of docs/gpu.md. N and K are those of
configs/qwen2.5-math-7b.yaml. All responses of a row are equally long and every kept one is run to its end, so a run
computes less than this; the counts are those of d3s/flops.py.
"""

from benchmarks.harness import DOCS, markdown, write_between_marks
from benchmarks.speed.gpu_sides import SHAPES
from d3s.config.load import load_config
from d3s.flops import TRAINED, ModelShape, forward_flops
from d3s.packing import causal_pairs
from d3s.schedule import planned_curve

CONFIG = "configs/qwen2.5-math-7b.yaml"
PROMPT = 200  # tokens
LENGTHS = (1024, 3072)
LOW = (1 / 4, 0.05)  # N / G and K of make bench-update
REST = (0.28, 0.35, 0.5)  # shares of a step of GRPO that are not generation


def qwen_shape(name: str) -> ModelShape:
    """The shape of a Qwen2.5 model by its size."""
    hidden, intermediate, layers, heads, kv_heads, vocabulary, tied = SHAPES[name]
    return ModelShape(hidden, layers, heads, kv_heads, hidden // heads, intermediate, vocabulary, tied)


def bench_shape(vocabulary: int) -> ModelShape:
    """The model of benchmarks/speed/update.py (see workload.save_model)."""
    return ModelShape(256, 4, 4, 4, 64, 1024, vocabulary, tied=True)


def rollout_flops(shape: ModelShape, prompt: int, response: int) -> dict[str, float]:
    """FLOPs of one rollout's forward pass with every row of the head; the last token predicts nothing."""
    length = prompt + response - 1
    return forward_flops(shape, length, response, causal_pairs([length]))


def d3s_share(flops: dict[str, float], kept: float, k: float) -> float:
    """Share of these FLOPs that remains with a share `kept` of the rollouts and a share k of their tokens.

    It is that of the update and that of a pass for log-probabilities, which is a third of the update in every part.
    """
    return kept * (flops["trunk"] + flops["attention"] + k * flops["head"]) / sum(flops.values())


def work_rows() -> list[list[str]]:
    """Shares of attention and head in a dense update, and what the selection of bench-update leaves of it."""
    cases = [(f"4 x 256, vocabulary {v:,}", bench_shape(v), 16, 64) for v in (1000, 32_000, 150_000)]
    cases += [(f"Qwen2.5 {name}", qwen_shape(name), PROMPT, n) for name in ("0.5B", "1.5B", "7B") for n in LENGTHS]
    rows = []
    for name, shape, prompt, length in cases:
        flops = rollout_flops(shape, prompt, length)
        parts = (f"{flops[part] / sum(flops.values()):.0%}" for part in ("attention", "head"))
        rows.append([name, f"{length:,}", *parts, f"1/{1 / d3s_share(flops, *LOW):.1f}"])
    return rows


def schedule_points() -> tuple[list[tuple[float, float]], int]:
    """(N / G, K) at the start, in the middle and at the end of the run of CONFIG, and its rollouts per step."""
    config = load_config([CONFIG])
    g = config.rollout.num_generations
    points = [(n / g, k) for n, k in map(planned_curve(config), (0, 0.5, 1))]
    return points, g * config.train.prompts_per_step


def run_share(flops: dict[str, float]) -> float:
    """The mean of d3s_share over the steps of CONFIG."""
    config = load_config([CONFIG])
    g, steps = config.rollout.num_generations, config.train.steps
    points = map(planned_curve(config), (step / (steps - 1) for step in range(steps)))
    return sum(d3s_share(flops, n / g, k) for n, k in points) / steps


def step_rows() -> list[list[str]]:
    """PFLOPs of a step's update and pass for log-probabilities, GRPO and D3S."""
    points, rollouts = schedule_points()
    rows = []
    for name in ("0.5B", "1.5B", "7B"):
        for length in LENGTHS:
            flops = rollout_flops(qwen_shape(name), PROMPT, length)
            dense = (TRAINED + 1) * rollouts * sum(flops.values()) / 1e15
            shares = [d3s_share(flops, *point) for point in points]
            cells = [f"{share * dense:,.0f} ({share:.0%})" for share in shares]
            rows.append([f"{name}, {length:,}", f"{dense:,.0f}", *cells])
    return rows


# Amdahl's law: where a share f of a step takes a share s of its time, the step is 1 / (1 - f (1 - s)) times as fast.
def speedup(rest: float, share: float) -> float:
    """How many times as fast a step is where `share` remains of the share `rest` of its seconds."""
    return 1 / (1 - rest * (1 - share))


def bound_rows() -> list[list[str]]:
    """The speed-up of a step at 7B and the longest responses, by the share of its time that is not generation."""
    flops = rollout_flops(qwen_shape("7B"), PROMPT, LENGTHS[-1])
    shares = [d3s_share(flops, *schedule_points()[0][0]), run_share(flops), 0.0]
    return [[f"{rest:.0%}", *(f"{speedup(rest, share):.2f}x" for share in shares)] for rest in REST]


def tables() -> str:
    """The three tables as Markdown."""
    (first, middle, last), rollouts = schedule_points()
    headings = [f"N = {n:.3g} G, K = {k:.3g}" for n, k in (first, middle, last)]
    parts = [
        "Shares of attention and head in an update of GRPO, and what D3S computes at N = G/4 and K = 5 %:",
        markdown(["model", "response tokens", "attention", "head", "D3S of GRPO"], work_rows()),
        f"PFLOPs of update and log-probabilities in a step of {rollouts:,} rollouts, and D3S's share of GRPO's:",
        markdown(["model, tokens", "GRPO", *headings], step_rows()),
        "A step of D3S against one of GRPO at 7B and 3,072 tokens, by the share of GRPO's step that is not generation:",
        markdown(["not generation", "first step", "mean of the run", "update without cost"], bound_rows()),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    print(tables())
    write_between_marks(DOCS / "gpu.md", "flops", tables())


if __name__ == "__main__":
    main()
