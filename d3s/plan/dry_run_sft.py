"""Print the plan of a supervised run on one screen: train_sft.py --dry-run --config FILE ...

Reads the configuration and local data; loads no model.
"""

import os
from collections.abc import Iterator

from rich.console import Console

from d3s.config.checks import contract_of
from d3s.config.schema import Config
from d3s.data.demonstrations import read_demonstrations
from d3s.data.problems import is_hub_name
from d3s.fitting import launched
from d3s.launch import check_requirements
from d3s.plan.machine import check_lora, labeled, model_row
from d3s.schedule import learning_rate


def print_plan(config: Config, console: Console | None = None) -> None:
    """Print what a run of train_sft.py computes and writes. Under a launcher only rank 0 prints.

    Raises: UserError for an impossible model name and for local data that cannot be read.
    """
    if os.environ.get("RANK", "0") != "0":
        return
    check_requirements(config)
    check_lora(config)
    (console or Console()).print(labeled(_rows(config)), highlight=False)


def _rows(config: Config) -> Iterator[tuple[str, str]]:
    sft, data, train, optim = config.sft, config.data, config.train, config.optim
    yield model_row(config, launched())
    if config.lora.rank:
        yield "lora", f"rank {config.lora.rank}, alpha {config.lora.alpha:g}; other weights are frozen"
    total = train.steps * train.prompts_per_step
    if is_hub_name(data.path):
        yield "data", f"{data.path} from the hub, not read; {total:,} demonstrations are taken in {train.steps:,} steps"
    else:
        count = len(read_demonstrations(data, train.seed))
        yield "data", f"{data.path}: {count:,} demonstrations; {total:,} are taken, {total / count:.2g} passes"
    if sft.held_out:
        when = "before and after training" + (f", and every {config.eval.every} steps" if config.eval.every else "")
        yield "held out", f"{sft.held_out:.0%} of the demonstrations; their loss {when}"
    yield "update", f"1 per step, of {train.prompts_per_step} demonstrations over all ranks; {train.steps:,} steps"
    yield "pruning", _pruning(config)
    steps = sorted({0, train.steps // 2, train.steps - 1})
    rates = (f"{learning_rate(step, train.steps, optim):.2g} in step {step + 1}" for step in steps)
    yield "learning rate", ", ".join(rates)
    saved = f", a checkpoint every {config.checkpoint.every} steps" if config.checkpoint.every else ""
    at_end = "model/ and adapter/ at the end" if config.lora.rank else "model/ at the end"
    yield "files", f"{train.output_dir}: config.yaml, metrics.jsonl{saved}, {at_end}"


def _pruning(config: Config) -> str:
    """What is pruned, and the passes that a step needs."""
    if config.sft.prune == "none":
        return "none; one forward and backward pass over every demonstration"
    rule = contract_of("sft.prune").rule(config.sft.prune)
    first = "a forward pass over all demonstrations, then " * bool({"logprobs", "entropies"} & rule.takes)
    kept = "kept demonstrations up to their last kept token, head on kept tokens alone"
    return f"{rule.summary}; {first}forward and backward over {kept}"
