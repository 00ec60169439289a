"""The rows of the results: what `make ablation` trains, and on which base models and seeds.

How to add a row: append `Row(name, arguments)` to one of the lists below, see row.py. `steps` must be enough for the
seconds of D3S's 60 steps, at which rows are compared, and a multiple of `every`, the steps between evaluations. The
best rate falls with the number of steps, so `search_steps` should be about what these seconds allow.
"""

from dataclasses import replace

from research.beyond import SECTIONS
from research.padded_base import SUFFIX
from research.row import BASES, D3S, GRPO, GSPO, REWARDS, TASKS, Row, fixed, method, shape

PADDED_BASES = tuple(task + warmup + SUFFIX for warmup in ("", "@1") for task in TASKS)
HALF_WARMUP = "tiny:precedence, half of the warm-up"

GRPO_BEST = "GRPO, G = 4"
D3S_SMALL = "D3S, G = 4, N = 2, K = 20 %"
GRPO_SHAPED, D3S_SHAPED = "GRPO, G = 4, best shape", "D3S, G = 4, best shape"
D3S_FIXED = "D3S, N = 8, K = 20 %"
AGAIN = "new seeds: "  # before the name of a row that is trained again
SECOND_RATE = "second-best rate"  # where a search found two close ones: the rate it did not choose, which is D3S's
# the first function scores evaluations; its weight in training is 0
RANDOM_REWARD = f"reward.functions=[[{REWARDS}:verified,0],[{REWARDS}:random_reward,1]]"
SMALL_SHAPE = shape(128, 4)
TOKENS_20 = ("schedule.k_init=0.2", "schedule.k_final=0.2")
CPPO_SMALL = (method("cppo"), *SMALL_SHAPE, "schedule.n_init=2", "schedule.n_final=2")
ALL_ROLLOUTS_20 = (*SMALL_SHAPE, *TOKENS_20, "loss.normalizer=selected")


def grpo(group: int, steps: int = 60, seeds: int = 2, searches: int = 1) -> Row:
    """GRPO with 128 responses a step in groups of this size."""
    arguments = (GRPO, *shape(128, group))
    return Row(f"GRPO, G = {group}", arguments, steps, seeds=seeds, searches=searches, search_steps=48)


def updates(minibatches: int, warmup: int) -> tuple[str, ...]:
    """Optimizer steps of a training step, and training steps of warm-up."""
    return f"optim.num_minibatches={minibatches}", f"optim.warmup_steps={warmup}"


def controls() -> list[Row]:
    """D3S with one of its parts replaced."""
    replaced = {
        "random rollouts": "selector.rollouts=random",
        "random tokens": "selector.tokens=random",
        "tokens by H alone": "selector.tokens=entropy",
        "tokens of each rollout": "selector.token_scope=sample",
    }
    return [Row(f"D3S, {name}", (D3S, value), 60, seeds=3, scheduled=True) for name, value in replaced.items()]


def orders() -> list[Row]:
    """GRPO and D3S on the first 128 problems, each asked about eight times, in three orders."""
    methods = {"GRPO": (GRPO, *shape(128, 8)), "D3S": (*shape(128, 8), *fixed(4, 0.2))}
    overlays = {"shuffled": (), "MoPPS": (method("mopps"),), "VADE": (method("vade"),)}
    return [
        Row(f"128 problems, {name}, {order}", (*arguments, *overlay, "data.limit=128"), seeds=3, search_steps=48)
        for name, arguments in methods.items()
        for order, overlay in overlays.items()
    ]


ROWS = [
    # --- GRPO by group size; that rollouts with A = 0 are not run changes its seconds alone ---
    grpo(2),
    grpo(4, 72, seeds=3, searches=2),
    grpo(8),
    grpo(16, seeds=3),
    grpo(32),
    # --- the paper's method, its ablations and its base methods, G = 16 ---
    Row("D3S", (D3S,), 60, seeds=3, scheduled=True),
    Row("D3S-I", (method("d3s_i"),), 60, seeds=3, scheduled=True),
    Row("D2S", (method("d2s"),), 84, seeds=3, search_steps=60),
    Row("D1S", (method("d1s"),), 84, seeds=3, search_steps=60),
    Row("D1S-Cross", (method("d1s_cross"),), 84, seeds=3, search_steps=60),
    Row("PODS", (method("pods"),), 84, seeds=3, search_steps=60),
    Row("GSPO", (GSPO,), 60, seeds=3, clips=True),
    Row(
        "D3S on GSPO",
        (GSPO, D3S, "schedule.n_init=4", "schedule.n_final=16"),
        60,
        seeds=3,
        clips=True,
        scheduled=True,
    ),
    Row(D3S_FIXED, fixed(8, 0.2), seeds=3, search_steps=60),
    *controls(),
    # --- the shapes of a step that step_shapes.py found ---
    Row(GRPO_SHAPED, (GRPO, *shape(512, 4), *updates(4, warmup=1)), 20, 4, seeds=3, rate=2e-4),
    Row(D3S_SHAPED, (*shape(256, 4), *fixed(2, 0.2), *updates(8, warmup=2)), 40, 8, seeds=3, rate=1e-4),
    # --- the same update at half of the generation ---
    Row("GRPO, 8 problems x 4 responses", (GRPO, "rollout.num_generations=4"), 168, seeds=3, search_steps=84),
    # --- small groups, and rivals in that shape ---
    Row(D3S_SMALL, (*SMALL_SHAPE, *fixed(2, 0.2)), seeds=3, searches=2, search_steps=48),
    Row("D3S, G = 8, N 2 to 8", (method("small_groups"), *shape(128, 8)), 60, scheduled=True),
    Row("dynamic sampling", (GRPO, *SMALL_SHAPE, "rollout.dynamic_sampling=true"), 60, seeds=3, search_steps=20),
    Row(
        "zero-variance groups dropped",
        (GRPO, *SMALL_SHAPE, "selector.rollouts=d3s.methods.nonzero:nonzero"),
        search_steps=48,
    ),
    Row("CPPO, N = 2 of 4", CPPO_SMALL, seeds=3, search_steps=48),
    Row(f"CPPO, N = 2 of 4, {SECOND_RATE}", CPPO_SMALL, seeds=3, rate_of=D3S_SMALL),
    Row("CPPO, N = 4 of 16", (method("cppo"),), 84, search_steps=60),
    Row(
        "80/20: all rollouts, K = 20 % by H",
        (GRPO, *ALL_ROLLOUTS_20, "selector.tokens=entropy"),
        seeds=3,
        search_steps=48,
    ),
    Row("all rollouts, K = 20 % by |A| x H", (GRPO, *ALL_ROLLOUTS_20), seeds=3, search_steps=48),
    Row("NAT: half of the tokens, 1/p", (method("nat"), *SMALL_SHAPE), seeds=3, search_steps=48),
    Row("NAT: 20 % of the tokens, 1/p", (method("nat"), *SMALL_SHAPE, *TOKENS_20), search_steps=48),
    Row("NAT: prefixes", (method("nat_prefix"), *SMALL_SHAPE), search_steps=48),
    # --- controls of gradient clipping: the mean norm of D3S is above max_grad_norm = 1, that of GRPO below ---
    Row("GRPO, G = 4, gradient norm at most 0.1", (GRPO, *SMALL_SHAPE, "optim.max_grad_norm=0.1"), search_steps=48),
    Row(
        "D3S, G = 4, gradients not limited", (*SMALL_SHAPE, *fixed(2, 0.2), "optim.max_grad_norm=1000"), search_steps=48
    ),
    # --- prompts chosen before generation ---
    *orders(),
    # --- controls of the verifier ---
    Row("random rewards, GRPO", (GRPO, *SMALL_SHAPE, RANDOM_REWARD), rate_of=GRPO_BEST),
    Row("random rewards, D3S", (*SMALL_SHAPE, *fixed(2, 0.2), RANDOM_REWARD), rate_of=D3S_SMALL),
]


def heavy_head() -> list[Row]:
    """The vocabulary of 32,768 tokens, whose head is 90 % of the work; 128 responses a step in groups of 4.

    Learning rates are searched anew, as steps are fewer: with the small vocabulary, which learns alike and costs less.
    """
    settings = {"problems": 128, "searches": 2, "first_seed": 60}
    claimed = settings | {"bases": PADDED_BASES, "seeds": 10}
    others = settings | {"bases": PADDED_BASES[:2], "seeds": 3}
    return [
        Row(f"heavy head: {GRPO_BEST}", (GRPO, *SMALL_SHAPE), 30, 10, **claimed),
        Row(f"heavy head: {D3S_SMALL}", (*SMALL_SHAPE, *fixed(2, 0.2)), 66, 22, **claimed),
        Row(
            f"heavy head: {GRPO_BEST}, {SECOND_RATE}",
            (GRPO, *SMALL_SHAPE),
            30,
            10,
            **others | {"seeds": 5},
            rate_of=f"heavy head: {D3S_SMALL}",
        ),
        Row("heavy head: NAT, K = 20 %", (method("nat"), *SMALL_SHAPE, *TOKENS_20), 60, 20, **others),
        Row("heavy head: all rollouts, K = 20 % by |A| x H", (GRPO, *ALL_ROLLOUTS_20), 54, 18, **others),
    ]


def on_first_base(name: str, rate_of: str | None, *arguments: str, steps: int = 60, scheduled: bool = False) -> Row:
    """A row of a study: five seeds on the first base model."""
    return Row(name, arguments, steps, bases=BASES[:1], seeds=5, rate_of=rate_of, scheduled=scheduled, first_seed=50)


WIDE = shape(128, 32)
# the paper's schedule and the middle of both its ranges
GROWING, STATIC = "G = 32: N from 8 to 32, K from 5 to 20 %", "G = 32: N = 16, K = 10 %"
SHAPES = {"two phases": "step", "cosine": "cosine", "exponential": "exponential"}

STUDIES = [
    *(
        on_first_base(f"N = {n} of 32, K = 10 %", None if n == 32 else D3S_FIXED, *WIDE, *fixed(n, 0.1))
        for n in (4, 8, 16, 32)
    ),
    *(
        on_first_base(f"N = 16 of 16, K = {k:.0%}", None if k == 1 else D3S_FIXED, *fixed(16, k))
        for k in (0.05, 0.2, 0.5, 1.0)
    ),
    on_first_base("schedule: linear", "D3S", D3S, scheduled=True),
    *(
        on_first_base(
            f"schedule: {name}", "D3S", D3S, f"schedule.n_shape={value}", f"schedule.k_shape={value}", scheduled=True
        )
        for name, value in SHAPES.items()
    ),
    on_first_base("schedule: linear, two stages", "D3S", method("d3s_two_stage"), scheduled=True),
    on_first_base("schedule: fixed, N = 8, K = 20 %", D3S_FIXED, *fixed(8, 0.2)),
    on_first_base("schedule: adaptive (coverage)", "D3S", method("d3s_coverage")),
    *(
        on_first_base(f"twice the time: {name}", name, *arguments, steps=steps, scheduled=name == "D3S")
        for name, arguments, steps in (
            ("GRPO, G = 16", (GRPO,), 96),
            ("D1S", (method("d1s"),), 132),
            ("D2S", (method("d2s"),), 144),
            ("D3S", (D3S,), 120),
        )
    ),
    *(
        Row(name, (*WIDE, *arguments), 60, seeds=3, rate_of=rate, scheduled=rate == "D3S", first_seed=200)
        for name, arguments, rate in (
            (GROWING, (D3S, "schedule.n_init=8", "schedule.n_final=32"), "D3S"),
            (STATIC, fixed(16, 0.1), D3S_FIXED),
        )
    ),
    *(
        Row(
            f"poor base: {name}",
            (*arguments, "checkpoint.every=12", "checkpoint.keep=9"),
            60,
            bases=(HALF_WARMUP,),
            seeds=5,
            rate_of=name,
            scheduled=name != "GRPO, G = 16",
            first_seed=80,
        )
        for name, arguments in (("GRPO, G = 16", (GRPO,)), ("D3S", (D3S,)), ("D3S-I", (method("d3s_i"),)))
    ),
]

HEAVY_ROWS = heavy_head()


def again(name: str, seeds: int) -> Row:
    """A row of ROWS at its learning rate, on seeds that no choice was made by."""
    row = next(row for row in ROWS if row.name == name)
    rate_of = None if row.rate else name
    return replace(row, name=AGAIN + name, seeds=seeds, first_seed=400, rate_of=rate_of)


STUDIES += [*(again(name, 8) for name in (GRPO_SHAPED, D3S_SHAPED)), *(again(f"GRPO, G = {g}", 5) for g in (4, 16))]
ALL = [*ROWS, *HEAVY_ROWS, *STUDIES]
BY_NAME = {row.name: row for row in (*ALL, *(row for section in SECTIONS.values() for row in section.rows))}
PARTS = {"rows": ROWS, "heavy": HEAVY_ROWS, "studies": STUDIES}
