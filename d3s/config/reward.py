"""The options of section reward: reward functions and the advantages of their values."""
# ruff: noqa: RUF012 (pydantic copies the defaults that are lists)

from typing import Annotated, Literal

from pydantic import Field

from d3s.config.fields import (
    MOST,
    Integer,
    Number,
    RuleValue,
    Section,
    WeightedName,
)

VERIFIER = "d3s.reward:verify"  # of reward.functions
TERMS = "format_and_length"  # the name of these terms among the parts of a reward


class RewardConfig(Section):
    functions: Annotated[list[WeightedName], Field(min_length=1)] = [VERIFIER]
    """Reward functions, module:function(response, answer, row) -> float, each alone or as [module:function, weight].
    `row` holds the columns of the problem; a function without it is called without. The default is the verifier: 1 if
    the answer is right, else 0. Evaluations have eval.reward. See docs/rewards.md."""
    errors: Literal["stop", "zero"] = "stop"
    """A function that raises, hangs or returns no number ends the run after a checkpoint (stop), or the response counts
    as 0 (zero)."""
    call_timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 60.0
    """Time limit for a result of a reward function of your own, in seconds; of a class at least twice timeout_s."""
    extraction: Literal["strict", "lenient"] = "strict"
    """strict: the answer must be boxed. lenient: "the answer is …", "#### …" and similar forms count too."""
    timeout_s: Annotated[Number, Field(gt=0, le=10**6)] = 5.0
    """Time limit for verifying one answer, in seconds."""
    workers: Annotated[Integer, Field(ge=1, le=1024)] = 2
    """Verifier processes per rank."""
    memory_mb: Annotated[Integer, Field(ge=256, le=MOST)] = 1024
    """Memory limit of a verifier process in MB."""
    format_weight: Annotated[Number, Field(ge=0, le=10**6)] = 0.0
    """Reward added to a response with exactly one final answer in a nonempty box."""
    overlong_buffer: Annotated[Number, Field(ge=0)] = 0
    """DAPO's soft overlong penalty: over the last fraction (0 to 1) of rollout.max_completion_length (or
    of the step's length limit) the reward falls linearly by overlong_penalty; 0: no penalty."""
    overlong_penalty: Annotated[Number, Field(gt=0, le=10**6)] = 1.0
    """Reward lost by a response at the length limit. DAPO uses 1 with rewards 1 and -1; the equivalent for rewards 1
    and 0 is 0.5."""
    length_penalty: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Reward that a right response loses by its length among the right responses to its problem (arXiv 2502.04463): the
    shortest keep nearly all of it, the longest lose nearly this much; 0: no penalty."""
    advantages: RuleValue = "group"
    """Advantages of the rewards, a rule: see d3s/advantage.py. Centered rewards are divided by the standard deviation
    of the group or of the batch, or not divided (none, Dr. GRPO)."""
    code_score: Literal["all", "rate", "calibrated"] = "all"
    """Score of a program by d3s.sandbox.code_reward:CodeReward. all: 1 if all tests pass, else 0. rate: share of the
    tests passed. calibrated: half of each, where tests that more of the group pass weigh less."""
    shaper: str | None = None
    """Advantages of parts of a response, as module:function(problem, response, answer, advantage) -> list of (start,
    end, advantage) in characters. null: every token has the advantage of its response."""

    def function_names(self) -> dict[str, str]:
        """The functions in order, by the name of each in metrics: what follows the colon, if no other has the same."""
        paths = [entry if isinstance(entry, str) else entry[0] for entry in self.functions]
        short = [path.rpartition(":")[2] for path in paths]
        return {
            name if short.count(name) == 1 else path.replace(":", "."): path
            for name, path in zip(short, paths, strict=True)
        }

    def weights(self) -> list[float]:
        """The weight of each function."""
        return [1.0 if isinstance(entry, str) else entry[1] for entry in self.functions]

    def part_weights(self) -> dict[str, float]:
        """The weights by the names of function_names, and that of the format and length terms."""
        return dict(zip(self.function_names(), self.weights(), strict=True)) | {TERMS: 1.0}
