"""What research/beyond.py trains: the sections of research/beyond-tables.md and their rows.

How to add a section: append `Section(name, title, rows)` to SECTIONS at the place of its topic. A row is

    row(label, steps, *arguments)      arguments: configuration files and section.key=value overrides

over configs/tiny.yaml and configs/ablation.yaml (48 steps of 8 problems x 16 responses, transformers engine, rate 3e-4:
state the learning rate). Every row runs on every base and seed of its section. All rows are compared with the first one
and with those named in `rivals`, paired by base, seed and problem. Choose `steps` so that the CPU seconds of all rows
agree: `python -m research.equal_seconds --section NAME`. Rows with equal settings and labels share their
runs, also between sections.
"""

from dataclasses import dataclass

from research.methods import BASES, D3S, GRPO, fixed, method, shape
from research.runs import Cell

COUNTDOWN = "tiny:countdown"
CODE_BASE = "tiny:code"
HOPELESS = "configs/method/hopeless.yaml"
SMALL_GROUPS = "configs/method/small_groups.yaml"
RATE = "optim.learning_rate=2e-4"


@dataclass(frozen=True)
class Section:
    """Rows that are compared with each other."""

    name: str  # of the marks in research/beyond-tables.md and for --section
    title: str
    rows: tuple[Cell, ...]
    rivals: tuple[str, ...] = ()  # labels of further rows that all rows are compared with
    bases: tuple[str, ...] = BASES[:1]  # countdown bases bring configs/countdown.yaml
    seeds: int = 5
    split: str = "test"  # validation for searches: their seeds start at 100 instead of 10
    levels: bool = False  # add Pass@1 by level of difficulty, of precedence alone: 3 and 4 operands
    explain: bool = False  # add a table of what was logged: usefulness, groups, gradient norm, largest |A|
    sampled: bool = False  # add a table of what was sampled: distinct responses, reward, entropy, tokens decoded


def row(label: str, steps: int, *arguments: str) -> Cell:
    """A configuration with its number of steps."""
    return Cell(label, (*arguments, f"train.steps={steps}"))


def shares(rate: str) -> tuple[Cell, ...]:
    """D3S with N = 8 and K = 20 %, between groups and batch in several ways, and two other limits of its advantages."""
    rows = {
        "D3S": (),
        "D3S-I": ("selector.cross_group=false",),
        "half across the batch": ("selector.cross_share=0.5",),
        "automatic share": ("selector.cross_share=auto",),
        "D3S, abs. A at most 3": ("selector.max_advantage=3",),
        "D3S, deviation of the batch": ("reward.advantages=batch",),
    }
    return tuple(row(label, 66, rate, *fixed(8, 0.2), *overrides) for label, overrides in rows.items())


def orders(problems: int, steps: dict[str, int], label: str, *arguments: str) -> tuple[Cell, ...]:
    """A method on the first `problems` problems of the task, in the orders that `steps` names with their steps."""
    few = (*arguments, f"data.limit={problems}", RATE, *shape(128, 8))
    return tuple(row(f"{label}, {order}", count, *few, *ORDERS[order]) for order, count in steps.items())


def code_scores(label: str, steps: tuple[int, int, int], *arguments: str) -> tuple[Cell, ...]:
    """A method on the task code under each reward.code_score, each with its steps."""
    scores = zip(("all", "rate", "calibrated"), steps)
    return tuple(
        row(f"{label}, {score}", count, *arguments, *CODE, f"reward.code_score={score}") for score, count in scores
    )


def rated(rate: str) -> tuple[str, ...]:
    """D3S with N = 8 and K = 20 % at a learning rate."""
    return *fixed(8, 0.2), f"optim.learning_rate={rate}"


LORA = "lora.rank=16"
VADE = "configs/method/vade.yaml"
CODE = ("optim.learning_rate=6e-4", *shape(256, 16))
ORDERS = {
    "shuffled": (),
    "VADE": (VADE,),
    "VADE, 1/8 uniform": (VADE, "data.uniform_share=0.125"),
    "MoPPS": ("configs/method/mopps.yaml",),
}

FUNCTIONS = "research.step_rewards"
SHAPERS = {
    "": (),
    ", first wrong step on": (method("spare_reachable"),),
    ", before it rewarded": (f"reward.shaper={FUNCTIONS}:reward_prefix",),
    ", first false equation on": (f"reward.shaper={FUNCTIONS}:spare_true_equations",),
    ", random step on": (f"reward.shaper={FUNCTIONS}:spare_random",),
}
STEP_REWARDS = {
    "": (),
    ", steps in the total": (f"reward.functions=[{FUNCTIONS}:reward_reachable_total]",),
    ", steps as spans": (f"reward.functions=[{FUNCTIONS}:reward_reachable_steps]",),
}
GRADED = "reward.functions=[d3s.data.synthetic:countdown_graded]"


def shaped(label: str, steps: int, *arguments: str) -> tuple[Cell, ...]:
    """A method with each shaper, 128 responses a step in groups of 8."""
    return tuple(row(f"{label}{name}", steps, *arguments, RATE, *shape(128, 8), *own) for name, own in SHAPERS.items())


VLLM = (RATE, *fixed(8, 0.2), "rollout.engine=vllm")

SECTIONS = [
    # --- many prompts, small groups ---
    Section(
        "small-groups",
        "Many prompts, small groups",
        (
            row("GRPO, G = 4", 46, GRPO, "optim.learning_rate=3e-4", *shape(128, 4)),
            row("GRPO, G = 16", 48, GRPO, RATE),
            row("D3S, G = 16, N 4 to 16, K 5 to 20 %", 58, D3S, RATE),
            row("D3S, G = 8, N 2 to 8, K 5 to 20 %", 55, SMALL_GROUPS, "optim.learning_rate=3e-4", *shape(128, 8)),
            row("D3S, G = 4, N = 2, K = 20 %", 50, "optim.learning_rate=3e-4", *shape(128, 4), *fixed(2, 0.2)),
        ),
        rivals=("GRPO, G = 16",),
        bases=(*BASES, COUNTDOWN),
        explain=True,
    ),
    # --- automatic share between intra and cross ---
    Section("share", "Share between groups and batch", shares(RATE), seeds=3, explain=True),
    Section(
        "share-high-rate",
        "Share between groups and batch at twice the learning rate",
        shares("optim.learning_rate=4e-4"),
        seeds=4,
        explain=True,
    ),
    Section(
        "share-collapse",
        "Share between groups and batch at four times the learning rate",
        tuple(cell for cell in shares("optim.learning_rate=8e-4") if cell.name in ("D3S", "D3S-I", "automatic share")),
        seeds=3,
        explain=True,
    ),
    # --- schedules that follow the training ---
    Section(
        "schedules",
        "Schedules that follow the training",
        (
            row("fixed: N = 8", 66, RATE, *fixed(8, 0.2)),
            row("fixed: N = 5", 67, RATE, *fixed(5, 0.2)),  # the mean N of coverage 0.8 and of the falling schedule
            row(
                "linear: N from 4 to 16, K from 5 to 20 %",
                65,
                RATE,
                D3S,
                "schedule.n_init=4",
                "schedule.n_final=16",
                "schedule.k_init=0.05",
            ),
            row(
                "linear: N from 8 to 2", 67, RATE, D3S, "schedule.n_init=8", "schedule.n_final=2", "schedule.k_init=0.2"
            ),
            row("coverage 0.8", 66, RATE, method("d3s_coverage")),
            row("coverage 0.9", 65, RATE, method("d3s_coverage"), "schedule.coverage_n=0.9"),
        ),
        rivals=("fixed: N = 5",),
        seeds=5,
        explain=True,
    ),
    # --- prompts before generation ---
    Section(
        "prompts-128",
        "Prompts before generation: 128 problems, each asked about 8 times",
        (
            *orders(128, dict.fromkeys(ORDERS, 66), "D3S", *fixed(4, 0.2)),
            *orders(128, dict(zip(ORDERS, (54, 47, 47, 48))), "GRPO", GRPO),
        ),
        rivals=("GRPO, shuffled",),
        seeds=3,
        levels=True,
        explain=True,
    ),
    Section(
        "prompts-512",
        "Prompts before generation: 512 problems, each asked about twice",
        (
            *orders(512, {"shuffled": 66, "VADE, 1/8 uniform": 66}, "D3S", *fixed(4, 0.2)),
            *orders(512, {"shuffled": 54, "VADE, 1/8 uniform": 50}, "GRPO", GRPO),
        ),
        rivals=("GRPO, shuffled",),
        seeds=3,
        levels=True,
        explain=True,
    ),
    # --- LATR ---
    Section(
        "tree",
        "Tree rollouts",
        (
            row("plain", 48, *VLLM),
            row("temperature 1.2", 48, *VLLM, "rollout.temperature=1.2"),
            row("half of each group from its tree", 40, *VLLM, method("latr")),
            row("all from the tree", 34, *VLLM, method("latr"), "rollout.tree_share=[[0,1.0]]"),
        ),
        rivals=("temperature 1.2",),
        bases=(COUNTDOWN,),
        seeds=3,
        sampled=True,
    ),
    # --- stopping hopeless generations ---
    Section(
        "hopeless",
        "Stopping hopeless generations, G = 8: 128 responses a step",
        (
            row("GRPO", 54, GRPO, RATE, *shape(128, 8)),
            row("GRPO, hopeless stopped", 62, GRPO, HOPELESS, RATE, *shape(128, 8)),
            row("D3S, N = 4", 66, RATE, *shape(128, 8), *fixed(4, 0.2)),
            row("D3S, N = 4, hopeless stopped", 74, HOPELESS, RATE, *shape(128, 8), *fixed(4, 0.2)),
        ),
        rivals=("D3S, N = 4", "GRPO, hopeless stopped"),
        explain=True,
    ),
    # --- graded and dense rewards ---
    Section(
        "graded",
        "Graded rewards: 0.2 for an expression of all numbers with another value",
        (
            row("GRPO", 54, GRPO, RATE, *shape(128, 8)),
            row("GRPO, graded", 54, GRPO, RATE, *shape(128, 8), GRADED),
            row("D3S", 66, RATE, *shape(128, 8), *fixed(4, 0.2)),
            row("D3S, graded", 66, RATE, *shape(128, 8), *fixed(4, 0.2), GRADED),
            row(
                "random rollouts, graded", 66, RATE, *shape(128, 8), *fixed(4, 0.2), GRADED, "selector.rollouts=random"
            ),
        ),
        rivals=("GRPO, graded", "D3S"),
        bases=(COUNTDOWN,),
        explain=True,
    ),
    Section(
        "dense",
        "Dense rewards: 0.2 for each step after which the answer can still be reached",
        tuple(
            row(f"{label}{name}", steps, *arguments, RATE, *shape(128, 8), *own)
            for label, counts, arguments in (("GRPO", (54, 52, 48), (GRPO,)), ("D3S", (64, 63, 62), fixed(4, 0.2)))
            for steps, (name, own) in zip(counts, STEP_REWARDS.items())
        ),
        rivals=("D3S", "D3S, steps in the total"),
        explain=True,
    ),
    # --- step-aware advantages ---
    Section(
        "steps",
        "Step-aware advantages: wrong answers are punished from one of their steps on",
        (*shaped("D3S", 66, *fixed(4, 0.2)), *shaped("GRPO", 53, GRPO)),
        rivals=("D3S, random step on", "GRPO"),
        bases=(BASES[0], COUNTDOWN),
        seeds=3,
    ),
    # --- Q-Tuning ---
    # --- rivals: CPPO, NAT, MaxRL, Pass@k, variance mass ---
    Section(
        "rivals",
        "Rivals at 128 responses a step",
        (
            row("GRPO, G = 16", 48, GRPO, RATE),
            row("D3S, N = 8, K = 20 %", 58, RATE, *fixed(8, 0.2)),
            row("CPPO, N = 4", 62, method("cppo"), RATE),
            row("CPPO, N = 4, refilled by 32 problems", 18, method("cppo"), RATE, "train.prompts_per_step=32"),
            row("NAT, half of the tokens", 49, method("nat"), RATE),
            row("NAT, prefixes", 54, method("nat_prefix"), RATE),
            row("MaxRL", 48, method("maxrl"), RATE),
            row("Pass@4 advantages", 48, method("pass_at_k"), RATE),
            row("variance mass 0.9", 52, method("variance_mass"), RATE),
        ),
        rivals=("D3S, N = 8, K = 20 %",),
        seeds=3,
        explain=True,
    ),
    # --- LoRA ---
    Section(
        "lora-rates",
        "LoRA: learning rates, at equal steps",
        (
            *(row(f"all weights, {rate}", 66, *rated(rate)) for rate in ("1e-4", "2e-4", "4e-4")),
            *(row(f"rank 16, {rate}", 66, LORA, *rated(rate)) for rate in ("5e-4", "1e-3", "2e-3", "4e-3")),
        ),
        rivals=("all weights, 2e-4",),
        seeds=3,
        split="validation",
    ),
    Section(
        "lora",
        "LoRA, at equal steps",
        (
            row("D3S, all weights", 66, *rated("2e-4")),
            *(row(f"D3S, rank {r}", 66, f"lora.rank={r}", *rated("1e-3")) for r in (1, 4, 16, 64)),
        ),
        explain=True,
    ),
    # --- programs: which tests count ---
    Section(
        "code",
        "Programs in the sandbox: which tests count",
        (
            *code_scores("GRPO", (90, 107, 80), GRPO),
            *code_scores("D3S", (97, 96, 94), *fixed(8, 0.5)),
            row("PODS, all", 90, method("pods"), *CODE),
            row("random rollouts, all", 87, method("random"), *fixed(8, 0.5), *CODE),
        ),
        rivals=("D3S, all",),
        bases=(CODE_BASE,),
        explain=True,
        sampled=True,
    ),
]
