"""Evaluate during training: one engine call per rank, the problems sharded over the ranks."""

from collections.abc import Mapping
from typing import Any

from accelerate import Accelerator

from d3s.config.schema import Config
from d3s.data.prompts import EncodedPrompts
from d3s.distributed import all_gather_objects, shard
from d3s.evaluate.files import Sample
from d3s.evaluate.results import EvalResult, summarize
from d3s.evaluate.sampling import Sampling, make_requests, open_scores, sample_responses, scorers
from d3s.reward import ScoreFunction
from d3s.rollout.engine import Engine


def evaluate_on_ranks(
    engine: Engine,
    opened: Mapping[str, ScoreFunction],
    tokenizer: Any,
    tests: Mapping[str, EncodedPrompts],
    config: Config,
    accelerator: Accelerator,
) -> list[EvalResult]:
    """Evaluate the benchmarks of eval.data with the settings of `eval`. Collective: every rank returns all results.

    Args:
        opened: score functions by `module:function` that need not be opened, those of the training.
        tests: encoded prompts of each benchmark, by its name.
    """
    settings = config.eval
    sampling = Sampling(
        n=settings.n,
        temperature=settings.temperature,
        max_tokens=config.rollout.max_completion_length,
        seed=config.train.seed,
        extraction=config.reward.extraction,
    )
    groups: dict[tuple[str, int], list[Sample]] = {}

    def keep(request, group):
        groups[request.data, request.index] = group

    names = scorers(tests, settings.reward)
    with open_scores(names, opened, config.reward) as scores:
        requests = [r for name, prompts in tests.items() for r in make_requests(name, prompts, scores[name])]
        sampled, own = shard(len(requests), accelerator, config)
        sample_responses(engine, tokenizer, [requests[i] for i in sampled], sampling, keep)
    keys = [(requests[i].data, requests[i].index) for i in own]
    gathered = all_gather_objects([(*key, groups[key]) for key in keys], accelerator)
    gathered.sort(key=lambda row: row[:2])
    groups_of = {name: [group for data, _, group in gathered if data == name] for name in tests}
    return [summarize(groups_of[name], name, settings.k, names[name]) for name in tests]
