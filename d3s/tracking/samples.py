"""Sample records: responses of a step, what selection decided about each, and the numbers that it compared.

d3s.report.samples shows them.
"""

from typing import Any

from d3s.config.schema import Config
from d3s.data.prompts import EncodedPrompts
from d3s.groups import RolloutGroups
from d3s.packing import Batch
from d3s.rules import rule_name
from d3s.selector import Selection
from d3s.tracking.metrics import TrainingStep


def sample_records(config: Config, done: TrainingStep, prompts: EncodedPrompts, tokenizer: Any) -> list[dict]:
    """About tracker.samples of this rank's rollouts with their texts, rewards, and why each was trained or not.

    Those with trained tokens are first, and at least half of the records where there are as many.
    """
    groups, selection, batch = done.groups, done.selection, done.batch
    batch_index = {tuple(cell): i for i, cell in enumerate(selection.kept.nonzero().tolist())}
    counts, limit = batch.counts_of(batch.trained), config.tracker.samples
    cells = {cell for cell, i in batch_index.items() if counts[i]}
    trained = [rollout for rollout in groups.rollouts if (rollout.row, rollout.sample) in cells]
    others = [rollout for rollout in groups.rollouts if (rollout.row, rollout.sample) not in cells]
    shown = _spread(trained, max(limit - limit // 2, limit - len(others)))
    records = []
    for rollout in shown + _spread(others, limit - len(shown)):
        cell = (rollout.row, rollout.sample)
        problem = prompts.problems[rollout.problem]
        record = {
            "problem": problem.problem,
            "answer": problem.answer,
            "prompt": prompts.texts[rollout.problem],
            "response": rollout.text,
            "reward": groups.rewards[cell].item(),
            "right": groups.verdicts[cell].item() >= 1,
            "advantage": selection.advantages[cell].item(),
            "n": selection.n,
            "k": done.k,
            **_rank(config, groups, selection, cell),
            "selected": cell in batch_index,
            "tokens": [tokenizer.decode([token]) for token in rollout.response_ids],
            "entropies": rollout.entropies,
        }
        of_tokens = _of_tokens(config, batch, batch_index.get(cell), len(rollout.response_ids))
        records.append(record | of_tokens | {"reason": _reason(config, selection, batch, batch_index.get(cell), cell)})
    return records


def _rank(config: Config, groups: RolloutGroups, selection: Selection, cell: tuple[int, int]) -> dict[str, Any]:
    """The places of the value that selection compares, in its pool: first, last (of equal values), of how many."""
    selector, row = config.selector, cell[0]
    by_reward = selector.normalize == "after"
    values = groups.rewards if by_reward else selection.advantages
    pool = values[selection.eligible] if selection.cross_share else values[row][selection.eligible[row]]
    places = [int((pool > values[cell]).sum()) + 1, int((pool >= values[cell]).sum()), len(pool)]
    compared = ("batch" if selection.cross_share else "group") + ", by reward" * by_reward
    return {"rank": places if selection.eligible[cell] else None, "compared": compared}


def _of_tokens(config: Config, batch: Batch, sequence: int | None, length: int) -> dict[str, Any]:
    """Per token its priority and whether it was trained; and the lowest priority selected from its pool."""
    nothing = {"token_advantages": [], "trained": [False] * length, "priority": "", "priorities": [], "threshold": None}
    if sequence is None:
        return nothing
    tokens = batch.tokens_of(sequence)
    advantages = batch.advantages[tokens].tolist()
    known = {"token_advantages": advantages if len(set(advantages)) > 1 else []}
    known |= {"trained": batch.trained[tokens].tolist()}
    if batch.priorities is None:
        return nothing | known
    rivals = tokens if config.selector.token_scope == "sample" else slice(None)
    chosen = batch.priorities[rivals][batch.selected[rivals]]
    known["priority"] = rule_name(config.selector.tokens)
    known["priorities"] = [None if p != p else p for p in batch.priorities[tokens].tolist()]
    return nothing | known | {"threshold": chosen.min().item() if len(chosen) else None}


def _reason(config: Config, selection: Selection, batch: Batch, sequence: int | None, cell: tuple[int, int]) -> str:
    """Why the response or tokens selected in it are not trained; empty if nothing was in the way."""
    if not selection.eligible[cell]:
        return "cut at the length limit (loss.overlong_filtering)"
    if sequence is None:
        return f"not chosen by {rule_name(config.selector.rollouts)}"
    tokens = batch.tokens_of(sequence)
    selected, trained = (int(x[tokens].sum()) for x in (batch.selected, batch.trained))
    if not selected:
        return "none of its tokens is among the selected ones"
    if trained == selected:
        return ""
    if selection.advantages[cell] == 0 or rule_name(config.loss.engine_correction) == "none":
        return f"advantage 0 in {selected - trained} of {selected} selected tokens"
    return f"loss.engine_correction masks {selected - trained} of {selected} selected tokens"


def _spread(items: list, count: int) -> list:
    """At most `count` items, evenly spaced."""
    return [items[i * len(items) // count] for i in range(count)] if count < len(items) else items
