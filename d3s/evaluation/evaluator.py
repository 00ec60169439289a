"""Evaluate a model: into files that survive an interruption, or on the ranks of a training run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from d3s.config.schema import Config
from d3s.data.prompts import EncodedPrompts
from d3s.distributed import all_gather_objects, shard
from d3s.evaluation.files import Sample, SampleFile
from d3s.evaluation.results import EvalResult, summarize
from d3s.evaluation.sampling import Request, Sampling, make_requests, open_scores, sample_responses
from d3s.reward import ScoreFunction, fails_together, scorers
from d3s.rollout.engine import Engine
from d3s.rules import rule_label


class EvaluationStopped(Exception):
    """A signal to stop has come."""


def evaluate_to_files(
    directory: Path,
    engine: Engine,
    tokenizer: Any,
    tests: Mapping[str, tuple[EncodedPrompts, ScoreFunction]],
    sampling: Sampling,
    *,
    ks: Sequence[int] = (1, 8),
    on_found: Callable[[str, int], None] = lambda data, responses: None,
    on_response: Callable[[Request, Sample], None] = lambda request, sample: None,
) -> list[EvalResult]:
    """Evaluate each data set of `tests` into NAME.jsonl. Problems that are complete in the file are not sampled again.

    Args:
        tests: prompts and score function of each data set, by its name.
        on_found: called with a data set's name and the number of its responses that are there already.
        on_response: see sample_responses.

    Raises: UserError if a file contains samples of other problems or cannot be written; ValueError for a k greater than
        n.
    """
    with ExitStack() as stack:
        files, remaining = {}, []
        for name, (prompts, score) in tests.items():
            files[name] = stack.enter_context(SampleFile(directory / f"{name}.jsonl", name, prompts, sampling.n))
            on_found(name, len(files[name].groups) * sampling.n)
            remaining += [r for r in make_requests(name, prompts, score) if r.index not in files[name].groups]

        def write(request: Request, group: list[Sample]) -> None:
            files[request.data].append(request.index, group)

        sample_responses(engine, tokenizer, remaining, sampling, write, on_response)
        for file in files.values():
            file.sort()
        return [summarize([f.groups[i] for i in sorted(f.groups)], name, ks) for name, f in files.items()]


def evaluate_on_ranks(
    engine: Engine,
    opened: Mapping[str, ScoreFunction],
    tokenizer: Any,
    tests: Mapping[str, EncodedPrompts],
    config: Config,
    accelerator: Accelerator,
    stopping: Callable[[], Any] = lambda: False,
    on_response: Callable[[Request, Sample], None] = lambda request, sample: None,
) -> list[EvalResult] | None:
    """Evaluate the benchmarks of eval.data with the settings of `eval`: one engine call per rank. Collective.

    Args:
        opened: score functions by the labels of their rules that need not be opened, those of the training.
        tests: encoded prompts of each benchmark, by its name.
        stopping: ends the evaluation at the next response once it is true, unless ranks share an engine.
        on_response: see sample_responses.

    Returns: the results of all benchmarks, on every rank; None if a rank was stopped.

    Raises: RewardError if what scores a benchmark fails.
    """
    settings, limit = config.eval, config.rollout.max_completion_length
    sampling = Sampling(n=settings.n, max_tokens=limit, seed=config.train.seed, extraction=config.reward.extraction)
    rules = scorers({name: prompts.problems for name, prompts in tests.items()}, settings.reward)
    groups: dict[Request, list[Sample]] = {}

    def look(request: Request, sample: Sample) -> None:
        on_response(request, sample)
        if config.rollout.tensor_parallel_size == 1 and stopping():  # the ranks of one engine must all go on
            raise EvaluationStopped

    with fails_together(accelerator), open_scores(rules, opened, config.reward) as scores:
        requests = [r for name, prompts in tests.items() for r in make_requests(name, prompts, scores[name])]
        sampled, own = shard(len(requests), accelerator, config.rollout.tensor_parallel_size)
        with suppress(EvaluationStopped):
            own_requests = [requests[i] for i in sampled]
            sample_responses(engine, tokenizer, own_requests, sampling, groups.__setitem__, look)
    gathered = dict(all_gather_objects([(i, groups.get(requests[i])) for i in own], accelerator))
    if None in gathered.values():
        return None
    groups_of = {name: [gathered[i] for i in sorted(gathered) if requests[i].data == name] for name in tests}
    return [summarize(groups_of[name], name, settings.k, rule_label(rules[name])) for name in tests]
