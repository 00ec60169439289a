"""RolloutGroups: this step's problems in, scored rollouts out, and the kept ones of all ranks as one Batch."""

import math
import time
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from d3s.config.schema import Config
from d3s.data.prompts import EncodedPrompts
from d3s.distributed import all_gather_objects, shard
from d3s.packing import Batch
from d3s.reward import RewardFunction
from d3s.rollout.engine import Rollout
from d3s.rollout.seeds import rollout_seeds

TABLES = ("rewards", "verdicts", "lengths", "finished", "entropies")


@dataclass
class RolloutGroups:
    """The rollouts that this rank sampled, and the table of those of all ranks (B groups of G)."""

    problems: list[int]  # [B] the problem of each group, an index into the prompts
    rollouts: list[Rollout]  # this rank's; prompt_index is the row of the table
    slots: list[int]  # the column of each
    texts: list[str]  # the text of each
    rewards: Tensor  # [B, G] float32
    verdicts: Tensor  # [B, G] float32, the rewards without what format and length add
    lengths: Tensor  # [B, G] response tokens
    finished: Tensor  # [B, G] bool
    entropies: Tensor  # [B, G] nats, mean over the response; nan where the engine tells none
    generated: int = 0  # tokens sampled for it, those of groups that dynamic sampling has replaced included
    waited: float = 0.0  # seconds for verdicts that were still open when the last response had ended

    def has_signal(self) -> Tensor:
        """Which groups have verdicts that are not all equal, bool [B]: of right/wrong ones, 0 < right answers < G."""
        return (self.verdicts != self.verdicts[:, :1]).any(1)

    def groups(self, rows: list[int]) -> "RolloutGroups":
        """Only these groups, in this order."""
        place = {row: i for i, row in enumerate(rows)}
        kept = [i for i, r in enumerate(self.rollouts) if r.prompt_index in place]
        for i in kept:
            self.rollouts[i].prompt_index = place[self.rollouts[i].prompt_index]
        return RolloutGroups(
            [self.problems[row] for row in rows],
            *([column[i] for i in kept] for column in (self.rollouts, self.slots, self.texts)),
            *(getattr(self, name)[rows] for name in TABLES),
            self.generated,
            self.waited,
        )

    def __add__(self, other: "RolloutGroups") -> "RolloutGroups":
        for r in other.rollouts:
            r.prompt_index += len(self.problems)
        lists = [getattr(self, n) + getattr(other, n) for n in ("problems", "rollouts", "slots", "texts")]
        joined = (torch.cat([getattr(self, n), getattr(other, n)]) for n in TABLES)
        return RolloutGroups(*lists, *joined, self.generated + other.generated, self.waited + other.waited)


class Collector:
    """Samples and scores; the problems of a step are shared out over the ranks and their engines."""

    def __init__(
        self,
        config: Config,
        accelerator: Accelerator,
        engine,
        reward_function: RewardFunction,
        tokenizer,
        prompts: EncodedPrompts,
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.engine = engine
        self.reward_function = reward_function
        self.tokenizer = tokenizer
        self.prompts = prompts

    def collect(self, problems: list[int], position: int) -> RolloutGroups:
        """num_generations rollouts of each problem. Answers are verified while others still generate. Collective.

        Args:
            problems: indices into the prompts, the same on every rank.
            position: how many problems the run has sampled before; with train.seed it fixes the seed of every rollout,
                whichever rank samples it.
        """
        sampling, accelerator = self.config.rollout, self.accelerator
        n = sampling.num_generations
        rows, own = shard(len(problems), accelerator, self.config)
        texts: dict[int, str] = {}
        rewards = {}

        def finish(rollout: Rollout) -> None:
            row = rows[rollout.prompt_index]
            if row not in own:
                return
            problem = self.prompts.problems[problems[row]]
            text = self.tokenizer.decode(rollout.response_ids, skip_special_tokens=True)
            texts[id(rollout)] = text
            rewards[id(rollout)] = self.reward_function.submit(
                text, problem.answer, len(rollout.response_ids), problem.problem
            )

        rollouts = self.engine.generate(
            [self.prompts.ids[problems[row]] for row in rows],
            n=n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_completion_length,
            seeds=rollout_seeds(self.config.train.seed, "train", [position + row for row in rows], n),
            on_finished=finish,
        )
        generated = time.perf_counter()
        rollouts = [r for r in rollouts if rows[r.prompt_index] in own]
        scores = [rewards[id(r)]() for r in rollouts]
        waited = time.perf_counter() - generated
        table = []
        for i, r in enumerate(rollouts):
            r.prompt_index = rows[r.prompt_index]
            entropy = sum(r.entropies) / len(r.entropies) if r.entropies else math.nan
            table.append((r.prompt_index, i % n, *scores[i], len(r.response_ids), r.finished, entropy))
        columns = list(zip(*sorted(all_gather_objects(table, accelerator))))
        tables = [torch.tensor(column).view(-1, n) for column in columns[2:]]
        slots = [i % n for i in range(len(rollouts))]
        in_order = [texts[id(r)] for r in rollouts]
        scored = (table.float() for table in tables[:2])
        return RolloutGroups(problems, rollouts, slots, in_order, *scored, *tables[2:], int(tables[2].sum()), waited)


def gather_batch(experience: RolloutGroups, advantages: Tensor, kept: Tensor, accelerator: Accelerator) -> Batch:
    """The kept rollouts of all ranks, on every rank and in the order of the table. Nothing else is sent. Collective.

    Args:
        advantages: [B, G]; every response token gets its rollout's.
        kept: bool [B, G], the same on every rank.
    """
    own = [
        (r, r.prompt_index, slot)
        for r, slot in zip(experience.rollouts, experience.slots)
        if kept[r.prompt_index, slot]
    ]
    rollouts = [r for r, _, _ in own]
    unknown = [math.nan]  # the entropies of a server
    numbers = [  # pickled, an array is one buffer
        np.fromiter(chain.from_iterable(lists), dtype)
        for lists, dtype in (
            ((ids for r in rollouts for ids in (r.prompt_ids, r.response_ids)), np.int32),
            ((r.logprobs for r in rollouts), np.float32),
            ((r.entropies or unknown * len(r.response_ids) for r in rollouts), np.float32),
        )
    ]
    cells = [(row, slot, len(r.prompt_ids), len(r.response_ids)) for r, row, slot in own]
    sent = [(cells, numbers)]
    every = []  # row, slot, prompt, response, log-probabilities, entropies
    for cells, numbers in all_gather_objects(sent, accelerator):
        ids, *told = (torch.from_numpy(x) for x in numbers)
        texts = ids.split([length for cell in cells for length in cell[2:]])
        told = [x.split([cell[3] for cell in cells]) for x in told]
        every += [(*cell[:2], *parts) for cell, *parts in zip(cells, texts[::2], texts[1::2], *told)]
    every.sort(key=lambda rollout: rollout[:2])
    lengths = torch.tensor([len(row[3]) for row in every], dtype=torch.long)
    none = torch.zeros(0)
    return Batch(
        prompts=[row[2] for row in every],
        responses=[row[3] for row in every],
        advantages=advantages[kept].repeat_interleave(lengths),  # row by row, as the list is sorted
        rollout_logprobs=torch.cat([none, *(row[4] for row in every)]),
        entropies=torch.cat([none, *(row[5] for row in every)]),
    )
