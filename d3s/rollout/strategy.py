"""How the responses of a training step are sampled. Evaluations are always plain.

A rule of rollout.strategy is a class. Its constructor may take `config`, by name, beside its options, and raises
ValueError or UserError for those that it does not go with. Its method `generate` takes, by name, what it needs of

    engine       of this rank, see d3s/rollout/engine.py; with vLLM also sampling, submit, step, abort and busy
    prompts      token ids of each prompt
    problems     the index of each prompt's problem
    count        groups to return; one to each prompt if the strategy carries nothing over
    n            responses to each prompt
    params       SamplingParams: the length limit of this step, and the temperature
    seeds        one per response, by prompt, then by sample
    entropies    whether the rollouts need entropies
    step         of the training, 0-based
    on_finished  to be called with each rollout that is finished, so that its reward is computed meanwhile; not required

and returns the rollouts, ordered by prompt, then by sample. A rollout may have positions that are never trained
(`untrainable`), responses that share sampled tokens (`lineage`, see d3s/rollout/prefixes.py), and `counts`: numbers by
name that are added up and logged as strategy/NAME; `decoded` says how many tokens were sampled for it, if not its own,
and `stale` how many of its tokens older weights sampled.

A strategy may start more groups than it returns, and drop the others or carry them over to later steps. Its method
`problems_for(count)` says, alike on all ranks, how many problems are to be taken from their order for `count` groups;
`generate` returns `count` of the groups in flight, with the `problem` of each rollout, and prompt_index and problem are
set before `on_finished`. Where no engine is shared, that starts the reward of any rollout, whose scoring() waits
for its Outcome. state_dict() and load_state_dict(state) have what this rank keeps; the number of ranks must
remain.

A strategy whose random numbers come from `seeds` is resumed exactly. Ranks that share an engine call it alike.
Before a run two steps are tried with an engine whose responses are made up, unless the strategy needs vLLM.
"""

from collections.abc import Callable
from typing import Any

from d3s.common import UserError
from d3s.groups import Rollout
from d3s.rollout.engine import Engine, SamplingParams
from d3s.rules import ClassContract


class Plain:
    """Independent responses."""

    def generate(
        self,
        engine: Engine,
        prompts: list[list[int]],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        entropies: bool,
        on_finished: Callable[[Rollout], None],
    ) -> list[Rollout]:
        """Sample every response by itself."""
        options = {"entropies": entropies, "on_finished": on_finished}
        return engine.generate(prompts, n=n, params=params, seeds=seeds, **options)


def require(strategy: str, requirements: dict[str, bool]) -> None:
    """Raise UserError for the first requirement of a strategy, `section.key: value`, that the options do not meet."""
    for requirement, holds in requirements.items():
        if not holds:
            raise UserError(f"rollout.strategy: {strategy} requires {requirement}")


def _problem(result: Any, count: int, n: int, params: SamplingParams, entropies: bool, **_: Any) -> str | None:
    """What is wrong with the rollouts of a strategy."""
    if not isinstance(result, list) or not all(isinstance(r, Rollout) for r in result):
        return f"{type(result).__name__}, expected a list of Rollouts"
    places = [(prompt, sample) for prompt in range(count) for sample in range(n)]
    if [(r.prompt_index, r.sample) for r in result] != places:
        return f"{len(result)} rollouts, expected {n} to each of {count} prompts by prompt_index, then by sample"
    for r in result:
        length, where = len(r.response_ids), f"for prompt {r.prompt_index}, sample {r.sample}"
        if not 1 <= length <= params.max_tokens or not all(type(token) is int for token in r.response_ids):
            return f"{length} tokens {where}, expected 1 to {params.max_tokens} token ids"
        for name, values, needed in (("logprobs", r.logprobs, True), ("entropies", r.entropies, entropies)):
            if (needed or values) and len(values) != length:
                return f"{len(values)} {name} {where}, expected {length}"
            if not all(isinstance(value, float) and value == value for value in values):
                return f"{name} {where} that are no numbers"
        if not all(isinstance(count, int | float) for count in r.counts.values()):
            return f"counts {where} that are no numbers"
    return None


def _number_problem(result: Any, **_: Any) -> str | None:
    return None if type(result) is int and result > 0 else f"{result!r:.60}, expected a number of problems"


STRATEGY_RULES = ClassContract(
    option="rollout.strategy",
    builtin={"plain": Plain},
    arguments=("config",),
    methods={
        "generate": (
            ("engine", "prompts", "problems", "count", "n", "params", "seeds", "entropies", "step", "on_finished"),
            _problem,
        ),
        "problems_for": (("count",), _number_problem),
    },
    required=("generate",),
)
