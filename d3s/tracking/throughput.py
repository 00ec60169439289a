"""What a training step costs: tokens per second, FLOPs against dense GRPO and the device's peak, CPU time."""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from d3s.config.schema import Config
from d3s.flops import ModelShape, peak_flops, update_flops
from d3s.groups import RolloutGroups
from d3s.packing import causal_pairs


class Throughput:
    """Computes the metrics of a run whose model has the content `model` in its config.json.

    FLOPs and MFU are logged for the model types in flops.FAMILIES only.
    """

    def __init__(self, config: Config, model: dict[str, Any], accelerator: Accelerator) -> None:
        self._shape = ModelShape.of(model)
        self._adapters = self._shape.adapter_parameters(config.lora.rank, config.lora.targets) if self._shape else 0
        self._iterations, self._ranks = config.optim.num_iterations, accelerator.num_processes
        on_gpu = accelerator.device.type == "cuda" and config.model.dtype == "bfloat16"
        self._peak = peak_flops(torch.cuda.get_device_name(accelerator.device)) if on_gpu else None

    def update(self, steps: list[dict[str, Any]], groups: RolloutGroups, prompts: list[list[int]]) -> dict[str, float]:
        """FLOPs of a step's update, and their share of those of an update on every token of every rollout.

        Args:
            steps: see Actor.update.
            groups: the rollouts of the step.
            prompts: token ids of every prompt, to which groups.problems refer.
        """
        if self._shape is None:
            return {}
        amounts = [{name: step[name] for name in ("forwarded", "rows", "tokens", "pairs")} for step in steps]
        flops = sum(update_flops(self._shape, **amount, adapters=self._adapters) for amount in amounts)
        prompt_lengths = torch.tensor([len(prompts[problem]) for problem in groups.problems])
        forwarded = (groups.lengths + prompt_lengths[:, None] - 1).flatten().tolist()
        rows = int(groups.lengths.sum())
        dense = update_flops(self._shape, sum(forwarded), rows, rows, causal_pairs(forwarded), self._adapters)
        return {"selection/flops": flops, "selection/flops_share": flops / (self._iterations * dense)}

    def rates(self, metrics: dict[str, float], seconds: dict[str, float]) -> dict[str, float]:
        """Tokens per second and model FLOP utilization of a step with these metrics and seconds by phase."""
        rate = metrics["selection/tokens_total"] / seconds["step"]
        rates = {"throughput/tokens_per_s": rate, "throughput/tokens_per_s_per_rank": rate / self._ranks}
        if self._peak and "selection/flops" in metrics:
            rates["throughput/mfu"] = metrics["selection/flops"] / (seconds["update"] * self._ranks * self._peak)
        return rates


def cpu_seconds() -> float:
    """CPU time of this process and of all processes below it, running ones included where /proc lists them."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    waiting = _children("self")
    while waiting:
        process = waiting.pop()
        with suppress(OSError):  # it may end meanwhile
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime
            waiting += _children(process)
    return seconds


def _children(process: str) -> list[str]:
    """Process numbers of the children that each thread of a process has started."""
    numbers = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            numbers += path.read_text().split()
    return numbers
