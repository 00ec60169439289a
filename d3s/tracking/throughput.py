"""Rates of a training step: tokens per second, and the FLOPs of its update against dense GRPO and the device's peak."""

from typing import Any

import torch
from accelerate import Accelerator

from d3s.config.schema import Config
from d3s.packing import causal_pairs
from d3s.rollout.groups import RolloutGroups
from d3s.tracking.flops import ModelShape, adapter_parameters, peak_flops, update_flops


class Throughput:
    """Computes the metrics of a run whose model has the content `model` in its config.json.

    FLOPs are counted for the model types of d3s/plan/memory.py; of others the run has no metric that needs them.
    """

    def __init__(self, config: Config, model: dict[str, Any], accelerator: Accelerator) -> None:
        self._shape = ModelShape.of(model)
        self._adapters = adapter_parameters(config, self._shape) if self._shape else 0
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
