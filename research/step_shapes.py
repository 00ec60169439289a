"""The shape of a step as what is searched: responses, mini-batches and passes, each with its learning rate.

    python -m research.ablation --shapes        (960 runs or more, on two base models of both tasks)

GRPO and D3S with groups of 4, as many responses in every run, on validation problems. docs/data/shapes.csv has the
runs; the command prints the scores of each rate so far.
"""

from research.records import DATA
from research.row import GRPO, TASK_BASES, Row, fixed, shape

SHAPES_DATA = DATA.with_name("shapes.csv")
RESPONSES = 9216  # of a run: 72 steps of 128

SHAPES = [
    Row(
        f"{method}, {responses} responses, {batches} mini-batches, {passes} passes",
        (
            *arguments,
            *shape(responses, 4),
            f"optim.num_minibatches={batches}",
            f"optim.num_iterations={passes}",
            f"optim.warmup_steps={640 // responses}",
        ),
        steps=RESPONSES // responses,
        every=RESPONSES // responses,
        search_bases=TASK_BASES,
    )
    for method, arguments in (("GRPO", (GRPO,)), ("D3S", fixed(2, 0.2)))
    for responses in (128, 256, 512, 1024)
    for batches in (1, 2, 4, 8, 16)
    for passes in (1, 2)
]
