"""Configurations of the learning experiments: methods, controls, comparisons and studies."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.learning.runs import Cell, Runs, seconds

RATES = (1e-4, 2e-4, 4e-4)
CLIPS = ((0.01, 0.013), (0.03, 0.04), (0.1, 0.13))  # GSPO's 3e-4 and 4e-4 are for thousands of tokens, not for 35
BASES = ("tiny:precedence", "tiny:precedence@1")
HALF_WARMUP = "half warm-up"  # placeholder for the first base model after half of its warm-up steps

D3S, GRPO, GSPO = (f"configs/method/{name}.yaml" for name in ("d3s", "grpo", "gspo"))
ALL_ROLLOUTS = ("schedule.n_init=null", "schedule.n_final=null")
PAPER_SCHEDULE = ("schedule.n_init=4", "schedule.n_final=16", "schedule.k_init=0.05", "schedule.k_final=0.2")
CONSTANT_SHAPES = ("schedule.n_shape=constant", "schedule.k_shape=constant")
CONSTANT = (*CONSTANT_SHAPES, "schedule.n_init=8", "schedule.k_init=0.2")
SMALL_GROUP = "GRPO, G = 4"

METHODS = [
    Cell("GRPO", (GRPO,)),
    Cell(SMALL_GROUP, (GRPO, "rollout.num_generations=4")),
    Cell("GSPO", (GSPO,)),
    Cell("PODS", ("configs/method/pods.yaml",)),
    Cell("D1S", ("configs/method/d1s.yaml",)),
    Cell("D1S-Cross", ("configs/method/d1s_cross.yaml",)),
    Cell("D2S", ("configs/method/d2s.yaml",)),
    Cell("D3S", (D3S,)),
    Cell("D3S-I", ("configs/method/d3s_i.yaml",)),
    Cell("D3S on GSPO", (GSPO, D3S, *PAPER_SCHEDULE)),
    Cell("D3S, fixed", (D3S, *CONSTANT)),
    Cell("tokens by H alone", (D3S, "selector.tokens=entropy")),
    Cell("tokens of each rollout", (D3S, "selector.token_scope=sample")),
    Cell("random rollouts", (D3S, "selector.rollouts=random")),
    Cell("random tokens", (D3S, "selector.tokens=random")),
]
BY_NAME = {method.name: method for method in METHODS}


@dataclass(frozen=True)
class Comparison:
    """A claim that holds if `method` reaches a higher Pass@1 than `reference` in as many steps."""

    claim: str
    method: str
    reference: str


COMPARISONS = [
    Comparison("Both selections and the schedule beat plain GRPO", "D3S", "GRPO"),
    Comparison("Selecting rollouts across the batch beats selecting in each group", "D1S-Cross", "D1S"),
    Comparison("The same, with token selection and the schedule", "D3S", "D3S-I"),
    Comparison("Tokens by \\|A\\| x H at a fixed K beat all tokens", "D2S", "D1S-Cross"),
    Comparison("N and K that grow beat N and K fixed at their first values", "D3S", "D2S"),
    Comparison("N and K that grow beat N = 8 and K = 20 % throughout", "D3S", "D3S, fixed"),
    Comparison("Both selections and the schedule beat plain GSPO, both with GSPO's denominator", "D3S on GSPO", "GSPO"),
    Comparison("D3S's N from 4 to 16 of 16 beats PODS's N = 4, with different denominators", "D3S", "PODS"),
    Comparison("PODS's own claim: the best 4 of 16 responses beat 4 responses", "PODS", SMALL_GROUP),
    Comparison("Rollouts of largest variance beat random rollouts", "D3S", "random rollouts"),
    Comparison("Tokens by \\|A\\| x H beat random tokens", "D3S", "random tokens"),
    Comparison("Tokens by \\|A\\| x H beat tokens by H alone", "D3S", "tokens by H alone"),
    Comparison("K % of the batch's tokens beats K % of each rollout's", "D3S", "tokens of each rollout"),
]


@dataclass(frozen=True)
class Study:
    """A further comparison of cells against the first of them."""

    title: str
    bases: tuple[str, ...]
    cells: list[tuple[Cell, str]]  # each with the method whose swept settings it takes


def constant_d3s(name: str, *overrides: str) -> Cell:
    """D3S with N and K constant over training."""
    return Cell(name, (D3S, *CONSTANT_SHAPES, *overrides))


def on_countdown(name: str) -> tuple[Cell, str]:
    """A method on the second synthetic task."""
    return BY_NAME[name].extended("configs/countdown.yaml").renamed(f"{name}, on countdown"), name


GROUP_OF_32 = ("rollout.num_generations=32", "train.prompts_per_step=4")  # as many responses as in the other studies

STUDIES = [
    Study(
        "Countdown, where many answers are right",
        ("tiny:countdown",),
        [on_countdown(name) for name in ("GRPO", "PODS", "D3S", "D3S, fixed", "random rollouts")],
    ),
    Study(
        "The schedule",
        BASES[:1],
        [
            (BY_NAME["D3S"], "D3S"),
            (constant_d3s("fixed: N = 8, K = 10 %", "schedule.n_init=8", "schedule.k_init=0.1"), "D3S"),
            (
                constant_d3s("fixed, as many tokens: N = 10, K = 14 %", "schedule.n_init=10", "schedule.k_init=0.14"),
                "D3S",
            ),
            (Cell("two phases", (D3S, "schedule.n_shape=step", "schedule.k_shape=step")), "D3S"),
        ],
    ),
    Study(
        "A weaker base model: half of the warm-up",
        (HALF_WARMUP,),
        [(BY_NAME[name].renamed(f"{name} on a weak base"), name) for name in ("GRPO", "D3S", "D3S-I")],
    ),
    Study(
        "N of G = 32 responses, K = 10 %",
        BASES[:1],
        [
            (constant_d3s(f"N = {n}", *GROUP_OF_32, f"schedule.n_init={n}", "schedule.k_init=0.1"), "D3S")
            for n in (32, 16, 8, 4)
        ],
    ),
    Study(
        "K at N = G = 16",
        BASES[:1],
        [(constant_d3s(f"K = {k:.0%}", *ALL_ROLLOUTS, f"schedule.k_init={k}"), "D3S") for k in (1.0, 0.5, 0.2, 0.05)],
    ),
]


def equal_time(rows: dict[str, Runs]) -> Study:
    """Methods with as many steps as fit into GRPO's seconds, by the mean seconds per step of their runs in `rows`.

    The schedules of N, K and the learning rate stretch over the new number of steps.
    """
    cells = [(BY_NAME["GRPO"], "GRPO")]
    for name in (SMALL_GROUP, "PODS", "D1S-Cross", "D3S", "D3S, fixed"):
        steps = round(rows[name][0][0].last_step * seconds(rows["GRPO"]) / seconds(rows[name]))
        cells.append((BY_NAME[name].extended(f"train.steps={steps}").renamed(f"{name}, {steps} steps"), name))
    return Study("As many steps as fit into GRPO's seconds, every schedule run to its end", BASES, cells)


def sweep_settings(method: Cell, rates: Sequence[float]) -> dict[tuple[str, float], tuple[str, ...]]:
    """Overrides to try for a method, by clip and learning rate. Clips vary only where a sequence ratio is clipped."""
    clips = {"–": ()}
    if GSPO in method.arguments:
        clips = {f"{low} / {high}": (f"loss.epsilon={low}", f"loss.epsilon_high={high}") for low, high in CLIPS}
    return {(clip, rate): (f"optim.learning_rate={rate}", *clips[clip]) for rate in rates for clip in clips}
