"""Collect a step's rollouts: sample and score problems, gather the kept rollouts into one Batch."""

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.common import UserError
from d3s.config.schema import VERIFIER, Config
from d3s.data.prompts import EncodedPrompts
from d3s.distributed import all_gather_arrays, all_gather_objects, require_equal, shard
from d3s.first_look import FirstResponses
from d3s.groups import TABLES, Rollout, RolloutGroups, add_counts
from d3s.gym.scores import stated_answer
from d3s.packing import Batch
from d3s.responses import after_thoughts, opening_mark, text_decoder
from d3s.reward import RewardFunction, fails_together
from d3s.rewards.token_advantages import SHAPER_RULES, cached_decode, token_advantages
from d3s.rollout.engine import SamplingParams, rollout_seeds
from d3s.rollout.strategy import STRATEGY_RULES
from d3s.selector import Selection

EVERY_S = 60  # seconds between two lines of a long step
OTHER_PROMPT = (
    "rollout.strategy: got a response to another prompt than that of problem {}, sample {}; a strategy gives engine "
    "and rollouts the numbers of `problems`, and a resumed run needs the data that it began with"
)


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
        self.decode = text_decoder(tokenizer, engine.stop_token_ids)
        self.strategy = STRATEGY_RULES.build(config.rollout.strategy, config=config)
        self.shaper = SHAPER_RULES.rule(config.reward.shaper) if config.reward.shaper else None
        self.verifies = VERIFIER in config.reward.function_names().values()
        options = ("data.template", "rollout.max_completion_length", "reward.extraction", "rollout.temperature")
        self.look = FirstResponses(lambda text: None, *options)

    def problems_for(self, count: int) -> int:
        """The number of problems that `collect` needs for `count` groups; a strategy that works ahead needs more."""
        asked = self.strategy.problems_for(count=count) or count
        if self.strategy.has("problems_for"):
            require_equal("rollout.strategy", [asked], self.accelerator)
        return asked

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
        with fails_together(self.accelerator):
            own = self._sample(problems, position, step, count)
            generated = time.perf_counter()
            self._wait(own)
            waited = time.perf_counter() - generated
        rollouts = [r for group in own for r in group]
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

    def _sample(self, problems: list[int], position: int, step: int, count: int) -> list[list[Rollout]]:
        """Sample this rank's share. Answers are verified while other responses are still being generated.

        Returns: the groups that this rank reports, with their rows and texts.
        """
        settings, n = self.config.rollout, self.config.rollout.num_generations
        sampled, own = shard(count, self.accelerator, settings.tensor_parallel_size)
        rows, _ = shard(len(problems), self.accelerator, settings.tensor_parallel_size)
        taken = [problems[row] for row in rows]
        # Ranks that share an engine sample the same groups.
        mine = {problem for row, problem in enumerate(problems) if row in own}
        done, started, shown = 0, time.monotonic(), time.monotonic()

        def finished(rollout: Rollout) -> None:
            if len(own) == len(sampled) or rollout.problem in mine:
                submit(rollout)

        def submit(rollout: Rollout) -> None:
            nonlocal done, shown
            if self.prompts.ids[rollout.problem : rollout.problem + 1] != [rollout.prompt_ids]:
                raise UserError(OTHER_PROMPT.format(rollout.problem, rollout.sample))
            problem = self.prompts.problems[rollout.problem]
            rollout.scored_ids = list(rollout.response_ids)
            rollout.text = opening_mark(self.prompts.texts[rollout.problem]) + self.decode(rollout.scored_ids)
            rollout.scoring = self.reward_function.submit(rollout.text, problem.answer, problem.row)
            if self.look.open:
                answer = stated_answer(rollout.text, problem.row, self.config.reward.extraction)
                self.look.add(rollout.problem, rollout.text, rollout.finished, not self.verifies or answer is not None)
            done += 1
            if (now := time.monotonic()) - shown > EVERY_S:
                shown = now
                self.look.progress(step, done, len(own) * n, now - started)

        groups = self.strategy.generate(
            engine=self.engine,
            prompts=[self.prompts.ids[problem] for problem in taken],
            problems=taken,
            count=len(sampled),
            n=n,
            params=SamplingParams(temperature=settings.temperature, max_tokens=settings.max_completion_length),
            seeds=rollout_seeds(self.config.train.seed, "train", [position + row for row in rows], n),
            entropies=not settings.servers,
            step=step,
            on_finished=finished,
            vocabulary=getattr(self.tokenizer, "embedding_rows", sys.maxsize),  # for the check of the result
        )
        reported = [(row, group) for row, group in zip(sampled, groups) if row in own]
        for row, group in reported:
            for sample, r in enumerate(group):
                r.row, r.sample = row, sample
                if r.scoring is None:
                    submit(r)
        return [group for _, group in reported]

    def _wait(self, groups: list[list[Rollout]]) -> None:
        """Wait for the outcomes, then let functions see whole groups."""
        outcomes = [[r.scoring(grouped=True) for r in group] for group in groups]
        for group, of_group in zip(groups, outcomes):
            problem = self.prompts.problems[group[0].problem]
            responses, lengths = [r.text for r in group], [len(r.response_ids) for r in group]
            of_group = self.reward_function.score_group(of_group, responses, lengths, problem.answer, problem.row)
            for r, outcome in zip(group, of_group, strict=True):
                r.outcome = outcome

    def token_advantages(self, groups: RolloutGroups, selection: Selection) -> list[tuple[Tensor, Tensor]] | None:
        """Of each token of this rank's kept rollouts its advantage, and whether it may be trained.

        Returns: float32 and bool [length] for each rollout; None if each token has the advantage of its response.

        Collective. Raises: RewardError if rewards have spans under options that do not define them, or if reward.shaper
        fails.
        """
        if not (groups.dense or self.shaper or self.strategy.has("token_advantages")):  # alike on all ranks
            return None
        with fails_together(self.accelerator):
            return self._token_advantages(groups, selection)

    def _token_advantages(self, groups: RolloutGroups, selection: Selection) -> list[tuple[Tensor, Tensor]]:
        rollouts, advantages = groups.of_rank(selection.kept), selection.advantages
        if self.strategy.has("token_advantages"):
            if groups.dense or self.shaper:
                raise UserError(
                    f"rollout.strategy: {self.strategy.name} decides the advantages of tokens, and so do reward.shaper "
                    "and rewards of spans; use one of them"
                )
            own = torch.tensor([advantages[r.row, r.sample] for r in rollouts])
            return self.strategy.token_advantages(rollouts=rollouts, advantages=own)
        # rewards of spans are divided by what the centered rewards were
        divisors = selection.divisors if groups.dense else torch.ones(len(groups.rewards), 1)
        if divisors is None:
            raise UserError(
                "reward.functions: got a reward with spans, which requires reward.advantages: group, batch, none or a "
                "rule that returns divisors"
            )
        decode, values = cached_decode(self.decode), []
        for r in rollouts:
            problem = self.prompts.problems[r.problem]
            advantage, divisor = advantages[r.row, r.sample].item(), divisors[r.row].item()
            texts = {"problem": problem.problem, "response": r.text, "answer": problem.answer}
            shaped = self.shaper(**texts, advantage=advantage) if self.shaper else ()
            opened = len(opening_mark(self.prompts.texts[r.problem]))  # characters that no token of the response has
            own = [span for spans in r.outcome.spans.values() for span in spans]
            spans, shaped = (
                [(max(0, start - opened), end - opened, value) for start, end, value in of_text if end > opened]
                for of_text in (own, shaped)
            )
            text = r.text[opened:]
            of_tokens = token_advantages(decode, r.response_ids, text, advantage, divisor, spans, shaped)
            values.append((of_tokens, torch.ones(len(of_tokens), dtype=torch.bool)))
        return values


def _cell(r: Rollout) -> dict[str, Any]:
    """The entry of a response in the tables of all ranks."""
    return {
        "place": (r.row, r.sample),
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
    """Count responses, distinct ones of each group, those that end inside a thought, tokens; and Rollout.counts."""
    counts = Counter(
        responses=len(rollouts),
        distinct=len({(r.row, *r.response_ids) for r in rollouts}),
        thinking=sum(after_thoughts(r.text) is None for r in rollouts),
        decoded=sum(r.counts.get("decoded", len(r.response_ids)) for r in rollouts),
    )
    for r in rollouts:
        counts.update({f"strategy/{name}": count for name, count in r.counts.items() if name != "decoded"})
    return counts


def gather_batch(
    groups: RolloutGroups,
    selection: Selection,
    accelerator: Accelerator,
    token_advantages: list[tuple[Tensor, Tensor]] | None = None,
) -> Batch:
    """Gather the kept rollouts of all ranks on every rank, in the order of the tables. Collective.

    Nothing else is sent. Token ids and per-token values travel as flat arrays.

    Args:
        selection: every response token gets its rollout's advantage, unless it has its own.
        token_advantages: of each rollout of `groups.of_rank(kept)` the advantages of its tokens, float32 [length], and
            whether they may be trained, bool [length]; on all ranks or none.
    """
    advantages, kept = selection.advantages, selection.kept
    own = groups.of_rank(kept)
    places = all_gather_objects([(r.row, r.sample) for r in own], accelerator)
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
        trainable = None
    else:
        of_tokens = gather_tokens(values for values, _ in token_advantages)
        trainable = gather_tokens((flags for _, flags in token_advantages), np.uint8).bool()  # no backend has bool
    return Batch(
        prompts=gather((r.prompt_ids for r in own), np.int32, prompt_lengths),
        responses=gather((r.response_ids for r in own), np.int32, response_lengths),
        advantages=of_tokens,
        rollout_logprobs=gather_tokens(r.logprobs for r in own),
        entropies=gather_tokens(r.entropies or [math.nan] * len(r.response_ids) for r in own),  # servers return none
        trainable=trainable,
    )
