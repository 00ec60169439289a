"""Rows beyond the paper: the sections of beyond-tables.md, each compared at the end of its runs.

How to add a section: append `section(name, title, rows, references)` to SECTIONS at the place of its topic, and marks
to the page. A row is

    label: (steps, learning rate, *arguments)

see row.py. Every row runs on every base and seed of its section and is compared with `references`, paired by base,
seed and problem. Choose `steps` so that the seconds of all rows about agree: the table has the seconds of a step.

    python -m research.ablation --section NAME, then python -m research.results      (all: make bench-beyond)

docs/data/beyond.csv has the runs. A section whose runs are not all there keeps its text on the page.
"""

from dataclasses import dataclass

from research.row import BASES, D3S, GRPO, REWARDS, TASK_BASES, TASKS, TEACHER, Row, fixed, method, shape

RATE = 2e-4


@dataclass(frozen=True)
class Section:
    """Rows that are compared with some of them."""

    title: str
    rows: tuple[Row, ...]
    references: tuple[str, ...]


def section(
    name: str,
    title: str,
    rows: dict[str, tuple],
    *references: str,
    bases: tuple[str, ...] = BASES[:1],
    seeds: int = 5,
) -> tuple[str, Section]:
    """A section by name; the names of its rows begin with its own."""
    planned = tuple(
        Row(f"{name}: {label}", tuple(arguments), steps, every=steps, bases=bases, seeds=seeds, rate=rate)
        for label, (steps, rate, *arguments) in rows.items()
    )
    return name, Section(title, planned, tuple(f"{name}: {label}" for label in references))


def shares(name: str, rate: float, title: str) -> tuple[str, Section]:
    """D3S with N = 8 and K = 20 %, between groups and batch in several ways."""
    rows = {
        "D3S": (),
        "D3S-I": ("selector.cross_share=0",),
        "half across the batch": ("selector.cross_share=0.5",),
        "automatic share": (method("d3s_auto"),),
        "D3S, deviation of the batch": ("reward.advantages=batch",),
    }
    configured = {label: (66, rate, *fixed(8, 0.2), *own) for label, own in rows.items()}
    return section(name, f"Share between groups and batch{title}", configured, "D3S", seeds=3)


def orders(problems: int, asked: str, steps: dict[str, tuple[int, int]]) -> tuple[str, Section]:
    """D3S and GRPO on the first problems of the task in several orders; the steps of both by order."""
    few = (f"data.limit={problems}", *shape(128, 8))
    rows = {
        f"{label}, {order}": (count[i], RATE, *arguments, *few, *([] if order == "shuffled" else [method(order)]))
        for i, (label, arguments) in enumerate((("D3S", fixed(4, 0.2)), ("GRPO", (GRPO,))))
        for order, count in steps.items()
    }
    title = f"Prompts before generation: {problems} problems, each asked {asked}"
    return section(f"prompts-{problems}", title, rows, "D3S, shuffled", "GRPO, shuffled", seeds=3)


def variants(options: dict[str, tuple[str, ...]], *methods: tuple[str, tuple[int, ...], tuple[str, ...]]) -> dict:
    """Each method (label, steps by option, arguments) under each option, 128 responses a step in groups of 8."""
    return {
        f"{label}{name}": (count, RATE, *arguments, *shape(128, 8), *own)
        for label, steps, arguments in methods
        for count, (name, own) in zip(steps, options.items(), strict=True)
    }


GRADED = {"": (), ", graded": ("reward.functions=[d3s.data.synthetic:countdown_graded]",)}
STEP_REWARDS = {
    "": (),
    ", steps in the total": (f"reward.functions=[{REWARDS}:reward_reachable_total]",),
    ", steps as spans": (f"reward.functions=[{REWARDS}:reward_reachable_steps]",),
}
SHAPERS = {
    "": (),
    ", first wrong step on": (method("spare_reachable"),),
    ", before it rewarded": (f"reward.shaper={REWARDS}:reward_prefix",),
    ", first false equation on": (f"reward.shaper={REWARDS}:spare_true_equations",),
    ", random step on": (f"reward.shaper={REWARDS}:spare_random",),
}
VLLM = (RATE, *fixed(8, 0.2), "rollout.engine=vllm")
CARRIED = 'rollout.strategy={"rule":"d3s.methods.carry_over:CarryOver","extra":%s}'
MINIBATCHES = "optim.num_minibatches=8"
ROUNDS = 'rollout.strategy={"rule":"d3s.methods.two_rounds:TwoRounds","extra":%s}'
RISING = (D3S, "schedule.n_init=4", "schedule.n_final=16", "schedule.k_init=0.05")
FALLING = (D3S, "schedule.n_init=8", "schedule.n_final=2", "schedule.k_init=0.2")
EXPRESSIONS = "d3s.programs.code_reward:ExpressionReward"
CODE = {
    f", {score}": (f"reward.functions=[{{rule: {EXPRESSIONS}, score: {score}}}]", *shape(256, 16))
    for score in ("all", "rate", "calibrated")
}


def distilled(k: float, overlay: str = "distill") -> tuple[str, ...]:
    """Distillation on the fraction K of the tokens of 128 responses."""
    return (
        method(overlay),
        *shape(128, 4),
        f"loss.reference={TEACHER}",
        f"schedule.k_init={k}",
        f"schedule.k_final={k}",
    )


SECTIONS: dict[str, Section] = dict(
    [
        section(
            "small-groups",
            "Many prompts, small groups",
            {
                "GRPO, G = 4": (46, 3e-4, GRPO, *shape(128, 4)),
                "GRPO, G = 16": (48, RATE, GRPO),
                "D3S, G = 16, N 4 to 16, K 5 to 20 %": (58, RATE, D3S),
                "D3S, G = 8, N 2 to 8, K 5 to 20 %": (55, 3e-4, method("small_groups"), *shape(128, 8)),
                "D3S, G = 4, N = 2, K = 20 %": (50, 3e-4, *shape(128, 4), *fixed(2, 0.2)),
            },
            "GRPO, G = 4",
            "GRPO, G = 16",
            bases=(*BASES, TASKS[1]),
        ),
        section(
            "budgets",
            "Group sizes of GRPO at two budgets, one four times the other",
            {
                f"G = {g}, {name}": (steps * times, rate, GRPO, *shape(128, g))
                for name, times in (("budget 1", 1), ("budget 4", 4))
                for g, steps, rate in ((4, 46, 3e-4), (8, 47, 3e-4), (16, 48, RATE))
            },
            "G = 4, budget 1",
            "G = 4, budget 4",
            bases=TASKS,
            seeds=6,
        ),
        orders(128, "about 8 times", {"shuffled": (66, 54), "vade": (66, 47), "mopps": (66, 48)}),
        orders(512, "about twice", {"shuffled": (66, 54), "vade": (66, 50)}),
        shares("share", RATE, ""),
        shares("share-high-rate", 4e-4, " at twice the learning rate"),
        shares("share-collapse", 8e-4, " at four times the learning rate"),
        section(
            "schedules",
            "Schedules that follow the training",
            {
                "fixed: N = 8": (66, RATE, *fixed(8, 0.2)),
                "fixed: N = 5": (67, RATE, *fixed(5, 0.2)),  # the mean N of coverage 0.8 and of the falling schedule
                "linear: N from 4 to 16, K from 5 to 20 %": (65, RATE, *RISING),
                "linear: N from 8 to 2": (67, RATE, *FALLING),
                "coverage 0.8": (66, RATE, method("d3s_coverage")),
            },
            "fixed: N = 8",
            "fixed: N = 5",
        ),
        section(
            "rivals",
            "Rivals at 128 responses a step",
            {
                "GRPO, G = 16": (48, RATE, GRPO),
                "D3S, N = 8, K = 20 %": (58, RATE, *fixed(8, 0.2)),
                "CPPO, N = 4": (62, RATE, method("cppo")),
                "CPPO, N = 4, refilled by 32 problems": (18, RATE, method("cppo"), "train.prompts_per_step=32"),
                "NAT, half of the tokens": (49, RATE, method("nat")),
                "NAT, prefixes": (54, RATE, method("nat_prefix")),
                "MaxRL": (48, RATE, method("maxrl")),
                "Pass@4 advantages": (48, RATE, method("pass_at_k")),
                "variance mass 0.9": (52, RATE, method("variance_mass")),
            },
            "GRPO, G = 16",
            "D3S, N = 8, K = 20 %",
            seeds=3,
        ),
        section(
            "of-four",
            "What of four responses is trained, G = 4",
            {
                f"{rollouts}, {tokens}": (steps, 3e-4, *shape(128, 4), *own)
                for rollouts, tokens, steps, own in (
                    ("N = 2", "K = 20 % by |A| x H", 66, fixed(2, 0.2)),
                    ("N = 3", "K = 20 % by |A| x H", 64, fixed(3, 0.2)),
                    ("all", "K = 20 % by |A| x H", 62, fixed(4, 0.2)),
                    ("all", "K = 10 % by |A| x H", 62, fixed(4, 0.1)),
                    ("N = 2", "|A| (1 - pi)", 66, (*fixed(2, 0.2), method("gmts"))),
                    ("N = 2", "|A| x H, pi at least 0.1", 66, (*fixed(2, 0.2), method("likely_tokens"))),
                    ("N = 2", "random tokens", 66, (*fixed(2, 0.2), "selector.tokens=random")),
                )
            },
            "N = 2, K = 20 % by |A| x H",
            bases=TASKS,
        ),
        section(  # the best row of the section above, on base models and problems that it has not seen, at another rate
            "criterion",
            "Gradient magnitude instead of |A| x H, again",
            {
                "|A| x H": (60, RATE, *shape(128, 4), *fixed(2, 0.2)),
                "|A| (1 - pi)": (60, RATE, *shape(128, 4), *fixed(2, 0.2), method("gmts")),
            },
            "|A| x H",
            bases=TASK_BASES[1::2],
        ),
        section(
            "tree",
            "Tree rollouts",
            {
                "plain": (48, *VLLM),
                "temperature 1.2": (48, *VLLM, "rollout.temperature=1.2"),
                "half of each group from its tree": (40, *VLLM, method("latr")),
            },
            "plain",
            "temperature 1.2",
            bases=TASKS[1:],
            seeds=3,
        ),
        section(
            "partial",
            "Partial rollouts, responses of 17 to 90 tokens",
            {
                label: (60, RATE, *shape(128, 4), *fixed(2, 0.2), "rollout.max_completion_length=96", *own)
                for label, own in (
                    ("plain", ("rollout.engine=vllm",)),
                    *((f"E/B = {e}", (method("carry_over"), CARRIED % e)) for e in ("0.25", "1")),
                )
            },
            "plain",
            bases=("tiny:mixed",),
            seeds=4,
        ),
        section(  # 256 responses a step, of dynamic sampling more; 120 to 128 of them kept, 96 of dynamic sampling
            "rounds",
            "Two rounds per group",
            {
                label: (steps, 1e-4, *fixed(n, 0.2), f"rollout.num_generations={group}", MINIBATCHES, *own)
                for label, group, n, steps, *own in (
                    ("plain, G = 4", 4, 2, 40, "train.prompts_per_step=64"),
                    ("plain, G = 8", 8, 4, 44, "train.prompts_per_step=32"),
                    ("2 of 4", 4, 4, 31, "train.prompts_per_step=32", ROUNDS % 2),
                    ("2 of 8", 8, 5, 37, "train.prompts_per_step=24", ROUNDS % 1.33),
                    ("dynamic sampling, G = 4", 4, 4, 31, "train.prompts_per_step=24", "rollout.dynamic_sampling=true"),
                )
            },
            "plain, G = 4",
            "plain, G = 8",
            bases=TASKS,
            seeds=4,
        ),
        section(
            "distillation",
            "On-policy distillation: the built-in model after D3S teaches the one before",
            {
                "all tokens": (30, RATE, *distilled(1.0)),
                "K = 50 % by H": (33, RATE, *distilled(0.5)),
                "K = 20 % by H": (37, RATE, *distilled(0.2)),
                "K = 5 % by H": (40, RATE, *distilled(0.05)),
                "K = 20 % by H, equal responses": (30, RATE, *distilled(0.2)),
                "K = 5 % by H, equal responses": (30, RATE, *distilled(0.05)),
                "K = 50 % by TIP": (32, RATE, *distilled(0.5, "distill_tip")),
                "K = 20 % by gap x H": (35, RATE, *distilled(0.2, "distill_gap")),
                "K = 5 % by gap x H": (37, RATE, *distilled(0.05, "distill_gap")),
            },
            "all tokens",
        ),
        section(
            "shrinkage",
            "Shrinkage baseline by group size",
            {
                f"{label}, G = {g}": (36, RATE, GRPO, *shape(128, g), f"reward.advantages={rule}")
                for g in (2, 4, 8)
                for label, rule in (("group mean", "none"), ("shrunken", "d3s.methods.shrinkage:shrinkage"))
            },
            *(f"group mean, G = {g}" for g in (2, 4, 8)),
        ),
        section(
            "graded",
            "Graded rewards: 0.2 for an expression of all numbers with another value",
            variants(GRADED, ("GRPO", (54, 54), (GRPO,)), ("D3S", (66, 66), fixed(4, 0.2)))
            | variants(GRADED, ("random rollouts", (66, 66), (*fixed(4, 0.2), "selector.rollouts=random"))),
            *("GRPO", "GRPO, graded", "D3S"),
            bases=TASKS[1:],
        ),
        section(
            "dense",
            "Dense rewards: 0.2 for each step after which the answer can still be reached",
            variants(STEP_REWARDS, ("GRPO", (54, 52, 48), (GRPO,)), ("D3S", (64, 63, 62), fixed(4, 0.2))),
            *("GRPO", "D3S", "D3S, steps in the total"),
        ),
        section(
            "steps",
            "Step-aware advantages: wrong answers are punished from one of their steps on",
            variants(SHAPERS, ("D3S", (66,) * 5, fixed(4, 0.2)), ("GRPO", (53,) * 5, (GRPO,))),
            *("D3S", "D3S, random step on", "GRPO"),
            bases=TASKS,
            seeds=3,
        ),
        section(
            "code",
            "Programs in the sandbox: which tests count",
            {
                f"{label}{name}": (count, 6e-4, *arguments, *own)
                for label, steps, arguments in (
                    ("GRPO", (90, 107, 80), (GRPO,)),
                    ("D3S", (97, 96, 94), fixed(8, 0.5)),
                    ("PODS", (90,), (method("pods"),)),
                    ("random rollouts", (87,), (method("random"), *fixed(8, 0.5))),
                )
                for count, (name, own) in zip(steps, CODE.items())
            },
            *("GRPO, all", "D3S, all"),
            bases=("tiny:code",),
        ),
        section(
            "lora",
            "LoRA, at equal steps",
            {
                "D3S, all weights": (66, RATE, *fixed(8, 0.2)),
                **{f"D3S, rank {r}": (66, 1e-3, f"lora.rank={r}", *fixed(8, 0.2)) for r in (1, 4, 16, 64)},
            },
            "D3S, all weights",
        ),
    ]
)
