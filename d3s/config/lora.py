"""The options of LoRA: low-rank adapters on a frozen model."""

from typing import Annotated, Literal

from pydantic import Field

from d3s.config.fields import Count, Number, Section


class LoraConfig(Section):
    rank: Count | None = None
    """Train adapters of this rank on a frozen model, see docs/running.md#lora; null or 0 trains all weights. One
    process or DDP."""
    alpha: Annotated[Number, Field(gt=0)] = 32
    """Scale of the adapters: a weight W becomes W + alpha / rank B A."""
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Adapted layers: all linear layers except the head, or those with one of these names, such as q_proj."""
