"""GPU-hours of the rows of docs/gpu.md and seconds of a step of D3S, by arithmetic from published rates.

    python -m benchmarks.speed.gpu_hours
    python -m benchmarks.speed.gpu_hours --measured 7B RUN/metrics.jsonl     (prints with that run's rates)

Reads the rows from the page, prints the tables and writes them between the page's marks. The work of a step is that of
benchmarks/speed/step_time.py, with responses of a mean length instead of the longest: every kept response is run to its
end, so rows that select tokens compute less. A card is an H100. `--measured` takes a model's rates from the metrics of
its first steps.
"""

import argparse
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.harness import DOCS, ROOT, markdown, write_between_marks
from benchmarks.speed.step_time import config_work
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.flops import PEAK_FLOPS
from d3s.memory import evaluations, spread_steps
from d3s.passes import forward_passes
from d3s.schedule import schedule_bounds
from d3s.shapes import find_shape

PAGE = DOCS / "gpu.md"
PEAK = PEAK_FLOPS["H100 HBM3"]


@dataclass(frozen=True)
class Column:
    """A model, and the rates at which its work is assumed to be done."""

    config: str
    cards: int
    responses: int  # per step
    tokens_per_s: float  # and card, while generating
    mfu: float  # FLOPs of updates and log-probabilities per second, as a share of the peak
    length: float = 1000  # tokens of the mean response
    sync_s_per_gb: float = 0.19  # of weights in bfloat16


# Tokens per second and H100 over whole steps of GRPO, Llama 3.1 8B, responses of about 1,060 tokens: NeMo RL 0.5,
# https://docs.nvidia.com/nemo/rl/0.5.0/about/performance-summary.html. Generation was 65 to 72 % of a step at 8B in
# NeMo RL (arXiv 2604.26779). UPDATE_MFU gives the updates of GRPO's row the rest.
MEASURED, GENERATING, UPDATE_MFU = 1_581, 0.68, 0.305
LARGE = {"tokens_per_s": MEASURED / GENERATING, "mfu": UPDATE_MFU}
COLUMNS = {  # 1.5B: measured, docs/data/h100/steps-1.5b.jsonl, but for the length
    "1.5B": Column("qwen2.5-math-1.5b", 1, 2048, 15_000, 0.22),
    "7B": Column("qwen2.5-math-7b", 8, 4096, **LARGE),
    "Llama 8B": Column("llama3.1-8b-instruct", 8, 4096, **LARGE),
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


def measured(column: Column, metrics: Path) -> Column:
    """The column with the median rates of the steps in a run's metrics.jsonl."""
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    rates = [step["selection/tokens_total"] / step["time/generate"] / column.cards for step in steps]
    mfu, length = (median(step[name] for step in steps) for name in ("throughput/mfu", "completion/length"))
    return replace(column, tokens_per_s=median(rates), mfu=mfu, length=length)


def generation_seconds(responses: float, column: Column) -> float:
    """Seconds in which one card samples this number of responses."""
    return responses * column.length / column.tokens_per_s


def update_seconds(config: Config, column: Column, step: int, passes: int) -> float:
    """Seconds of one card for the update of a step with this number of forward passes before it."""
    mean = config.updated(rollout={"max_completion_length": round(column.length)})
    work = config_work(mean, find_shape(config.model.name), step, passes)["update"]
    return (work["trunk"] + work["head"]) / (column.mfu * PEAK)


def passes_before(config: Config) -> int:
    """Forward passes over the kept rollouts before the update."""
    passes = forward_passes(config, schedule_bounds(config)[1][0])
    return passes.kept_rollouts + passes.selected_tokens + passes.reference


def run_hours(config: Config, column: Column) -> tuple[float, float]:
    """GPU-hours of a run: generation with the run's own evaluations, and updates with their passes before."""
    steps, count = spread_steps(config.train.steps), passes_before(config)
    updates = config.train.steps * sum(update_seconds(config, column, step, count) for step in steps) / len(steps)
    sampled = config.train.steps * config.train.prompts_per_step * config.rollout.num_generations
    evaluated = evaluations(config) * EVALUATED * config.eval.n
    return generation_seconds(sampled + evaluated, column) / 3600, updates / 3600


def hours_table(columns: dict[str, Column]) -> str:
    """GPU-hours of one run (of its updates) for the rows with equal hours, and of all rows and seeds."""
    rows = page_rows()
    final = {name: generation_seconds(32 * FINAL, column) / 3600 for name, column in columns.items()}
    totals, names = dict.fromkeys(columns, 0.0), {}  # cells -> names of rows
    for name, g, arguments in rows:
        cells = []
        for model, column in columns.items():
            generate, update = run_hours(row_config(column.config, column.responses, g, arguments), column)
            cells.append(f"{generate + update:.1f} ({update:.1f})")
            totals[model] += SEEDS * (generate + update + final[model])
        names.setdefault(tuple(cells), []).append(name)
    lines = [[", ".join(same), *cells] for cells, same in names.items()]
    lines.append(["evaluation of a trained model", *(f"{hours:.1f}" for hours in final.values())])
    lines.append([f"all {len(rows)} rows, {SEEDS} seeds", *(f"{hours:,.0f}" for hours in totals.values())])
    return markdown(["rows", *columns], lines) + "\n"


def steps_table(columns: dict[str, Column]) -> str:
    """Seconds of the first and the last step of D3S by phase."""
    lines = []
    for name, column in columns.items():
        config = load_config([ROOT / "configs" / f"{column.config}.yaml"], [])
        generate = generation_seconds(column.responses, column) / column.cards
        sync = find_shape(config.model.name).parameters * 2 / 2**30 * column.sync_s_per_gb
        for label, step in (("first", 0), ("last", config.train.steps - 1)):
            update = update_seconds(config, column, step, 0) / column.cards
            logprobs = update_seconds(config, column, step, passes_before(config)) / column.cards - update
            total = generate + logprobs + update + sync
            phases = [f"{generate:.0f} ({generate / total:.0%})", f"{logprobs:.1f}", f"{update:.1f}", f"{sync:.1f}"]
            lines.append([f"{name}, {column.cards} x H100, {label}: {total:.0f} s", *phases])
    header = ["step", "generate", "log-probabilities", "update", "sync"]
    return markdown(header, lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", nargs=2, metavar=("MODEL", "FILE"), help=f"MODEL is one of {list(COLUMNS)}")
    model_and_file = parser.parse_args().measured
    if model_and_file:
        model, file = model_and_file
        columns = {model: measured(COLUMNS[model], Path(file))}
        print(columns[model], steps_table(columns), hours_table(columns), sep="\n\n")
        return
    for mark, text in (("hours", hours_table(COLUMNS)), ("steps", steps_table(COLUMNS))):
        print(text)
        write_between_marks(PAGE, mark, text)


if __name__ == "__main__":
    main()
