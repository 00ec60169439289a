"""Building blocks of the learning experiments: overlays, base models, and groups of overrides."""

BASES = ("tiny:precedence", "tiny:precedence@1")
D3S, GRPO, GSPO = (f"configs/method/{name}.yaml" for name in ("d3s", "grpo", "gspo"))
CONSTANT_SHAPES = ("schedule.n_shape=constant", "schedule.k_shape=constant")


def method(name: str) -> str:
    """The overlay of a method."""
    return f"configs/method/{name}.yaml"


def shape(responses: int, group: int) -> tuple[str, ...]:
    """G, and as many problems as fill the responses of a step."""
    return f"rollout.num_generations={group}", f"train.prompts_per_step={responses // group}"


def fixed(n: int, k: float) -> tuple[str, ...]:
    """D3S with N and K constant over training."""
    return D3S, *CONSTANT_SHAPES, f"schedule.n_init={n}", f"schedule.n_final={n}", f"schedule.k_init={k}"
