"""GPU-hours of the rows of docs/gpu.md, by arithmetic from assumed rates; no model is run.

    python -m benchmarks.speed.gpu_hours

Reads the rows from the page, prints the table and writes it between the page's marks. The work of a step is that of
train.py --dry-run (d3s/plan/step_time.py), with responses of a mean length instead of the longest: every kept response
is run to its end, so rows that select tokens compute less. A card is an H100. Replace the assumed rates by
throughput/tokens_per_s_per_rank and throughput/mfu of the first steps of a run.
"""

import re

from benchmarks.harness import DOCS, ROOT, markdown, write_between_marks
from d3s.actor.logprobs import forward_passes
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.plan.machine import find_shape
from d3s.plan.memory import evaluations, spread_steps
from d3s.plan.step_time import config_work
from d3s.schedule import schedule_bounds
from d3s.tracking.flops import PEAK_FLOPS

PAGE = DOCS / "gpu.md"
LENGTH = 1000  # tokens of the mean response
MFU = 0.35  # model FLOPs of an update per second, as a share of the peak
PEAK = PEAK_FLOPS["H100 HBM3"]
MODELS = {  # column -> configuration, responses per step, tokens per second and card while generating
    "1.5B": ("qwen2.5-math-1.5b", 2048, 15_000),
    "7B": ("qwen2.5-math-7b", 4096, 5_000),
    "Llama 8B": ("llama3.1-8b-instruct", 4096, 5_000),
}
EVALUATED = 500  # problems of an evaluation in training: 30 + 30 + 40 of AIME and AMC, 100 of four others
FINAL = 30 + 30 + 40 + 1319 + 500 + 272 + 675  # problems of the paper's seven benchmarks
SEEDS = 5


def page_rows() -> list[tuple[str, int, list[str]]]:
    """Name, G, and files and overrides of each row of the page."""
    rows = re.findall(r"^row (\S+) (\d+) (.+)$", PAGE.read_text(), re.M)
    return [(name, int(g), arguments.replace("'", "").split()) for name, g, arguments in rows]


def row_config(model: str, responses: int, g: int, arguments: list[str], *overlays: str) -> Config:
    """The configuration of a row as the page's loop composes it."""
    files = [ROOT / "configs" / f"{name}.yaml" for name in (model, *overlays)]
    files += [ROOT / argument for argument in arguments if "=" not in argument]
    overrides = [argument for argument in arguments if "=" in argument]
    sizes = [f"rollout.num_generations={g}", f"train.prompts_per_step={responses // g}"]
    return load_config(files, overrides + sizes)


def generation_hours(responses: float, rate: float) -> float:
    """GPU-hours of sampling this number of responses of LENGTH tokens."""
    return responses * LENGTH / rate / 3600


def run_hours(config: Config, rate: float) -> tuple[float, float]:
    """GPU-hours of a run: generation with the run's own evaluations, and updates with their passes before."""
    passes = forward_passes(config, schedule_bounds(config)[1][0])
    count = passes.kept_rollouts + passes.selected_tokens + passes.reference
    rollout = config.rollout.model_copy(update={"max_completion_length": LENGTH})
    mean, shape = config.model_copy(update={"rollout": rollout}), find_shape(config.model.name)
    steps = spread_steps(config.train.steps)
    work = [config_work(mean, shape, step, count)["update"] for step in steps]
    flops = config.train.steps * sum(step["trunk"] + step["head"] for step in work) / len(steps)
    sampled = config.train.steps * config.train.prompts_per_step * config.rollout.num_generations
    generate = generation_hours(sampled + evaluations(config) * EVALUATED * config.eval.n, rate)
    return generate, flops / (MFU * PEAK) / 3600


def table() -> str:
    """GPU-hours of one run (of its updates) for the rows with equal hours, and of all rows and seeds."""
    rows, final = page_rows(), {column: generation_hours(32 * FINAL, rate) for column, (_, _, rate) in MODELS.items()}
    totals, names = dict.fromkeys(MODELS, 0.0), {}  # cells -> names of rows
    for name, g, arguments in rows:
        cells = []
        for column, (model, responses, rate) in MODELS.items():
            generate, update = run_hours(row_config(model, responses, g, arguments), rate)
            cells.append(f"{generate + update:.1f} ({update:.1f})")
            totals[column] += SEEDS * (generate + update + final[column])
        names.setdefault(tuple(cells), []).append(name)
    lines = [[", ".join(same), *cells] for cells, same in names.items()]
    lines.append(["evaluation of a trained model", *(f"{hours:.1f}" for hours in final.values())])
    lines.append([f"all {len(rows)} rows, {SEEDS} seeds", *(f"{hours:,.0f}" for hours in totals.values())])
    return markdown(["rows", *MODELS], lines) + "\n"


def main() -> None:
    print(table())
    write_between_marks(PAGE, "hours", table())


if __name__ == "__main__":
    main()
