"""The experiment of research/card.py: the rows of its parts, and the claims, written down before their runs.

A row has arguments of train.py, configurations and overrides; its group size, selection and updates a step.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

GRPO = ("configs/method/grpo.yaml",)


def growing(k_init: float, k_final: float, n_init: int = 2, n_final: int = 8) -> tuple[str, ...]:
    """N and K of D3S over a run; equal ends make them constant."""
    n = f"schedule.n_init={n_init}", f"schedule.n_final={n_final}"
    return *n, f"schedule.k_init={k_init:g}", f"schedule.k_final={k_final:g}"


def groups(size: int, responses: int = 256) -> tuple[str, ...]:
    """`size` responses to a problem, `responses` in a step."""
    return f"rollout.num_generations={size}", f"train.prompts_per_step={responses // size}"


FOUR_UPDATES, ONE_UPDATE = ("optim.num_minibatches=4",), ("optim.num_minibatches=1",)
PAPER_K, MIDDLE_K, LARGE_K = (0.05, 0.2), (0.2, 0.5), (0.5, 1.0)
# Row -> arguments, learning rates of the search.
SEARCHED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "GRPO": (GRPO, (2.5e-6, 5e-6, 1e-5, 2e-5)),
    "GRPO, G = 4": ((*GRPO, *groups(4)), (5e-6, 1e-5, 2e-5)),
    "GRPO, G = 4, 4 updates": ((*GRPO, *groups(4), *FOUR_UPDATES), (1e-5, 2e-5)),
    "GRPO, G = 16": ((*GRPO, *groups(16)), (5e-6, 1e-5)),
    "GRPO, 4 updates": ((*GRPO, *FOUR_UPDATES), (5e-6, 1e-5, 2e-5)),
    "GRPO, 8 updates": ((*GRPO, "optim.num_minibatches=8"), (1e-5,)),
    "GRPO, 1 update": ((*GRPO, *ONE_UPDATE), (1e-5, 2e-5)),
    "D3S, K 5 to 20 %": (growing(*PAPER_K), (5e-6, 1e-5, 2e-5)),
    "D3S, K 20 to 50 %": (growing(*MIDDLE_K), (5e-6, 1e-5, 2e-5)),
    "D3S, K 50 to 100 %": (growing(*LARGE_K), (5e-6, 1e-5, 2e-5, 4e-5)),
    "D3S, K 50 to 100 %, 4 updates": ((*growing(*LARGE_K), *FOUR_UPDATES), (1e-5, 2e-5)),
    "D3S, K 50 to 100 %, G = 4": ((*growing(*LARGE_K, 2, 4), *groups(4)), (2e-5,)),
    "D3S, K 50 to 100 %, G = 4, 4 updates": ((*growing(*LARGE_K, 2, 4), *groups(4), *FOUR_UPDATES), (1e-5,)),
    "D3S, K 20 to 50 %, 4 updates": ((*growing(*MIDDLE_K), *FOUR_UPDATES), (5e-6, 1e-5)),
    "D3S, K 20 to 50 %, G = 16": ((*growing(*MIDDLE_K, 4, 16), *groups(16)), (1e-5,)),
}
FAMILIES = ("GRPO", "D3S")
# Row -> learning rates of the search on sorting.
SORTED: dict[str, tuple[float, ...]] = {
    "GRPO": (1e-5, 2e-5),
    "GRPO, 4 updates": (1e-5, 2e-5),
    "GRPO, G = 4, 4 updates": (1e-5, 2e-5),
    "D3S, K 5 to 20 %": (2e-5,),
    "D3S, K 20 to 50 %": (2e-5,),
    "D3S, K 50 to 100 %": (1e-5, 2e-5),
    "D3S, K 50 to 100 %, 4 updates": (1e-5,),
    "D3S, K 50 to 100 %, G = 4, 4 updates": (1e-5,),
}
# Row -> learning rates of the search with Gemma 3 270M, which one step at 2e-5 destroys.
GEMMA: dict[str, tuple[float, ...]] = {
    "GRPO": (2e-6, 4e-6),
    "GRPO, G = 4, 4 updates": (1e-6, 2e-6, 4e-6, 8e-6),
    "D3S, K 5 to 20 %": (1e-6, 2e-6, 4e-6),
    "D3S, K 50 to 100 %": (2e-6, 4e-6, 8e-6),
}
# Row -> arguments, learning rates of the search with adapters.
ADAPTED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "GRPO": (GRPO, (1e-4, 2e-4, 4e-4)),
    "GRPO, G = 4, 4 updates": ((*GRPO, *groups(4, 128), *FOUR_UPDATES), (1e-4, 2e-4, 4e-4)),
    "D3S, N 2 to 4, K 50 to 100 %": (growing(*LARGE_K, 2, 4), (1e-4, 2e-4, 4e-4)),
    "D3S, N 2 to 4, K 50 to 100 %, 4 updates": ((*growing(*LARGE_K, 2, 4), *FOUR_UPDATES), (1e-4, 2e-4)),
    "D3S, N 2 to 4, K 50 to 100 %, G = 4, 4 updates": (
        (*growing(*LARGE_K, 2, 4), *groups(4, 128), *FOUR_UPDATES),
        (1e-4, 2e-4, 4e-4, 8e-4),
    ),
}
PAPER, RANDOM = "D3S, K 5 to 20 %", "random tokens"
PAPER_RANDOM = f"{PAPER}, {RANDOM}"
PAPER_ROW = growing(*PAPER_K)
RANDOM_ROW = *PAPER_ROW, "selector.tokens=random"
SEARCHES = {
    "search": SEARCHED,
    "sort search": {row: (SEARCHED[row][0], rates) for row, rates in SORTED.items()},
    "gemma search": {row: (SEARCHED[row][0], rates) for row, rates in GEMMA.items()},
    "adapters search": ADAPTED,
    # Random tokens were searched when their test at the rate of |A| x H had shown a large difference.
    "adapters K search": {
        PAPER: (PAPER_ROW, (1e-4, 2e-4, 4e-4, 8e-4)),
        PAPER_RANDOM: (RANDOM_ROW, (5e-5, 1e-4, 2e-4, 4e-4)),
    },
}
CONSTANT, HALF_RATE = "constant N and K", "half the rate"
COLLAPSING = growing(0.2, 0.2, 4, 4)
REMEDIES = {
    "D3S, N = 4, K = 20 %": COLLAPSING,
    "K = 100 %": growing(1, 1, 4, 4),
    "N = 8": growing(0.2, 0.2, 8, 8),
    HALF_RATE: COLLAPSING,
    "epsilon_high 0.28": (*COLLAPSING, "loss.epsilon_high=0.28"),
    "D3S-I": ("configs/method/d3s_i.yaml", *COLLAPSING),
    RANDOM: (*COLLAPSING, "selector.tokens=random"),
    "GRPO": GRPO,
}
ROUNDED = "model.dtype=bfloat16", "loss.old_logprobs=actor", "loss.engine_correction=truncate"
FIRST = ("GRPO, 4 updates", PAPER), (2e-5, 4e-5, 8e-5, 1.6e-4)  # rows, learning rates


@dataclass(frozen=True)
class Claim:
    """`row` has a higher Pass@1 than `reference` at an equal budget of `axis`, over the seeds of a part."""

    text: str
    row: str
    reference: str
    axis: str  # steps, or estimated seconds of two cores; the budget is what the cheaper of both spent in the mean
    part: str = "test"


# Written down before the runs; Holm's method over these. BEST: the row that the search chose of a family.
BEST = "best "
BEST_ROWS = BEST + "D3S", BEST + "GRPO"
CLAIMS = (
    Claim("D3S beats GRPO, each in its best shape, in equal seconds", *BEST_ROWS, "seconds"),
    Claim("D3S beats GRPO, each in its best shape, in as many steps", *BEST_ROWS, "steps"),
    Claim("N and K that grow beat their means throughout", BEST + "D3S", f"{BEST}D3S, {CONSTANT}", "seconds"),
    Claim("Tokens by |A| x H beat random tokens at the paper's K", PAPER, PAPER_RANDOM, "steps"),
    Claim("The same at responses of about 60 tokens", PAPER, PAPER_RANDOM, "steps", "long"),
    # Written down when the results of the others were known, but for that of the paper's K.
    Claim("Sorting: D3S beats GRPO, each in its best shape, in equal seconds", *BEST_ROWS, "seconds", "sort"),
    # Written down when all others were known.
    Claim(
        "Gemma 3 270M, sorting: D3S beats GRPO, each in its best shape, in equal seconds",
        *BEST_ROWS,
        "seconds",
        "gemma",
    ),
    Claim("Gemma 3 270M: tokens by |A| x H beat random tokens at the paper's K", PAPER, PAPER_RANDOM, "steps", "gemma"),
    # Written down when all but that of Gemma's tokens were known.
    Claim("Adapters: D3S beats GRPO, each in its best shape, in equal seconds", *BEST_ROWS, "seconds", "adapters"),
    # Written down when all others were known; the rate is the best of four by the last Pass@1 on validation problems.
    Claim(
        "Adapters: tokens by |A| x H beat random tokens at the paper's K", PAPER, PAPER_RANDOM, "steps", "adapters K"
    ),
    # Written down when the results of all others were known, but for three seeds of the claim above.
    Claim("Responses of about 200 tokens: |A| x H beats random tokens", PAPER, PAPER_RANDOM, "steps", "200 tokens"),
    # Written down when the results of all others were known: new seeds, as the claim with the part `long` has three.
    Claim("About 60 tokens again: |A| x H beats random tokens", PAPER, PAPER_RANDOM, "steps", "60 tokens"),
    # Written down when all others were known, but for two seeds of the claim above.
    # One seed of the part `gemma` had shown a large difference.
    Claim("Gemma 3 270M, small steps: |A| x H beats random tokens", PAPER, PAPER_RANDOM, "steps", "gemma tokens"),
)
# Part -> steps, steps between evaluations, split, seeds
PARTS = {
    "search": (24, 8, "validation", (1000,)),
    "test": (40, 10, "test", tuple(range(1, 9))),
    "long": (16, 8, "test", (1, 2, 3)),
    "sort search": (20, 10, "validation", (1000,)),
    "sort": (30, 10, "test", tuple(range(1, 9))),
    "remedy": (30, 15, "test", (1, 2, 3)),
    "gemma search": (20, 10, "validation", (1000,)),
    "gemma": (30, 10, "test", tuple(range(1, 9))),
    "first": (3, 3, "test", (1, 2)),
    "methods": (16, 8, "test", (1, 2, 3)),
    "budgets": (16, 4, "test", (1, 2, 3)),
    "adapters search": (20, 10, "validation", (1000,)),
    "adapters": (20, 10, "test", tuple(range(11, 19))),  # the recipe was tuned with lower seeds
    "adapters K search": (20, 10, "validation", (1000,)),
    "adapters K": (20, 10, "test", tuple(range(21, 29))),
    "15 tokens": (12, 12, "test", tuple(range(31, 39))),
    "60 tokens": (12, 12, "test", tuple(range(31, 39))),
    "200 tokens": (12, 12, "test", tuple(range(31, 39))),  # the claim's result was known with three seeds
    "gemma tokens": (12, 12, "test", tuple(range(41, 49))),
}
COMMON = (
    "rollout.max_num_seqs=512",
    "train.prompts_per_step=32",
    "train.max_tokens_per_microbatch=1024",  # so that twelve runs fit
    "eval.limit=128",
    "reward.workers=4",
)
OF_PART = {
    "long": ("rollout.max_completion_length=128", "rollout.max_num_seqs=256"),
    "remedy": ("train.prompts_per_step=16",),
    "gemma search": ("rollout.max_num_seqs=256",),
    "gemma": ("rollout.max_num_seqs=256",),
    "first": ("train.prompts_per_step=16", "eval.limit=8"),
    "methods": ("train.prompts_per_step=16", "train.max_tokens_per_microbatch=null"),
    "budgets": ("train.max_tokens_per_microbatch=null",),
}
# Those of configs/smollm2.yaml, and of its warm-up.
ADAPTERS = "adapters search", "adapters", "adapters K search", "adapters K"
OF_PART |= dict.fromkeys(
    ADAPTERS,
    (
        "lora.rank=16",
        'data.path=["synthetic:words", {path: "synthetic:chains", weight: 0.4}]',
        "rollout.max_completion_length=28",
        "train.prompts_per_step=16",
        "train.max_tokens_per_microbatch=null",
    ),
)
LENGTHS = "200 tokens", "60 tokens", "15 tokens"
SMALL_STEPS = *LENGTHS, "gemma tokens"
# Small steps: both rows of a seed at about 200 tokens take 40 minutes of two cores.
OF_PART |= dict.fromkeys(
    SMALL_STEPS,
    (
        "train.prompts_per_step=8",
        "train.max_tokens_per_microbatch=null",
        "rollout.max_num_seqs=128",
        "eval.limit=32",
    ),
)
OF_PART["200 tokens"] += ("rollout.max_completion_length=400",)
OF_PART["60 tokens"] += ("rollout.max_completion_length=128", "train.max_tokens_per_microbatch=2048")  # two runs fit
CORES = *ADAPTERS, *SMALL_STEPS  # parts whose runs are all of CPU cores
# Part -> the model that it begins with, of other parts: warmup
MODELS = dict.fromkeys(("long", "60 tokens"), "spoken") | dict.fromkeys(("sort search", "sort", "first"), "sorting")
MODELS |= {"200 tokens": "wordy"} | dict.fromkeys(ADAPTERS, "mixed")
MODELS |= dict.fromkeys(("gemma search", "gemma", "gemma tokens"), "gemma")
# The part whose best rows a part runs.
SEARCH_OF = {"test": "search"} | {part: f"{part} search" for part in ("sort", "gemma", "adapters", "adapters K")}


def other_rows(
    grpo: tuple[tuple[str, ...], float], d3s: tuple[tuple[str, ...], float]
) -> dict[str, tuple[tuple[str, ...], float]]:
    """Methods that select otherwise, each in the shape and at the rate of a GRPO or a D3S (arguments, rate)."""
    (grpo, grpo_rate), (d3s, rate) = grpo, d3s
    all_tokens = "schedule.k_init=1", "schedule.k_final=1"
    all_rollouts = "schedule.n_init=null", "schedule.n_final=null"
    constant = (*means(d3s), *all_tokens)
    return {
        RANDOM: ((*d3s, "selector.tokens=random"), rate),
        "tokens alone": ((*d3s, *all_rollouts), rate),
        "rollouts alone": ((*d3s, *all_tokens), rate),
        "D3S-I": (("configs/method/d3s_i.yaml", *d3s), rate),
        "PODS": (("configs/method/pods.yaml", *constant), rate),
        "D1S": (("configs/method/d1s.yaml", *constant), rate),
        "CPPO": (("configs/method/cppo.yaml", *constant), rate),
        "Dr. GRPO": (("configs/method/dr_grpo.yaml", *grpo[len(GRPO) :]), grpo_rate),
    }


def means(arguments: Iterable[str]) -> tuple[str, ...]:
    """The arguments with N and K constant at the means of their ends."""
    values = dict(argument.split("=") for argument in arguments)
    for name in ("n", "k"):
        ends = [float(values.pop(f"schedule.{name}_{end}")) for end in ("init", "final")]
        values |= {f"schedule.{name}_{end}": f"{statistics.mean(ends):g}" for end in ("init", "final")}
    return tuple(f"{key}={value}" for key, value in values.items())
