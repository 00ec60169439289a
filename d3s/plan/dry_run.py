"""The plan of a run, on one screen: train.py --dry-run. Reads configuration, data and tokenizer; loads no model."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from d3s.config.schema import Config
from d3s.downsampling import schedule_at
from d3s.plan.machine import check_data, check_model, find_shape, launched
from d3s.plan.memory import (
    BYTES,
    ModelShape,
    Placement,
    checkpoint_bytes,
    kv_cache_bytes,
    largest_microbatch,
    memory,
    peaks,
    token_share,
)
from d3s.plan.step_time import estimate_seconds
from d3s.reward import VERIFIER, load_function
from d3s.schedule import learning_rate, training_progress

GB = 2**30
ASSUMED_GPU = 80 * GB  # where there is none to ask
CPU_CACHE = GB // 2  # the engine's default KV cache on a CPU
MEMORY_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "reference": "reference model",
    "copies": "weights at work",
    "activations": "activations",
    "head": "head: logits, gradient",
    "stepping": "optimizer step, instead",
    "engine": "engine",
    "generate": "peak while generating",
    "update": "peak while updating",
}


def print_plan(config: Config, console: Console | None = None) -> None:
    """Prints what a run with this configuration will do and take; under a launcher, once.

    Raises: UserError for a model that is none, local data that cannot be read, prompts over the limit, or a missing
        reward function.
    """
    if os.environ.get("RANK", "0") != "0":
        return
    console = console or Console()
    if config.reward.function != VERIFIER:
        load_function(config.reward.function)
    model = check_model(config.model.name)
    place, shape = launched(), find_shape(config.model.name)
    data, problems = check_data(config)
    grid = Table.grid(padding=(0, 2))
    for label, text in [*_batch(config, place, problems, model), *data]:
        grid.add_row(f"[bold]{label}[/bold]", text)
    screen = [grid, _schedule_table(config), _passes_table(config)]
    if shape is None:
        screen.append(f"Memory: not estimated, {config.model.name} is not here, or not a kind of model that is counted")
    else:
        screen += _memory_part(config, shape, place)
        scored = sum(item.runs for item in passes(config)) - 1
        screen.append(estimate_seconds(config, shape, place, scored, _gpu()))
    for part in [*screen, _files(config, shape, place)]:
        console.print(part, highlight=False)
    for note in notes(config, place):
        console.print(f"[yellow]note:[/yellow] {note}", highlight=False)


def _batch(config: Config, place: Placement, problems: int | None, model: str) -> Iterator[tuple[str, str]]:
    train, g, optim = config.train, config.rollout.num_generations, config.optim
    rollouts = train.prompts_per_step * g
    ranks = f"{place.ranks} process{'es' if place.ranks > 1 else ''}{' under ZeRO-3' if place.zero3 else ''}"
    epochs = f", {train.steps * train.prompts_per_step / problems:.2g} passes over the problems" if problems else ""
    first, last = (schedule_at(config, step)[0] * train.prompts_per_step for step in (0, train.steps - 1))
    updates = optim.num_minibatches * optim.num_iterations
    yield "model", f"{config.model.name} in {config.model.dtype}, {ranks}{'; ' + model if model else ''}"
    yield (
        "rollouts",
        f"B {train.prompts_per_step} x G {g} = {rollouts:,} a step, "
        f"{rollouts * train.steps:,} in {train.steps:,} steps{epochs}",
    )
    yield (
        "updates",
        f"{updates} a step (mini-batches {optim.num_minibatches} x passes {optim.num_iterations}), each of about "
        f"{first / optim.num_minibatches:,.0f} rollouts at first, {last / optim.num_minibatches:,.0f} at the end",
    )


def _schedule_table(config: Config) -> Table:
    steps, optim, g = config.train.steps, config.optim, config.rollout.num_generations
    longest = config.rollout.max_completion_length
    share = token_share(config)
    trained = share * g * config.train.prompts_per_step * steps * longest
    table = Table(
        title="Selection over training",
        caption=f"in all {share:.2%} of the sampled tokens, at most {trained:,.0f} (responses of {longest:,})",
    )
    for heading in ("done", "step", "N of G", "rollouts", "K", "tokens, at most", "learning rate"):
        table.add_column(heading, justify="right")
    for step in sorted({round(share * (steps - 1)) for share in (0, 0.25, 0.5, 0.75, 1)}):
        n, k = schedule_at(config, step)
        rollouts = n * config.train.prompts_per_step
        rate = learning_rate(step, steps, optim.learning_rate, optim.lr_schedule, optim.warmup_steps)
        cells = f"{n} of {g}", f"{rollouts:,}", f"{k:.1%}", f"{k * rollouts * longest:,.0f}", f"{rate:.2g}"
        table.add_row(f"{training_progress(step, steps):.0%}", f"{step + 1:,}", *cells)
    return table


@dataclass(frozen=True)
class Pass:
    """A forward pass over rollouts: what it is, whether this run makes it, why or why not."""

    name: str
    runs: bool
    why: str


def passes(config: Config) -> list[Pass]:
    """The passes of the actor in one step, in their order. What scores the selected runs and computes only those."""
    from d3s.downsampling import ranks_by_entropy
    from d3s.loss import SEQUENCE_LOSSES

    loss, selector, optim = config.loss, config.selector, config.optim
    several = optim.num_minibatches * optim.num_iterations > 1
    mask = loss.engine_correction == "sequence_mask"
    actor_entropies = selector.entropy_source == "actor" and ranks_by_entropy(selector, config.schedule.k_init)
    reasons = []
    if actor_entropies:
        reasons.append("selector.entropy_source: actor needs every token of the kept rollouts")
    if loss.engine_correction == "truncate":
        reasons.append("loss.engine_correction: truncate")
    if several and loss.old_logprobs == "actor":
        reasons.append("several updates a step need pi_old (loss.old_logprobs: actor)")
    old = "pi_old as sampled" if loss.old_logprobs == "engine" else "the only update's own forward pass is pi_old"
    whole = loss.kind in SEQUENCE_LOSSES and (several or loss.old_logprobs == "engine")
    name = "score the kept" if actor_entropies else "score the selected"
    why = "known from the check of all rollouts" if mask else "; ".join(reasons)
    return [
        Pass("check all rollouts", mask, f"loss.engine_correction: {loss.engine_correction}"),
        Pass(name, bool(reasons) and not mask, why or f"no token is ranked by the actor's entropies, {old}"),
        Pass("score by the reference", loss.beta > 0, f"loss.beta: {loss.beta:g}"),
        Pass(
            "forward and backward",
            True,
            "all tokens of rollouts with a selected one: the sequence ratio needs them"
            if whole
            else "kept rollouts, each up to its last selected token; head on selected tokens only",
        ),
    ]


def _passes_table(config: Config) -> Table:
    table = Table(title="The actor's passes in a step", show_header=False)
    for item in passes(config):
        table.add_row(item.name, "[green]yes[/green]" if item.runs else "no", item.why)
    return table


def _memory_part(config: Config, shape: ModelShape, place: Placement) -> Iterator[Table | str]:
    """Gigabytes per process for the usual placements, and for the launched one."""
    from d3s.policy import CHUNK_ELEMENTS

    device, total = _device(config)
    places = {"1 process": Placement()}
    if total:
        places |= {"8 x ZeRO-3": Placement(8, True), "8, offload": Placement(8, True, True)}
    if place not in places.values():
        places["launched"] = place
    engine, rows = _engine_bytes(config, shape, total), []
    for one in places.values():
        parts = memory(config, shape, one, CHUNK_ELEMENTS["cuda" if total else "cpu"]) | {"engine": engine}
        rows.append(parts | peaks(parts, engine, config.rollout.sleep and total > 0, one.zero3))
    unit, size = ("GB", GB) if max(row["update"] for row in rows) >= GB else ("MB", 2**20)
    table = Table(
        title=f"{unit} per process: {shape.parameters / 1e6:,.2f} M parameters, {device}",
        caption=f"micro-batches of {largest_microbatch(config):,} tokens, "
        f"{'with' if config.model.gradient_checkpointing else 'without'} gradient checkpointing",
    )
    table.add_column("")
    for heading, one in places.items():
        table.add_column(heading + (" *" if one == place and len(places) > 1 else ""), justify="right")
    for key, word in MEMORY_WORDS.items():
        if any(row[key] for row in rows):
            style = "bold" if word.startswith("peak") else ""
            cells = (f"{'[red]' if 0 < total < row[key] else ''}{row[key] / size:,.1f}" for row in rows)
            table.add_row(word, *cells, style=style)
    if total:
        verdicts = (_verdict(max(row["generate"], row["update"]), total) for row in rows)
        table.add_row(f"a GPU of {total / GB:,.0f} GB", *verdicts, style="bold")
    yield table
    yield (
        "For P parameters of b bytes: weights 4P, gradients 4P (DDP 8P), optimizer 8P, in half precision 2P at work; "
        "ZeRO-3 over W: (b + 4 + 12) P/W, offload bP/W, and gathered layers. The rest: d3s/plan/memory.py."
    )
    weights = shape.parameters * BYTES[config.model.dtype] // config.rollout.tensor_parallel_size
    length = config.data.max_prompt_length + config.rollout.max_completion_length
    each = kv_cache_bytes(shape, config.model.dtype) // config.rollout.tensor_parallel_size * length
    yield (
        f"The engine's share holds its weights and {max(0, engine - weights) // each:,} sequences of full length "
        f"(rollout.max_num_seqs is {config.rollout.max_num_seqs})."
    )


def _verdict(peak: int, total: int) -> str:
    """Whether a peak fits a GPU of `total` bytes, of which a tenth is to stay free (see d3s/plan/memory.py)."""
    if peak > total:
        return "[red]does not fit"
    return "fits" if peak <= 0.9 * total else "[yellow]fits barely"


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def _device(config: Config) -> tuple[str, int]:
    """What the engine runs on, and its memory in bytes; 0 on a CPU. Half precision means a GPU, here or elsewhere."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    return ("the CPU", 0) if config.model.dtype == "float32" else (f"a GPU of {ASSUMED_GPU // GB} GB", ASSUMED_GPU)


def _engine_bytes(config: Config, shape: ModelShape, total: int) -> int:
    rollout = config.rollout
    weights = shape.parameters * BYTES[config.model.dtype] // rollout.tensor_parallel_size
    if rollout.kv_cache_gb is not None:
        return weights + int(rollout.kv_cache_gb * GB)
    return int(rollout.gpu_memory_utilization * total) if total else weights + CPU_CACHE


def _files(config: Config, shape: ModelShape | None, place: Placement) -> str:
    run, every, tracker = config.train.output_dir, config.checkpoint.every, config.tracker
    size = f" of {checkpoint_bytes(config, shape, place) / GB:,.1f} GB" if shape else ""
    names = ["config.yaml", "metrics.jsonl", *(["eval.jsonl"] if config.eval.data else [])]
    if tracker.samples_every:
        names.append(f"samples/ every {tracker.samples_every} steps")
    if every:
        names.append(f"checkpoints/ every {every} steps, the newest {config.checkpoint.keep}{size} each")
    if tracker.wandb != "off":
        names.append(f"wandb/ ({tracker.wandb})")
    return f"[bold]Files[/bold] in {run}: {', '.join([*names, 'model/ at the end'])}"


def notes(config: Config, place: Placement) -> Iterator[str]:
    """What is allowed but worth a second look."""
    run, loss, optim = config.train.output_dir, config.loss, config.optim
    if (run / "metrics.jsonl").exists():
        yield f"{run} holds a run already: --resume auto continues it, train.output_dir=… starts another"
    if optim.num_minibatches * optim.num_iterations == 1:
        same = ", and gspo is grpo" if loss.kind == "gspo" else ""
        yield f"with one update a step the ratio is 1 and nothing is clipped{same}; optim.num_minibatches sets more"
    if config.train.prompts_per_step % place.ranks:
        yield (
            f"train.prompts_per_step {config.train.prompts_per_step} is not a multiple of {place.ranks} processes: "
            "some generate more than others"
        )
    longest = config.data.max_prompt_length + config.rollout.max_completion_length - 1
    if longest > config.train.max_tokens_per_microbatch:
        yield (
            f"a sequence may have {longest:,} tokens, more than train.max_tokens_per_microbatch "
            f"{config.train.max_tokens_per_microbatch:,}: it gets a micro-batch of its own"
        )
    if config.model.dtype != "float32" and loss.old_logprobs == "engine":
        yield "in half precision the engine's log-probabilities are not the actor's; loss.old_logprobs: actor is safer"
