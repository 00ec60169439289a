"""Print the plan of a run on one screen: train.py --dry-run --config FILE ...

Reads the configuration, local data and the tokenizer; loads no model and no engine.
"""

import os
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from d3s.cgroups import free_memory
from d3s.config.schema import Config
from d3s.data.order import ORDER_RULES
from d3s.fitting import choose_recomputation, fit_cpu, launched
from d3s.flops import ModelShape
from d3s.launch import check_requirements
from d3s.loss import LOSS_RULES, reads_sequences
from d3s.memory import (
    FITS,
    GB,
    Placement,
    checkpoint_bytes,
    engine_bytes,
    engine_sequences,
    engine_sleeps,
    largest_microbatch,
    memory,
    peaks,
    recomputed_layers,
)
from d3s.packing import MICROBATCH
from d3s.passes import Passes, forward_passes
from d3s.plan.machine import check_data, check_lora, engine_device, labeled, model_row, reference_rows
from d3s.plan.selection import controller_rows, first_and_last_n, reward_rows, schedule_table, selection_rows
from d3s.rollout.named import ENGINE_RULES
from d3s.rollout.strategy import STRATEGY_RULES
from d3s.rules import rule_name
from d3s.schedule import MOVES, evaluation_problem, follow_has, schedule_bounds
from d3s.shapes import find_shape
from d3s.threads import planned_threads, usable_cores
from d3s.trials import attempt_rules

MB = 2**20
VISITS = 2  # of a problem, below which earlier outcomes hardly change data.order
ZERO3_FORMULA = "ZeRO-3 on W ranks: (b + 4 + 12) P/W, with offload bP/W, on nodes of R bP/R more, and gathered layers"
LAUNCHERS = {Placement(8, True): "zero3_8gpu.yaml", Placement(8, True, True): "zero3_8gpu_offload.yaml"}
MEMORY_LABELS = {  # of the rows whose label is not the key of memory() or peaks()
    "reference": "reference model",
    "copies": "weight copies",
    "stepping": "optimizer step",
    "generate": "peak while generating",
    "update": "peak while updating",
}


def print_plan(config: Config, console: Console | None = None) -> None:
    """Print what a run with this configuration computes, needs and writes. Under a launcher only rank 0 prints.

    Raises: UserError for an impossible model name, local data that cannot be read, prompts over the limit, or a missing
        function that the options name.
    """
    if os.environ.get("RANK", "0") != "0":
        return
    console = console or Console()
    check_requirements(config)
    attempt_rules(config)
    check_lora(config)
    place = launched()
    model, shape = model_row(config, place), find_shape(config.model.name)
    data, problems, longest = check_data(config)
    options = [*_option_rows(config, shape, problems), *reward_rows(config), *selection_rows(config)]
    threads = ("threads", f"{planned_threads(shape and shape.parameters)} of {usable_cores()} usable cores")
    rows = [model, threads, *_batch_rows(config, problems), *options, *reference_rows(config), *data]
    passes = forward_passes(config, schedule_bounds(config)[1][0])
    parts = [labeled(rows), schedule_table(config), _passes_table(config, passes)]
    if shape is None:
        parts.append(f"Memory: unknown; {config.model.name} is not on this machine, or its model type is not supported")
    else:
        parts += _memory_part(config.updated(data={"max_prompt_length": longest}), shape, place)
    for part in [*parts, _files(config, shape, place)]:
        console.print(part, highlight=False)
    for note in notes(config, place):
        console.print(f"[yellow]note:[/yellow] {escape(note)}", highlight=False)


# --- batch -----------------------------------------------------------------------------------------------------------


def _batch_rows(config: Config, problems: int | None) -> Iterator[tuple[str, str]]:
    b, g, steps = config.train.prompts_per_step, config.rollout.num_generations, config.train.steps
    epochs = f", {steps * b / problems:.2g} epochs" if problems else ""
    yield "rollouts", f"B {b} x G {g} = {b * g:,} per step, {b * g * steps:,} in {steps:,} steps{epochs}"
    batches, passes = config.optim.num_minibatches, config.optim.num_iterations
    first, last = (n * b / batches for n in first_and_last_n(config))
    size = f"about {first:,.0f} rollouts in the first step, {last:,.0f} in the last"
    if follow_has(config, *MOVES):
        size = f"between {first:,.0f} and {last:,.0f} rollouts"
    yield "updates", f"{batches * passes} per step (mini-batches {batches} x passes {passes}), each of {size}"
    yield from controller_rows(config)


def _option_rows(config: Config, shape: ModelShape | None, problems: int | None) -> Iterator[tuple[str, str]]:
    """What LoRA trains, how data.order chooses problems, if often enough, and how responses are sampled."""
    lora, data, train = config.lora, config.data, config.train
    if lora.rank:
        layers = "all linear layers" if lora.targets == "all-linear" else ", ".join(lora.targets)
        trained = shape.adapter_parameters(lora.rank, lora.targets) if shape else 0
        size = f"; {trained / 1e6:,.2f} M parameters are trained" if shape else ""
        yield "lora", f"rank {lora.rank}, alpha {lora.alpha:g}, on {layers}{size}"
    if data.order != "shuffle":
        yield "order", ORDER_RULES.rule(data.order).summary
        visits = train.steps * train.prompts_per_step / problems if problems else VISITS
        if visits < VISITS:
            yield "", f"each problem is asked {visits:.2g} times on average: too few to differ from shuffle"
    if (engine := ENGINE_RULES.rule(config.rollout.engine)).own:
        yield "engine", engine.summary
    if config.rollout.strategy != "plain":
        yield "strategy", STRATEGY_RULES.rule(config.rollout.strategy).summary


# --- passes ----------------------------------------------------------------------------------------------------------


def _passes_table(config: Config, passes: Passes) -> Table:
    """The actor's passes in one step, in their order: name, whether it runs, and the reason."""
    loss, reasons = config.loss, []
    correction = rule_name(loss.engine_correction)
    if correction != "none":
        reasons.append(f"loss.engine_correction: {correction}")
    if passes.several_updates and loss.old_logprobs == "actor":
        reasons.append("several updates per step need pi_old (loss.old_logprobs: actor)")
    unneeded = "loss.old_logprobs: engine" if passes.several_updates else "not needed by one update"
    update = "kept rollouts, each up to its last selected token; head on selected tokens only"
    if passes.full_rollouts:
        update = "all tokens of rollouts with a selected one, for the sequence ratio"
    elif correction not in ("none", "truncate"):
        update += ", without masked ones"
    rows = [
        ("logprobs of kept rollouts", passes.kept_rollouts, "ranks tokens with selector.entropy_source: actor"),
        ("logprobs of selected tokens", passes.selected_tokens, "; ".join(reasons) or unneeded),
        ("reference model", passes.reference or passes.ranking_reference, _reference_reason(config, passes)),
        ("forward and backward", True, update),
    ]
    table = Table(title="Passes of the actor per step", show_header=False)
    for name, runs, reason in rows:
        table.add_row(name, "[green]yes[/green]" if runs else "no", reason)
    return table


def _reference_reason(config: Config, passes: Passes) -> str:
    if passes.ranking_reference:
        return "all tokens of the kept rollouts: selector.tokens takes ref_logprobs"
    takes = passes.reference and not config.loss.beta
    return "loss.kind takes ref_logprobs" if takes else f"loss.beta: {config.loss.beta:g}"


# --- memory ----------------------------------------------------------------------------------------------------------


def _memory_part(config: Config, shape: ModelShape, place: Placement) -> Iterator[Table | str]:
    """Memory per process for usual placements and the launched one, and the formulas."""
    from d3s.policy import CHUNK_ELEMENTS

    device, gpu = engine_device(config)
    places = {"1 process": Placement()}
    if gpu and not config.lora.rank:
        places |= {"8 x ZeRO-3": Placement(8, True), "8 x offload": Placement(8, True, True)}
    if place not in places.values():
        places["launched"] = place
    chunk_elements, free = CHUNK_ELEMENTS["cuda" if gpu else "cpu"], gpu or free_memory()
    if free and not gpu:
        config = fit_cpu(config, shape, place, chunk_elements, free)
    engine, columns, recomputed = engine_bytes(config, shape, gpu), [], []
    for placement in places.values():
        planned = choose_recomputation(config, shape, placement, chunk_elements, gpu, gpu)
        recomputed.append(recomputed_layers(planned, shape))
        parts = memory(planned, shape, placement, chunk_elements) | {"engine": engine}
        columns.append(parts | peaks(parts, engine, engine_sleeps(config, gpu), placement.zero3))
    unit, size = ("GB", GB) if max(column["update"] for column in columns) >= GB else ("MB", MB)
    title = f"{unit} per process: {shape.parameters / 1e6:,.2f} M parameters, {device}"
    launch = " (*: this launch)" if len(places) > 1 else ""
    table = Table("", title=title, caption=f"micro-batches of {largest_microbatch(config):,} tokens{launch}")
    for heading, placement in places.items():
        table.add_column(heading + (" *" if launch and placement == place else ""), justify="right")
    for key in columns[0]:
        if any(column[key] for column in columns):
            style = "bold" if key in ("generate", "update") else ""
            cells = (f"{'[red]' if 0 < gpu < column[key] else ''}{column[key] / size:,.1f}" for column in columns)
            table.add_row(MEMORY_LABELS.get(key, key), *cells, style=style)
    if any(recomputed):
        table.add_row("recomputed layers", *(f"{layers} of {shape.layers}" for layers in recomputed))
    most = [max(column["generate"], column["update"]) for column in columns]
    if free:
        where = f"a GPU of {gpu / GB:,.0f} GB" if gpu else f"{free / GB:,.1f} GB free here"
        table.add_row(where, *(_verdict(peak, free) for peak in most), style="bold")
    yield table
    peak_of = dict(zip(places.values(), most))
    fitting = [name for other, name in LAUNCHERS.items() if peak_of.get(other, gpu) < gpu < peak_of[place]]
    if fitting:
        yield f"This launch does not fit; accelerate launch --config_file configs/accelerate/{fitting[0]} does."
    yield (
        "For P parameters of b bytes: weights 4P, gradients 4P (DDP 8P), optimizer 8P, copies 2P in half precision; "
        + ("LoRA: the same for the parameters of the adapters, and bP" if config.lora.rank else ZERO3_FORMULA)
        + ". Copies, activations and head are released before the optimizer step. Details: d3s/memory.py."
    )
    if config.rollout.engine == "vllm" and not config.rollout.servers:
        sequences = f"{engine_sequences(config, shape, engine):,} sequences of full length"
        limit = f"rollout.max_num_seqs is {config.rollout.max_num_seqs}"
        yield f"The engine's memory holds its weights and {sequences} ({limit})."


def _verdict(peak: int, gpu: int) -> str:
    """Whether a peak fits in a GPU of `gpu` bytes."""
    if peak > gpu:
        return "[red]does not fit"
    return "fits" if peak <= FITS * gpu else "[yellow]fits barely"


# --- files and notes -------------------------------------------------------------------------------------------------


def _files(config: Config, shape: ModelShape | None, place: Placement) -> str:
    every, keep, tracker = config.checkpoint.every, config.checkpoint.keep, config.tracker
    size = f", each of {checkpoint_bytes(config, shape, place) / GB:,.1f} GB" if shape else ""
    names = ["config.yaml", "metrics.jsonl", *(["eval.jsonl"] if config.eval.data else [])]
    if tracker.samples_every:
        names.append(f"samples/ every {tracker.samples_every} steps")
    if every:
        names.append(f"checkpoints/ every {every} steps (the newest {keep} are kept{size})")
    if config.train.profile_steps:
        names.append(f"profile/ of {len(config.train.profile_steps)} steps")
    names += [f"{name}/" for name in tracker.mirrors]
    if config.eval.keep_best:
        names.append("best/ (the model of the best avg@n)")
    at_end = "model/ and adapter/ at the end" if config.lora.rank else "model/ at the end"
    return f"[bold]Files[/bold] in {escape(str(config.train.output_dir))}: {', '.join([*names, at_end])}"


def notes(config: Config, place: Placement) -> Iterator[str]:
    """Settings that are valid but may not be intended."""
    folder, loss, optim = config.train.output_dir, config.loss, config.optim
    if (folder / "metrics.jsonl").exists():
        yield f"{folder} contains a run: continue it with --resume auto, or choose another train.output_dir"
    if optim.num_minibatches * optim.num_iterations == 1:
        sequences = reads_sequences(LOSS_RULES.rule(loss.kind))
        same = f", {rule_name(loss.kind)} equals a token-level loss" if sequences else ""
        problem = f"with one update per step the ratio is 1 and nothing is clipped{same}"
        yield f"{problem}; optim.num_minibatches sets the number of updates"
    if problem := evaluation_problem(config):
        yield problem
    if config.train.prompts_per_step % place.ranks:
        problem = f"train.prompts_per_step {config.train.prompts_per_step} is not a multiple of {place.ranks} processes"
        yield f"{problem}: some generate more than others"
    longest = config.data.max_prompt_length + config.rollout.max_completion_length - 1
    if longest > (limit := config.train.max_tokens_per_microbatch or MICROBATCH):
        problem = f"the longest sequence has {longest:,} tokens, more than train.max_tokens_per_microbatch {limit:,}"
        yield f"{problem}: it gets a micro-batch of its own"
    if config.model.dtype != "float32" and loss.old_logprobs == "engine":
        yield "in half precision engine and actor differ; loss.old_logprobs: actor is more accurate"
