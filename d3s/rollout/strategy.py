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

and returns a list of `count` groups, each a list of n Rollouts to one problem. Rollouts carry the number of their
problem (`problems` of Engine.generate and empty_rollouts), and `counts`: numbers by name that are added up and logged
as strategy/NAME; `decoded` says how many tokens were sampled for a rollout, if not its own, and `stale` how many of its
tokens older weights sampled.

A strategy may start more groups than it returns, and drop the others or carry them over to later steps. Its method
`problems_for(count)` says, alike on all ranks, how many problems are taken from their order for `count` groups.
on_finished starts the reward; the rollout's scoring() waits for its Outcome. Ranks that share an engine score only
their own problems. state_dict() and load_state_dict(state) have what this rank keeps; the number of ranks must remain.

Its method `token_advantages` takes the kept rollouts of this rank, with all kept responses of their groups, and their
advantages [rollouts], and returns for each (advantages float32 [length], trainable bool [length]). Without it each
token has the advantage of its response, and all are trained.

A strategy whose random numbers come from `seeds` is resumed exactly. Ranks that share an engine call it alike.
Before a run two steps are tried on a fake engine; a strategy that drives vLLM's requests is not tried.
"""

import sys
from typing import Any

import torch

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.groups import Outcome, Rollout, in_groups
from d3s.rollout.engine import Engine, Report, SamplingParams, rollout_problem
from d3s.rules import ClassContract, OfRuns, RuleObject, tensor_problem


class Plain:
    """Independent responses."""

    def generate(
        self,
        engine: Engine,
        prompts: list[list[int]],
        problems: list[int],
        n: int,
        params: SamplingParams,
        seeds: list[int],
        entropies: bool,
        on_finished: Report,
    ) -> list[list[Rollout]]:
        """Sample every response by itself."""
        options = {"entropies": entropies, "on_finished": on_finished, "problems": problems}
        return in_groups(engine.generate(prompts, n=n, params=params, seeds=seeds, **options), n)


def require(strategy: str, requirements: dict[str, bool]) -> None:
    """Raise UserError for the first requirement of a strategy, `section.key: value`, that the options do not meet."""
    for requirement, holds in requirements.items():
        if not holds:
            raise UserError(f"rollout.strategy: {strategy} requires {requirement}")


def _problem(
    result: Any,
    count: int,
    n: int,
    params: SamplingParams,
    entropies: bool,
    vocabulary: int = sys.maxsize,
    **_: Any,
) -> str | None:
    """What is wrong with the groups of a strategy."""
    if not isinstance(result, list) or not all(isinstance(group, list) for group in result):
        return f"{type(result).__name__}, expected a list of {count} lists of {n} Rollouts"
    if not all(isinstance(r, Rollout) for group in result for r in group):
        return f"groups of other things, expected {count} lists of {n} Rollouts"
    if [len(group) for group in result] != [n] * count:
        return f"groups of {[len(group) for group in result]!s:.60} rollouts, expected {count} of {n}"
    if len({id(r) for group in result for r in group}) < n * count:
        return "a Rollout twice, expected copies (dataclasses.replace)"
    for row, sample, r in ((i, j, r) for i, group in enumerate(result) for j, r in enumerate(group)):
        where = f"in group {row}, sample {sample}"
        if r.problem != result[row][0].problem:
            return f"problem {r.problem} {where}, expected problem {result[row][0].problem} as in sample 0"
        if problem := rollout_problem(r, params, entropies, where, vocabulary):
            return problem
        if r.scored_ids is not None and r.scored_ids != list(r.response_ids):
            return f"another response than on_finished got {where}; call it with complete responses"
        if not all(isinstance(count, int | float) for count in r.counts.values()):
            return f"counts {where} that are no numbers"
    return None


def _number_problem(result: Any, **_: Any) -> str | None:
    return None if type(result) is int and result > 0 else f"{result!r:.60}, expected a number of problems"


def _advantages_problem(result: Any, rollouts: list[Rollout], **_: Any) -> str | None:
    if not isinstance(result, list) or [type(pair) for pair in result] != [tuple] * len(rollouts):
        return f"{type(result).__name__}, expected a list of {len(rollouts)} tuples (advantages, trainable)"
    for (advantages, trainable), r in zip(result, rollouts):
        shape = (len(r.response_ids),)
        problem = tensor_problem(advantages, shape, torch.float32, entry="an advantage")
        if problem := problem or tensor_problem(trainable, shape, torch.bool):
            return problem
    return None


class _TrialEngine(Engine):
    """Its responses are functions of their seeds: one to eight times the same token."""

    def __init__(self, config: Config) -> None:
        limit = config.data.max_prompt_length + config.rollout.max_completion_length
        self.stop_token_ids, self.stop, self.max_model_len = {0}, config.rollout.stop, limit

    def sample(self, rollouts, params, seeds, entropies, on_finished) -> None:
        for r, seed in zip(rollouts, seeds, strict=True):
            length = 1 + seed % min(8, params.max_tokens)
            r.response_ids, r.logprobs = [1 + seed % 3] * length, [-0.5] * length
            r.entropies, r.finished = [0.7] * length if entropies else [], length < params.max_tokens
            on_finished(r)

    def __getattr__(self, name: str) -> Any:
        raise OfRuns

    def load_weights(self, weights: Any) -> None:
        raise OfRuns


def _try_strategy(strategy: RuleObject, config: Config) -> list[Any]:
    """Two steps of two groups with rewards of 0 and 1."""
    n, results = config.rollout.num_generations, []

    def score(rollout: Rollout) -> None:
        right, rollout.scored_ids = float(rollout.sample % 2), list(rollout.response_ids)
        rollout.scoring = lambda: Outcome(right, right, {}, {})

    for step in range(2):
        asked = strategy.problems_for(count=2) or 2
        problems = list(range(step * asked, (step + 1) * asked))
        groups = strategy.generate(
            engine=_TrialEngine(config),
            prompts=[[3, 4, 5, problem] for problem in problems],
            problems=problems,
            count=2,
            n=n,
            params=SamplingParams(max_tokens=config.rollout.max_completion_length),
            seeds=list(range(step, step + n * asked)),
            entropies=not config.rollout.servers,
            step=step,
            on_finished=score,
        )
        rollouts = [r for group in groups for r in group]
        if wrong := [r.problem for r in rollouts if r.prompt_ids != [3, 4, 5, r.problem]]:
            problem = f"returned a response to another prompt than that of problem {wrong[0]}"
            remedy = "pass `problems` to Engine.generate or empty_rollouts"
            raise UserError(f"rollout.strategy: {strategy.name} {problem}; {remedy}")
        strategy.token_advantages(rollouts=rollouts, advantages=torch.ones(len(rollouts)))
        results.append([(r.response_ids, r.logprobs, r.entropies) for r in rollouts])
    return results


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
        "token_advantages": (("rollouts", "advantages"), _advantages_problem),
    },
    required=("generate",),
    per_rank=True,
    constructs=lambda config: {"config": config},
    trial=_try_strategy,
)
