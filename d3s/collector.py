"""Collect a step's rollouts: sample and score problems, gather the kept rollouts into one Batch."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import VERIFIER, Config
from d3s.data.prompts import EncodedPrompts
from d3s.distributed import all_gather_arrays, all_gather_objects, shard
from d3s.first_look import FirstResponses
from d3s.groups import TABLES, Rollout, RolloutGroups, add_counts
from d3s.packing import Batch
from d3s.reward import RewardFunction
from d3s.rewards.token_advantages import Shaper, cached_decode, token_advantages
from d3s.rollout.engine import SamplingParams
from d3s.rollout.prefixes import prefix_advantages
from d3s.rollout.seeds import rollout_seeds
from d3s.rollout.strategy import STRATEGY_RULES
from d3s.rules import stateful
from d3s.selector import Selection
from d3s.verifier.extraction import extract_answer


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
        self.config, self.accelerator, self.engine = config, accelerator, engine
        self.reward_function, self.tokenizer, self.prompts = reward_function, tokenizer, prompts
        self.strategy = STRATEGY_RULES.build(config.rollout.strategy, config=config)
        self.parts = stateful(self.strategy)
        self.shaper = Shaper(config.reward.shaper) if config.reward.shaper else None
        self.verifies = VERIFIER in config.reward.function_names().values()
        options = ("data.template", "rollout.max_completion_length", "reward.extraction", "rollout.temperature")
        self.look = FirstResponses(lambda text: None, *options)

    def problems_for(self, count: int) -> int:
        """How many problems `collect` is to be given for `count` groups; more if a strategy starts some ahead."""
        return self.strategy.problems_for(count=count) or count

    def of_all_ranks(self, states: dict[str, dict]) -> dict[str, dict]:
        """These states with those of `parts`, which differ by rank, of all ranks. Collective."""
        return states | {name: {"ranks": all_gather_objects([states[name]], self.accelerator)} for name in self.parts}

    def of_this_rank(self, states: dict[str, dict]) -> dict[str, dict]:
        """Undo `of_all_ranks`. Raises UserError if another number of ranks saved the states."""
        own, ranks = {}, self.accelerator.num_processes
        for name in self.parts.keys() & states.keys():
            saved = states[name]["ranks"]
            if len(saved) != ranks:
                problem = f"the checkpoint has the state of {len(saved)} processes, and this run has {ranks}"
                raise UserError(f"{name}: {problem}; launch as many as before")
            own[name] = saved[self.accelerator.process_index]
        return states | own

    def collect(self, problems: list[int], position: int, step: int, count: int) -> RolloutGroups:
        """Sample and score groups of num_generations rollouts. Collective.

        Args:
            problems: indices into the prompts, the same on every rank.
            position: how many problems the run has sampled before; with train.seed it fixes the seed of every rollout,
                whichever rank samples it.
            step: of the training, 0-based; a strategy may depend on it.
            count: groups to return, one of each problem unless a strategy drops some or carries them over.

        Raises: RewardError if a strategy failed, or a reward function with reward.errors: stop.
        """
        rollouts, waited, failures = [], 0.0, []
        try:
            rollouts = self._sample(problems, position, step, count)
            generated = time.perf_counter()
            self._wait(rollouts)
            waited = time.perf_counter() - generated
        except UserError as error:
            failures = [str(error)]
        if failures := all_gather_objects(failures, self.accelerator):  # on every rank, so that all of them can save
            raise RewardError(failures[0])
        counts = add_counts(all_gather_objects([_count(rollouts)], self.accelerator))
        cells = all_gather_objects([_cell(r) for r in rollouts], self.accelerator)
        cells.sort(key=lambda cell: cell["place"])

        def table(values: Iterable[float]) -> Tensor:
            return torch.tensor(list(values)).view(count, -1)

        names = sorted({name for cell in cells for name in cell["parts"]})
        return RolloutGroups(
            [cell["problem"] for cell in cells if cell["place"][1] == 0],
            rollouts,
            **{name: table(cell[name] for cell in cells) for name in TABLES},
            parts={name: table(cell["parts"].get(name, math.nan) for cell in cells) for name in names},
            dense=any(cell["dense"] for cell in cells),
            counts=counts,
            waited=waited,
        )

    def _sample(self, problems: list[int], position: int, step: int, count: int) -> list[Rollout]:
        """Sample this rank's share. Answers are verified while other responses are still being generated.

        Returns: rollouts of the groups that this rank reports, with their texts.
        """
        settings, n = self.config.rollout, self.config.rollout.num_generations
        sampled, own = shard(count, self.accelerator, settings.tensor_parallel_size)
        rows, _ = shard(len(problems), self.accelerator, settings.tensor_parallel_size)
        taken = [problems[row] for row in rows]

        def submit(rollout: Rollout) -> None:
            if rollout.problem is None:
                rollout.problem = taken[rollout.prompt_index]
            if len(own) < len(sampled) and sampled[rollout.prompt_index] not in own:
                return
            if self.prompts.ids[rollout.problem : rollout.problem + 1] != [rollout.prompt_ids]:
                raise UserError(
                    f"rollout.strategy: got a response to another prompt than that of problem {rollout.problem}, "
                    f"sample {rollout.sample}; a resumed run needs the data that it began with"
                )
            problem = self.prompts.problems[rollout.problem]
            ids = np.asarray(rollout.response_ids)  # of a list transformers checks every element first
            rollout.text = self.tokenizer.decode(ids, skip_special_tokens=True)
            rollout.scoring = self.reward_function.submit(rollout.text, problem.answer, problem.row)
            if self.look.open:
                answered = not self.verifies or extract_answer(rollout.text, self.config.reward.extraction) is not None
                self.look.add(rollout.problem, rollout.text, rollout.finished, answered)

        rollouts = self.strategy.generate(
            engine=self.engine,
            prompts=[self.prompts.ids[problem] for problem in taken],
            problems=taken,
            count=len(sampled),
            n=n,
            params=SamplingParams(temperature=settings.temperature, max_tokens=settings.max_completion_length),
            seeds=rollout_seeds(self.config.train.seed, "train", [position + row for row in rows], n),
            entropies=not settings.servers,
            step=step,
            on_finished=submit,
        )
        for r in rollouts:
            if r.scoring is None:
                submit(r)
            r.prompt_index = sampled[r.prompt_index]
        return [r for r in rollouts if r.prompt_index in own]

    def _wait(self, rollouts: list[Rollout]) -> None:
        """Wait for the outcomes, then let functions see whole groups, which this rank has in the order of samples."""
        for r in rollouts:
            r.outcome = r.scoring()
        for _, members in groupby(rollouts, key=lambda r: r.prompt_index):
            group = list(members)
            problem = self.prompts.problems[group[0].problem]
            responses, lengths = [r.text for r in group], [len(r.response_ids) for r in group]
            outcomes = self.reward_function.score_group(
                [r.outcome for r in group], responses, lengths, problem.answer, problem.row
            )
            for r, outcome in zip(group, outcomes, strict=True):
                r.outcome = outcome

    def token_advantages(self, groups: RolloutGroups, selection: Selection) -> list[Tensor] | None:
        """Advantages of the tokens of this rank's kept rollouts; None if each token has that of its response.

        Raises: UserError if rewards have spans under options that do not define them, or if reward.shaper fails.
        """
        rollouts, advantages = groups.of_rank(selection.kept), selection.advantages
        if groups.counts["shared"]:
            if groups.dense or self.shaper:
                raise UserError(
                    "rollout.strategy: got responses that share tokens; expected none with reward.shaper or rewards of "
                    "spans"
                )
            return prefix_advantages(rollouts, advantages)
        if not groups.dense and self.shaper is None:
            return None
        # rewards of spans are divided by what the centered rewards were
        divisors = selection.divisors if groups.dense else torch.ones(len(groups.rewards), 1)
        if divisors is None:
            raise UserError(
                "reward.functions: got a reward with spans, which requires reward.advantages: group, batch, none or a "
                "rule that returns divisors"
            )
        decode, values = cached_decode(self.tokenizer), []
        for r in rollouts:
            problem = self.prompts.problems[r.problem]
            advantage, divisor = advantages[r.prompt_index, r.sample].item(), divisors[r.prompt_index].item()
            shaped = self.shaper.spans(problem.problem, r.text, problem.answer, advantage) if self.shaper else ()
            values.append(token_advantages(decode, r.response_ids, r.text, advantage, divisor, r.outcome.spans, shaped))
        return values


def _cell(r: Rollout) -> dict[str, Any]:
    """What all ranks learn of a response: its place in the tables, and its value in each of them."""
    return {
        "place": (r.prompt_index, r.sample),
        "problem": r.problem,
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
    selection: Selection,
    accelerator: Accelerator,
    token_advantages: list[Tensor] | None = None,
) -> Batch:
    """Gather the kept rollouts of all ranks on every rank, in the order of the tables. Collective.

    Nothing else is sent. Token ids and per-token values travel as flat arrays.

    Args:
        selection: every response token gets its rollout's advantage, unless it has its own.
        token_advantages: one value per response token of each rollout of `groups.of_rank(kept)`; on all ranks or none.
    """
    advantages, kept = selection.advantages, selection.kept
    own = groups.of_rank(kept)
    places = all_gather_objects([(r.prompt_index, r.sample) for r in own], accelerator)
    order = sorted(range(len(places)), key=places.__getitem__)

    def gather(values: Iterable[Sequence], dtype: type, lengths: list[int]) -> list[np.ndarray]:
        """The values of each rollout; `lengths` are those of all ranks' rollouts."""
        flat = np.concatenate([np.zeros(0, dtype), *(np.asarray(x, dtype) for x in values)])
        pieces = np.split(np.concatenate(all_gather_arrays(flat, accelerator)), np.cumsum(lengths, dtype=int)[:-1])
        return [pieces[i] for i in order]

    def gather_tokens(values: Iterable[Sequence], dtype: type = np.float32) -> Tensor:
        """One value per response token of all rollouts."""
        return torch.from_numpy(np.concatenate([np.zeros(0, dtype), *gather(values, dtype, response_lengths)]))

    prompt_lengths = all_gather_objects([len(r.prompt_ids) for r in own], accelerator)
    response_lengths = [int(groups.lengths[place]) for place in places]
    if token_advantages is None:  # the order of the tables is that of the batch
        of_tokens = torch.from_numpy(advantages[kept].numpy().repeat(groups.lengths[kept].numpy()))
    else:
        of_tokens = gather_tokens(token_advantages)
    trainable = (~np.isin(np.arange(len(r.response_ids)), r.untrainable) for r in own)
    return Batch(
        prompts=gather((r.prompt_ids for r in own), np.int32, prompt_lengths),
        responses=gather((r.response_ids for r in own), np.int32, response_lengths),
        advantages=of_tokens,
        rollout_logprobs=gather_tokens(r.logprobs for r in own),
        entropies=gather_tokens(r.entropies or [math.nan] * len(r.response_ids) for r in own),  # servers return none
        trainable=gather_tokens(trainable, np.uint8).bool(),  # not every backend gathers bool
    )
