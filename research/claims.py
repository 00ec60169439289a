"""The registered claims: what the results decide, written down before the runs that decide it.

A claim says that a row has a higher Pass@k than another one at an equal budget, as a mean over base models. The first
ones are the project's own questions; the others are the paper's (D3S, arXiv 2509.22115) and those of its rivals. The
p-values of all claims together are adjusted by Holm's method. Tables may show further differences; they decide nothing.
"""

from dataclasses import dataclass

from research.row import TASKS
from research.rows import AGAIN, D3S_FIXED, D3S_SHAPED, D3S_SMALL, GROWING, GRPO_BEST, GRPO_SHAPED, STATIC

PAPER_SHAPE = "GRPO, G = 16"  # as many problems and responses in a step as D3S has
HEAVY = "heavy head: "


@dataclass(frozen=True)
class Claim:
    """`row` is above `reference` at an equal budget of `axis`."""

    text: str
    row: str
    reference: str
    axis: str = "seconds"  # or steps, generated; the budgets are those of results.py
    k: int = 1
    task: str | None = None  # on the base models whose names begin with this; None: on all of the rows
    zeros_computed: bool = False  # the reference also computes rollouts with A = 0, as other trainers do


CLAIMS = [
    Claim("D3S beats the best GRPO", "D3S", GRPO_BEST),
    Claim("D3S with groups of 4 beats the best GRPO", D3S_SMALL, GRPO_BEST),
    Claim(
        "Where the head is most of the work, D3S beats the best GRPO: precedence",
        HEAVY + D3S_SMALL,
        HEAVY + GRPO_BEST,
        task=TASKS[0],
    ),
    Claim(
        "Where the head is most of the work, D3S beats the best GRPO: countdown",
        HEAVY + D3S_SMALL,
        HEAVY + GRPO_BEST,
        task=TASKS[1],
    ),
    # --- again, with more seeds: the first runs had been seen when these were written down ---
    Claim("GRPO with groups of 4 beats GRPO with groups of 16, new seeds", AGAIN + GRPO_BEST, AGAIN + PAPER_SHAPE),
    Claim("D3S in its best shape beats GRPO in its best shape, new seeds", AGAIN + D3S_SHAPED, AGAIN + GRPO_SHAPED),
    # --- after a search of the shape of a step; by the runs on new seeds, as the first began with other weights ---
    Claim(
        "GRPO in its best shape beats GRPO with 128 responses and two updates a step",
        AGAIN + GRPO_SHAPED,
        AGAIN + GRPO_BEST,
    ),
    # --- the paper's claims ---
    Claim("D3S beats GRPO of its shape", "D3S", PAPER_SHAPE, zeros_computed=True),
    Claim("D3S beats GRPO of its shape in as many steps", "D3S", PAPER_SHAPE, "steps"),
    Claim("D3S has more Pass@8 than GRPO of its shape in as many steps", "D3S", PAPER_SHAPE, "steps", k=8),
    Claim("D3S on GSPO beats GSPO in as many steps", "D3S on GSPO", "GSPO", "steps"),
    Claim("Rollouts across the batch beat rollouts of each group", "D1S-Cross", "D1S", "steps"),
    Claim("Rollouts across the batch beat rollouts of each group in D3S", "D3S", "D3S-I", "steps"),
    Claim("Tokens by |A| x H at a fixed K beat all tokens", "D2S", "D1S-Cross", "steps"),
    Claim("N and K that grow beat N and K fixed at their first values", "D3S", "D2S", "steps"),
    Claim("N and K that grow beat N = 8 and K = 20 %", "D3S", D3S_FIXED, "steps"),
    Claim("The paper's growth of N and K beats the middle of both, G = 32", GROWING, STATIC, "steps"),
    Claim("D3S beats PODS", "D3S", "PODS"),
    Claim("Rollouts of largest variance beat random rollouts", "D3S", "D3S, random rollouts", "steps"),
    Claim("Tokens by |A| x H beat random tokens", "D3S", "D3S, random tokens", "steps"),
    Claim("Tokens by |A| x H beat tokens by H", "D3S", "D3S, tokens by H alone", "steps"),
    Claim("K % of the batch's tokens beats K % of each rollout's", "D3S", "D3S, tokens of each rollout", "steps"),
    # --- the first runs of claims above ---
    Claim("GRPO with groups of 4 beats GRPO with groups of 16", GRPO_BEST, PAPER_SHAPE),
    Claim("D3S in its best shape beats GRPO in its best shape", D3S_SHAPED, GRPO_SHAPED),
    # --- the claims of rivals ---
    Claim(
        "PODS: the best 4 of 16 responses beat 4 responses, in as many steps",
        "PODS",
        "GRPO, 8 problems x 4 responses",
        "steps",
    ),
    Claim(
        "PODS: the best 4 of 16 responses beat 4 responses, in equal seconds", "PODS", "GRPO, 8 problems x 4 responses"
    ),
    Claim("D3S with groups of 4 beats dynamic sampling", D3S_SMALL, "dynamic sampling"),
    Claim("D3S with groups of 4 beats CPPO", D3S_SMALL, "CPPO, N = 2 of 4"),
    Claim("D3S with groups of 4 beats NAT's random half of the tokens", D3S_SMALL, "NAT: half of the tokens, 1/p"),
    Claim("D3S with groups of 4 beats 80/20", D3S_SMALL, "80/20: all rollouts, K = 20 % by H"),
    Claim("MoPPS beats shuffled problems under GRPO", "128 problems, GRPO, MoPPS", "128 problems, GRPO, shuffled"),
    Claim("MoPPS beats shuffled problems under D3S", "128 problems, D3S, MoPPS", "128 problems, D3S, shuffled"),
]
