"""Collect a step's rollouts: sample and score problems, gather the kept rollouts into one Batch."""

import math
import time
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, chain, groupby
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.advantage import compute_advantages
from d3s.common import UserError
from d3s.config.schema import Config
from d3s.data.prompts import EncodedPrompts
from d3s.distributed import all_gather_arrays, all_gather_objects, shard
from d3s.packing import Batch
from d3s.reward import RewardFunction
from d3s.rewards.token_advantages import Kept, Shaper, token_advantages
from d3s.rollout.engine import Rollout, SamplingParams
from d3s.rollout.groups import TABLES, RolloutGroups, add_counts
from d3s.rollout.prefixes import prefix_advantages
from d3s.rollout.seeds import rollout_seeds
from d3s.rollout.strategy import STRATEGY_RULES


class RewardError(UserError):
    """A reward function or a strategy failed. It is raised on all ranks, whichever called the function."""


class Collector:
    """Samples and scores problems, which are sharded over the ranks and their engines."""

    def __init__(
        self,
        config: Config,
        accelerator: Accelerator,
        engine: Any,
        reward_function: RewardFunction,
        tokenizer: Any,
        prompts: EncodedPrompts,
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.engine = engine
        self.reward_function = reward_function
        self.tokenizer = tokenizer
        self.prompts = prompts
        self.strategy = STRATEGY_RULES.build(config.rollout.strategy, config=config)
        self.shaper = Shaper(config.reward.shaper) if config.reward.shaper else None

    def collect(self, problems: list[int], position: int, step: int = 0) -> RolloutGroups:
        """Sample and score num_generations rollouts of each problem. Collective.

        Args:
            problems: indices into the prompts, the same on every rank.
            position: how many problems the run has sampled before; with train.seed it fixes the seed of every rollout,
                whichever rank samples it.
            step: of the training, 0-based; a strategy may depend on it.

        Raises: RewardError if a strategy failed, or a reward function with reward.errors: stop.
        """
        rollouts, waited, failure = [], 0.0, ""
        try:
            rollouts = self._sample(problems, position, step)
            generated = time.perf_counter()
            self._wait(problems, rollouts)
            waited = time.perf_counter() - generated
        except UserError as error:
            failure = str(error)
        cells = [] if failure else [_cell(r) for r in rollouts]
        gathered = all_gather_objects([(cells, _count(rollouts), failure)], self.accelerator)
        for _, _, failed in gathered:  # on every rank alike, so that all of them can save a checkpoint
            if failed:
                raise RewardError(failed)
        counts = add_counts(of_rank for _, of_rank, _ in gathered)
        cells = sorted(chain(*(of_rank for of_rank, _, _ in gathered)), key=lambda cell: cell["place"])

        def table(values: Iterable[float]) -> Tensor:
            return torch.tensor(list(values)).view(len(problems), -1)

        names = sorted({name for cell in cells for name in cell["parts"]})
        return RolloutGroups(
            problems,
            rollouts,
            **{name: table(cell[name] for cell in cells) for name in TABLES},
            parts={name: table(cell["parts"].get(name, math.nan) for cell in cells) for name in names},
            dense=any(cell["dense"] for cell in cells),
            generated=counts["decoded"],
            counts=counts,
            waited=waited,
        )

    def _sample(self, problems: list[int], position: int, step: int) -> list[Rollout]:
        """Sample this rank's share. Answers are verified while other responses are still being generated.

        Returns: rollouts of the groups that this rank reports, with their texts.
        """
        settings, n = self.config.rollout, self.config.rollout.num_generations
        sampled, own = shard(len(problems), self.accelerator, self.config)

        def submit(rollout: Rollout) -> None:
            row = sampled[rollout.prompt_index]
            if row not in own:
                return
            problem = self.prompts.problems[problems[row]]
            ids = np.asarray(rollout.response_ids)  # of a list transformers checks every element first
            rollout.text = self.tokenizer.decode(ids, skip_special_tokens=True)
            rollout.scoring = self.reward_function.submit(rollout.text, problem.answer, problem.row)

        rollouts = self.strategy.generate(
            engine=self.engine,
            prompts=[self.prompts.ids[problems[row]] for row in sampled],
            n=n,
            params=SamplingParams(
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                max_tokens=settings.max_completion_length,
            ),
            seeds=rollout_seeds(self.config.train.seed, "train", [position + row for row in sampled], n),
            entropies=not settings.servers,
            step=step,
            on_finished=submit,
        )
        for r in rollouts:
            if r.scoring is None:
                submit(r)
            r.prompt_index = sampled[r.prompt_index]
        return [r for r in rollouts if r.prompt_index in own]

    def _wait(self, problems: list[int], rollouts: list[Rollout]) -> None:
        """Wait for the outcomes, then let functions look at whole groups, which this rank has in the order of samples.

        Raises: UserError if a reward function failed.
        """
        for r in rollouts:
            r.outcome = r.scoring()
        for row, members in groupby(rollouts, key=lambda r: r.prompt_index):
            group, problem = list(members), self.prompts.problems[problems[row]]
            responses, lengths = [r.text for r in group], [len(r.response_ids) for r in group]
            outcomes = self.reward_function.score_group(
                [r.outcome for r in group], responses, lengths, problem.answer, problem.row
            )
            for r, outcome in zip(group, outcomes, strict=True):
                r.outcome = outcome

    def token_advantages(self, groups: RolloutGroups, advantages: Tensor, kept: Tensor) -> list[Tensor] | None:
        """Advantages of the tokens of this rank's kept rollouts; None if each token has that of its response.

        Args:
            advantages: [B, G].
            kept: bool [B, G].

        Raises: UserError if rewards have spans under options that do not define them, or if reward.shaper fails.
        """
        rollouts, of_group = groups.of_rank(kept), torch.ones(len(groups.rewards), 1)
        if groups.counts["shared"]:
            if groups.dense or self.shaper:
                raise UserError(
                    "rollout.strategy: got responses that share tokens; expected none with reward.shaper or rewards of "
                    "spans"
                )
            return prefix_advantages(rollouts, advantages)
        if groups.dense:
            of_group = self._divisors(groups, kept)
        elif self.shaper is None:
            return None
        chosen = []
        for r in rollouts:
            problem = self.prompts.problems[groups.problems[r.prompt_index]]
            advantage, divisor = advantages[r.prompt_index, r.sample].item(), of_group[r.prompt_index].item()
            values = (r.response_ids, r.text, r.outcome.spans, advantage, divisor)
            chosen.append(Kept(problem.problem, problem.answer, *values))
        return token_advantages(chosen, self.tokenizer, self.shaper)

    def _divisors(self, groups: RolloutGroups, kept: Tensor) -> Tensor:
        """What centered rewards were divided by, [B, 1]. Raises UserError if rewards of spans are not defined."""
        counted = kept if self.config.selector.normalize == "after" else None
        _, divisors = compute_advantages(self.config.reward, groups.rewards, groups.parts, counted)
        if divisors is None:
            raise UserError(
                "reward.functions: got a reward with spans, which requires reward.advantages: group, batch, none or a "
                "rule that returns divisors"
            )
        return divisors


def _cell(r: Rollout) -> dict[str, Any]:
    """What all ranks learn of a response: its place in the tables, and its value in each of them."""
    return {
        "place": (r.prompt_index, r.sample),
        "rewards": r.outcome.reward,
        "verdicts": r.outcome.verdict,
        "lengths": len(r.response_ids),
        "finished": r.finished,
        "entropies": sum(r.entropies) / len(r.entropies) if r.entropies else math.nan,
        "parts": r.outcome.parts,
        "dense": bool(r.outcome.spans),
    }


def _count(rollouts: list[Rollout]) -> Counter[str]:
    """Count responses, the distinct ones of each group, those that share tokens, sampled tokens; and Rollout.counts."""
    counts = Counter(
        responses=len(rollouts),
        distinct=len({(r.prompt_index, *r.response_ids) for r in rollouts}),
        shared=sum(bool(r.lineage) for r in rollouts),
        decoded=sum(r.counts.get("decoded", len(r.response_ids)) for r in rollouts),
    )
    for r in rollouts:
        counts.update({f"strategy/{name}": count for name, count in r.counts.items() if name != "decoded"})
    return counts


def gather_batch(
    groups: RolloutGroups,
    advantages: Tensor,
    kept: Tensor,
    accelerator: Accelerator,
    token_advantages: list[Tensor] | None = None,
) -> Batch:
    """Gather the kept rollouts of all ranks on every rank, in the order of the tables. Collective.

    Nothing else is sent. Token ids and per-token values travel as flat arrays.

    Args:
        advantages: [B, G]; every response token gets its rollout's, unless it has its own.
        kept: bool [B, G], the same on every rank.
        token_advantages: one value per response token of each rollout of `groups.of_rank(kept)`; on all ranks or none.
    """
    own = groups.of_rank(kept)
    cells = [(r.prompt_index, r.sample, len(r.prompt_ids), len(r.response_ids)) for r in own]
    cells = all_gather_objects([cells], accelerator)  # of each rank
    all_cells = list(chain(*cells))
    order = sorted(range(len(all_cells)), key=all_cells.__getitem__)
    ids, *values = _flat_arrays(own, token_advantages)
    texts = _gather_pieces(ids, [[length for cell in of_rank for length in cell[2:]] for of_rank in cells], accelerator)
    prompts, responses = ([pieces[i] for i in order] for pieces in (texts[::2], texts[1::2]))
    lengths = [[cell[3] for cell in of_rank] for of_rank in cells]
    logprobs, entropies, trainable, *own_advantages = (
        _in_order(_gather_pieces(value, lengths, accelerator), order, value.dtype) for value in values
    )
    if not own_advantages:  # rollouts are in the order of rows, then columns
        own_advantages = [advantages[kept].numpy().repeat([len(response) for response in responses])]
    return Batch(
        prompts=prompts,
        responses=responses,
        advantages=torch.from_numpy(own_advantages[0]),
        rollout_logprobs=torch.from_numpy(logprobs),
        entropies=torch.from_numpy(entropies),
        trainable=None if trainable.all() else torch.from_numpy(trainable).bool(),
    )


def _gather_pieces(array: np.ndarray, lengths: list[list[int]], accelerator: Accelerator) -> list[np.ndarray]:
    """Gather the arrays of all ranks and cut that of each rank into pieces of these lengths."""
    pieces = []
    for of_rank, lengths_of_rank in zip(all_gather_arrays(array, accelerator), lengths, strict=True):
        ends = accumulate(lengths_of_rank)
        pieces += [of_rank[end - length : end] for end, length in zip(ends, lengths_of_rank)]
    return pieces


def _in_order(pieces: list[np.ndarray], order: list[int], dtype: np.dtype) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *(pieces[i] for i in order)])


def _flat_arrays(rollouts: list[Rollout], token_advantages: list[Tensor] | None) -> list[np.ndarray]:
    """Token ids of prompts and responses; log-probability, entropy, trainability of each response token."""
    no_entropy = [math.nan]  # rollout servers return no entropies
    arrays = [
        np.fromiter(chain.from_iterable(values), dtype)
        for values, dtype in (
            ((ids for r in rollouts for ids in (r.prompt_ids, r.response_ids)), np.int32),
            ((r.logprobs for r in rollouts), np.float32),
            ((r.entropies or no_entropy * len(r.response_ids) for r in rollouts), np.float32),
        )
    ]
    trainable = np.ones(len(arrays[1]), np.uint8)
    start = 0
    for r in rollouts:
        trainable[[start + position for position in r.untrainable]] = 0
        start += len(r.response_ids)
    arrays.append(trainable)
    if token_advantages is not None:
        arrays.append(torch.cat([torch.zeros(0), *token_advantages]).float().numpy())
    return arrays
