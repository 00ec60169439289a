"""One row of the results: a configuration with its runs, and the parts that rows are made of.

`arguments` of a row are configuration files and section.key=value overrides over configs/tiny.yaml,
configs/ablation.yaml and COMMON. Its learning rate is searched on validation problems unless it is given or that of
another row. Runs are recorded under the name of their row: a row that changes what it trains needs a new name. Name
methods by their overlays, `method("vade")`.
"""

from dataclasses import dataclass

BASES = ("tiny:precedence", "tiny:precedence@1")
D3S, GRPO, GSPO = (f"configs/method/{name}.yaml" for name in ("d3s", "grpo", "gspo"))
# With a constant rate, a point of a run's curve is the end of a shorter run; schedules of N and K are the exception.
COMMON = ("optim.lr_schedule=constant", "checkpoint.every=0")
TASKS = (BASES[0], "tiny:countdown")  # the first base model of each, whose name begins those of the others
REWARDS = "research.step_rewards"
TEACHER = "runs/base/teacher/model"  # trained by jobs.train before the first run that names it
TASK_BASES = (*BASES, TASKS[1], f"{TASKS[1]}@1")


def method(name: str) -> str:
    """The overlay of a method."""
    return f"configs/method/{name}.yaml"


def shape(responses: int, group: int) -> tuple[str, ...]:
    """G, and as many problems as fill the responses of a step."""
    return f"rollout.num_generations={group}", f"train.prompts_per_step={responses // group}"


def fixed(n: int, k: float) -> tuple[str, ...]:
    """D3S with N and K constant over training."""
    constant = ("schedule.n_shape=constant", "schedule.k_shape=constant")
    return D3S, *constant, f"schedule.n_init={n}", f"schedule.n_final={n}", f"schedule.k_init={k}"


@dataclass(frozen=True)
class Row:
    """A configuration with its runs."""

    name: str
    arguments: tuple[str, ...]
    steps: int = 72
    every: int = 12  # steps between evaluations
    bases: tuple[str, ...] = TASK_BASES
    seeds: int = 2  # on each base
    problems: int = 256
    rate_of: str | None = None  # takes the learning rate of this row
    rate: float | None = None  # has this learning rate, without a search
    searches: int = 1  # runs on each of these that score a learning rate
    search_bases: tuple[str, ...] = TASKS
    search_steps: int | None = None  # of these runs, about those that equal seconds allow; None: steps
    clips: bool = False  # the clip of the sequence ratio is searched too
    scheduled: bool = False  # N or K follows the share of steps done, so only the end of a curve counts
    first_seed: int = 0
