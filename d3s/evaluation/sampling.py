"""Sample n responses to each problem and score them while others are still generated.

`sample_responses` takes requests of any number of data sets in one call. d3s/evaluation/evaluator.py keeps the samples
in memory or in files, or shards the requests over the ranks of a training run.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from d3s.common import UserError
from d3s.config.fields import LOWEST_TEMPERATURE
from d3s.config.schema import VERIFIER, RewardConfig
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.evaluation.files import Sample
from d3s.first_look import FirstResponses
from d3s.groups import Rollout
from d3s.gym.scores import stated_answer
from d3s.responses import after_thoughts, opening_mark, text_decoder
from d3s.reward import RewardFunction, ScoreFunction
from d3s.rollout.engine import Engine, SamplingParams, rollout_seeds
from d3s.rules import Value, rule_label

RESPONSES_PER_CALL = 8192  # upper limit: the engine keeps the responses of a call until the call returns


@dataclass(frozen=True)
class Sampling:
    """How the n responses to each problem are sampled, and how their answers are extracted for the majority vote."""

    n: int = 8
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int = 0
    extraction: str = "strict"

    def __post_init__(self) -> None:
        """Raises UserError for a value out of range."""
        in_range = self.temperature == 0 or LOWEST_TEMPERATURE <= self.temperature <= 2
        for name, expected, valid in (
            ("n", "1 to 1,000,000", 1 <= self.n <= 10**6),
            ("temperature", f"0 (greedy) or {LOWEST_TEMPERATURE} to 2", in_range),
            ("top_p", "more than 0 and at most 1", 0 < self.top_p <= 1),
            ("max_tokens", "at least 1", self.max_tokens >= 1),
            ("seed", "0 to 2**31 - 1", 0 <= self.seed < 2**31),
        ):
            if not valid:
                raise UserError(f"--{name.replace('_', '-')}: got {getattr(self, name)}, expected {expected}")

    @property
    def params(self) -> SamplingParams:
        """What the engine needs of this."""
        return SamplingParams(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p)


@dataclass(frozen=True, eq=False)
class Request:
    """A problem to sample n responses to. Two requests are never equal."""

    data: str  # name of its data set
    index: int  # position in the data set; with the seed and the name it determines the samples
    prompt_ids: list[int]
    problem: Problem
    score: ScoreFunction
    opened: str  # the opening mark of the thought in which the prompt ends, "" if it ends in none


def make_requests(data: str, prompts: EncodedPrompts, score: ScoreFunction) -> list[Request]:
    """One request for each problem of a data set, in its order."""
    rows = enumerate(zip(prompts.texts, prompts.ids, prompts.problems, strict=True))
    return [Request(data, index, ids, problem, score, opening_mark(text)) for index, (text, ids, problem) in rows]


@contextmanager
def open_scores(
    rules: Mapping[str, Value],
    opened: Mapping[str, ScoreFunction],
    settings: RewardConfig,
    option: str = "eval.reward",
) -> Iterator[dict[str, ScoreFunction]]:
    """Yield the score function of each data set by its name.

    Args:
        rules: of `scorers`.
        opened: score functions by the labels of their rules that are there already.
        settings: errors and limits of those that are opened here.
    """
    with ExitStack() as stack:
        scores = dict(opened)
        for rule in rules.values():
            if rule_label(rule) not in scores:
                function = RewardFunction(settings.model_copy(update={"functions": [rule]}), 1, option)
                stack.callback(function.close)
                scores |= function.score_functions()
        yield {data: scores[rule_label(rule)] for data, rule in rules.items()}


def look_at(look: FirstResponses, request: Request, sample: Sample, scorer: Value) -> None:
    """Let `look` see a response; only the verifier needs an extracted answer."""
    answered = bool(sample.extracted or scorer != VERIFIER)
    look.add((request.data, request.index), sample.response, sample.finished, answered)


def sample_responses(
    engine: Engine,
    tokenizer: Any,
    requests: Sequence[Request],
    sampling: Sampling,
    on_group: Callable[[Request, list[Sample]], None],
    on_response: Callable[[Request, Sample], None] = lambda request, sample: None,
) -> None:
    """Call `on_group` with each request and its n samples once all n are scored, in any order of requests.

    Samples depend only on the seed, the data set's name and the problem's index, not on which other requests there are.
    `on_response` is called with every finished response, which has no score yet.
    """
    pending: dict[Request, dict[int, tuple[Sample, Future[float]]]] = {request: {} for request in requests}
    decode = text_decoder(tokenizer, engine.stop_token_ids)
    finished: list[Request] = []  # with n responses, of which some have no score yet

    def add(batch: Sequence[Request], rollout: Rollout) -> None:
        """Start to score a finished response, and deliver the groups that are scored."""
        request = batch[rollout.problem]
        group = pending[request]
        text = request.opened + decode(rollout.response_ids)
        extracted = stated_answer(text, request.problem.row, sampling.extraction)
        if extracted is None and request.problem.reward:  # a program votes as a whole
            extracted = text.strip() or None
        unscored = Sample(
            text, extracted, math.nan, len(rollout.response_ids), rollout.finished, after_thoughts(text) is None
        )
        group[rollout.sample] = unscored, request.score(text, request.problem.answer, request.problem.row)
        if len(group) == sampling.n:
            finished.append(request)
        on_response(request, unscored)
        deliver([r for r in finished if all(score.done() for _, score in pending[r].values())])

    def deliver(complete: list[Request]) -> None:
        """Call `on_group` for these groups, waiting for their scores."""
        for request in complete:
            finished.remove(request)
            scored = sorted(pending.pop(request).items())
            on_group(request, [replace(unscored, score=score.result()) for _, (unscored, score) in scored])

    size = max(1, RESPONSES_PER_CALL // sampling.n)
    for batch in (requests[start : start + size] for start in range(0, len(requests), size)):
        engine.generate(
            [request.prompt_ids for request in batch],
            n=sampling.n,
            params=sampling.params,
            seeds=[s for r in batch for s in rollout_seeds(sampling.seed, f"eval/{r.data}", [r.index], sampling.n)],
            entropies=False,
            on_finished=partial(add, batch),
        )
        deliver(list(finished))
