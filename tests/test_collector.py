"""Collecting and gathering with a scripted engine and reward, against loops over all samples.

Several ranks are threads that share one all_gather_objects and one all_gather_arrays.
"""

import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from d3s.checkpoint import part_states, restore_parts
from d3s.collector import Collector, gather_batch
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.groups import Outcome, RolloutGroups
from d3s.reward import RewardError
from d3s.rollout.engine import Engine, SamplingParams, rollout_seeds
from d3s.rules import stateful
from d3s.tracking.metrics import rollout_metrics
from research.carry_over import SimulatedEngine
from tests.helpers.selection import selection_of

N = 4  # samples of a problem
END = 50  # the end-of-sequence token
PROBLEMS, POSITION = [5, 0, 3, 2, 4], 70
SHAPE = (len(PROBLEMS), N)
CELLS = [(row, column) for row in range(len(PROBLEMS)) for column in range(N)]
PROMPTS = EncodedPrompts(
    problems=[Problem(str(i), f"problem {i}", f"answer {i}", "test") for i in range(6)],
    texts=[f"prompt {i}" for i in range(6)],
    ids=[[100 + i] * (i + 1) for i in range(6)],
    dropped=0,
)


# --- scripted parts ---------------------------------------------------------------------------------------------------


def respond(prompt: list[int], seed: int) -> dict:
    """The fields of the response to this prompt and seed."""
    draw = random.Random(f"{prompt} {seed}")
    length = draw.randint(1, 6)
    ids = [draw.randrange(END) for _ in range(length)]
    return {
        "response_ids": ids if length == 6 else [*ids[:-1], END],
        "logprobs": [-draw.random() for _ in range(length)],
        "entropies": [draw.random() for _ in range(length)],
        "finished": length < 6,
    }


class ScriptedEngine(Engine):
    """Responds by `respond`, and finishes the responses in random order."""

    load_weights, stop_token_ids = None, [END]

    def __init__(self, events: list, entropies: bool = True) -> None:
        self.events, self.calls, self.entropies = events, [], entropies

    def sample(self, rollouts, params, seeds, entropies, on_finished):
        self.calls.append((rollouts, params))
        for r, seed in zip(rollouts, seeds, strict=True):
            vars(r).update(respond(r.prompt_ids, seed) | ({} if self.entropies else {"entropies": []}))
        for r in random.Random(0).sample(rollouts, len(rollouts)):
            on_finished(r)
        self.events.append("generated")


def score(text: str, length: int) -> tuple[float, float]:
    """Reward and verdict: whether the sum of the tokens is even, and a penalty for length."""
    verdict = float(sum(map(int, text.split())) % 2 == 0)
    return verdict - 0.125 * length, verdict


class ScriptedReward:
    """Scores by `score`, which needs the answer of the right problem."""

    broken = None  # the problem for which it fails
    objects = ()

    def __init__(self, events: list) -> None:
        self.events = events

    def submit(self, text, answer, row):
        length = min(6, len(text.split()) + 1)  # with END, which the longest ones lack
        assert row["problem"].removeprefix("problem ") == answer.removeprefix("answer ")
        self.events.append("submitted")

        def result(grouped=False):
            if row["problem"] == self.broken:
                raise UserError("reward.functions: broken")
            self.events.append("awaited")
            parts = {"length": float(length)} if length % 2 else {}
            return Outcome(*score(text, length), parts, {"f": [(0, 1, 0.5)]} if length == 3 else {})

        return result

    def score_group(self, outcomes, responses, lengths, answer, row):
        """Leave the outcomes, and remember the group."""
        assert all(len(text.split()) <= length for text, length in zip(responses, lengths, strict=True))
        self.events.append((row["problem"], answer, *responses))
        return outcomes


class NumberTokenizer:
    """Token ids as numbers."""

    def decode(self, ids, skip_special_tokens):
        assert not skip_special_tokens
        return " ".join(map(str, ids))


def make_collector(place, engine, events, *options: str) -> Collector:
    settings = [f"rollout.num_generations={N}", "train.seed=3", "rollout.temperature=0.8", "schedule.n_init=2"]
    settings += ["rollout.max_completion_length=6", f"schedule.n_final={N}", *options]
    return Collector(load_config([], settings), place, engine, ScriptedReward(events), NumberTokenizer(), PROMPTS)


@pytest.fixture
def on_ranks(monkeypatch):
    """on_ranks(count, function): what the function returns on each of the ranks, and the arrays that they sent."""

    def run(count, function):
        barrier, items, sent = threading.Barrier(count), {}, []

        def gather(own, place):
            items[place.process_index] = own
            barrier.wait(60)
            gathered = [item for rank in range(count) for item in items[rank]]
            barrier.wait(60)
            return gathered

        for module in ("collector", "checkpoint", "reward"):
            monkeypatch.setattr(f"d3s.{module}.all_gather_objects", gather)
        monkeypatch.setattr("d3s.collector.all_gather_arrays", lambda x, place: sent.append(x) or gather([x], place))
        places = [SimpleNamespace(process_index=rank, num_processes=count) for rank in range(count)]
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(function, places)), sent

    return run


@pytest.fixture
def collect(on_ranks):
    """collect(ranks, engine size, ...): of each rank its groups, engine and events."""

    def run(ranks=1, engine_size=1, options=(), entropies=True, count=SHAPE[0]):
        def on_rank(place):
            engine, events = ScriptedEngine([], entropies), []
            engine.events = events
            size = f"rollout.tensor_parallel_size={engine_size}"
            collector = make_collector(place, engine, events, size, *options)
            collector.look.say = (said := []).append
            groups = collector.collect(list(PROBLEMS), POSITION, step=0, count=count)
            return SimpleNamespace(groups=groups, engine=engine, events=events, said=said)

        return on_ranks(ranks, on_rank)[0]

    return run


def test_long_generation_says_how_far_it_is(collect, monkeypatch):
    monkeypatch.setattr("d3s.collector.EVERY_S", -1)
    (rank,) = collect()
    lines = [line for line in rank.said if line.startswith("step")]
    assert lines == [f"step 1: {i} of {len(CELLS)} responses after 0 s" for i in range(1, len(CELLS) + 1)]
    monkeypatch.undo()
    assert not any(line.startswith("step") for line in collect()[0].said)


def expected(row: int, column: int) -> SimpleNamespace:
    """The rollout of this cell of the tables, by the seed of its place in the data order."""
    seed = rollout_seeds(3, "train", [POSITION + row], N)[column]
    r = SimpleNamespace(**respond(PROMPTS.ids[PROBLEMS[row]], seed), prompt_ids=PROMPTS.ids[PROBLEMS[row]])
    r.length = len(r.response_ids)
    r.text = " ".join(map(str, r.response_ids[: r.length - r.finished]))
    return r


# --- collect ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2), (7, 1)])
def test_groups_match_a_loop_on_every_rank(collect, ranks, engine_size):
    """The tables have all groups. Each group is held and scored by one rank, in the order of the tables, once.

    Ranks of one engine request the same prompts. A rank holds the spans of its own rollouts, and all know of them.
    """
    results, held, scored = collect(ranks, engine_size), [], []
    for rank, result in enumerate(results):
        groups, cells = result.groups, [(r.row, r.sample) for r in result.groups.rollouts]
        assert groups.problems == PROBLEMS and groups.rewards.shape == SHAPE and groups.dense
        for cell in CELLS:
            r = expected(*cell)
            assert (groups.rewards[cell].item(), groups.verdicts[cell].item()) == score(r.text, r.length)
            assert groups.lengths[cell].item() == r.length and groups.finished[cell].item() is r.finished
            part = r.length if r.length % 2 else math.nan
            assert groups.parts["length"][cell].tolist() == pytest.approx(part, nan_ok=True)
            assert groups.entropies[cell].item() == pytest.approx(sum(r.entropies) / r.length, rel=1e-6)
        assert groups.generated == sum(expected(*cell).length for cell in CELLS)
        assert groups.rewards.dtype == groups.verdicts.dtype == torch.float32 and groups.finished.dtype == torch.bool
        assert cells == sorted(cells)
        for cell, r in zip(cells, groups.rollouts, strict=True):
            wanted = expected(*cell)
            assert (r.response_ids, r.logprobs, r.text) == (wanted.response_ids, wanted.logprobs, wanted.text)
            assert r.outcome.spans == ({"f": [(0, 1, 0.5)]} if wanted.length == 3 else {})
        held += cells
        scored += [event for event in result.events if isinstance(event, tuple)]
        assert result.events.count("submitted") == len(cells)
        [(rollouts, params)] = result.engine.calls
        assert params == SamplingParams(max_tokens=6, temperature=0.8)
        [(of_first, _)] = results[rank - rank % engine_size].engine.calls
        assert [r.prompt_ids for r in rollouts] == [r.prompt_ids for r in of_first]
    assert sorted(held) == CELLS
    texts = {p: [expected(row, column).text for column in range(N)] for row, p in enumerate(PROBLEMS)}
    assert sorted(scored) == sorted((f"problem {p}", f"answer {p}", *texts[p]) for p in PROBLEMS)


def test_responses_continue_the_thoughts_of_their_prompts(on_ranks):
    """Rewards see the mark by which a prompt opened a thought. No token has it, so that spans lose their part of it."""
    opened, seen = [("", "<think>\n")[problem % 2] for problem in range(6)], []
    texts = [text + mark for text, mark in zip(PROMPTS.texts, opened, strict=True)]

    class Reward(ScriptedReward):
        def submit(self, text, answer, row):
            seen.append(text)
            mark = opened[int(answer.removeprefix("answer "))]
            spans = [(0, len(mark), 8.0)] * bool(mark) + [(0, len(mark) + 1, 0.5)]  # and of the first token
            return lambda grouped: Outcome(1.0, 1.0, {}, {"f": spans})

        def score_group(self, outcomes, *_):
            return outcomes

    def on_rank(place):
        collector = make_collector(place, ScriptedEngine([]), [], "reward.advantages=none")
        collector.reward_function, collector.prompts = Reward([]), replace(PROMPTS, texts=texts)
        groups = collector.collect(list(PROBLEMS), POSITION, step=0, count=SHAPE[0])
        selection = selection_of(torch.ones(SHAPE), torch.ones(SHAPE, dtype=torch.bool))
        return groups, collector.token_advantages(groups, replace(selection, divisors=torch.ones(SHAPE[0], 1)))

    [(groups, values)] = on_ranks(1, on_rank)[0]
    wanted = {place: expected(*place) for place in CELLS}
    for r, advantages in zip(groups.rollouts, values, strict=True):
        assert r.text == opened[r.problem] + wanted[r.row, r.sample].text and r.text in seen
        advantages, trainable = advantages
        assert trainable.all() and advantages.tolist() == [1.0] + [0.5] * (len(r.response_ids) - 1)
    unclosed = sum(opened[problem] != "" for problem in PROBLEMS) * N
    assert groups.counts["thinking"] == unclosed
    assert rollout_metrics(groups)["completion/unclosed_thought"] == unclosed / len(CELLS)


def test_rewards_are_submitted_during_generation(collect):
    """No verdict is awaited before the last response has been generated."""
    [result] = collect()
    events = result.events[: -len(PROBLEMS)]
    assert events == ["submitted"] * len(CELLS) + ["generated"] + ["awaited"] * len(CELLS)
    assert 0 <= result.groups.waited < 5


@pytest.mark.parametrize(
    ("rule", "ranks", "message"),
    [
        ("InTwoRounds", 2, "reward.functions: broken"),
        ("NotOfThree", 2, r"^rollout\.strategy: .*NotOfThree\.generate raised RuntimeError: broken"),
        ("OtherPrompt", 1, "got a response to another prompt than that of problem 5, sample 2; a strategy"),
    ],
)
def test_failed_rewards_and_strategies_end_every_rank(collect, monkeypatch, rule, ranks, message):
    """The message is that of the rank whose function failed; no rank waits for another."""
    monkeypatch.setattr(ScriptedReward, "broken", "problem 3" if rule == "InTwoRounds" else None)
    with pytest.raises(RewardError, match=message):
        collect(ranks, options=[f"rollout.strategy=tests.helpers.own_rules:{rule}"])


def test_tokens_are_of_the_vocabulary(collect, monkeypatch):
    monkeypatch.setattr(NumberTokenizer, "embedding_rows", 3, raising=False)
    with pytest.raises(RewardError, match=r"\.generate returned the token \d+ in .*, expected an id below 3"):
        collect(options=["rollout.strategy=tests.helpers.own_rules:InTwoRounds"])


def test_failed_shaper_ends_every_rank(on_ranks):
    """That of one rank, which has the responses to the problem for which it fails."""

    def shaper(problem, **_):
        if problem == "problem 3":
            raise UserError("reward.shaper: broken")
        return ()

    def on_rank(place):
        collector = make_collector(place, ScriptedEngine([]), [])
        groups = collector.collect(list(PROBLEMS), POSITION, step=0, count=SHAPE[0])
        collector.shaper, kept = shaper, torch.ones(SHAPE, dtype=torch.bool)
        selection = selection_of(torch.zeros(SHAPE), kept)
        selection.divisors = torch.ones(SHAPE[0], 1)
        with pytest.raises(RewardError, match=r"^reward\.shaper: broken$"):
            collector.token_advantages(groups, selection)

    assert on_ranks(3, on_rank)[0] == [None] * 3


def test_groups_are_added_and_taken(collect):
    """Dynamic sampling adds groups before it takes those that have a signal; what was replaced was paid for."""

    def contents(groups: RolloutGroups) -> list[list[tuple]]:
        """Everything known of each cell, by row and column."""
        rollouts = {(r.row, r.sample): (r.response_ids, r.text, r.outcome) for r in groups.rollouts}
        tables = (groups.rewards, groups.verdicts, groups.lengths, groups.finished, groups.entropies)
        return [
            [(problem, *rollouts[row, column], *(t[row, column].item() for t in tables)) for column in range(N)]
            for row, problem in enumerate(groups.problems)
        ]

    first, second = collect()[0].groups, collect()[0].groups
    before, second.waited = contents(first) + contents(second), 1.5
    generated, waited = first.generated + second.generated, first.waited + 1.5
    taken = (first + second).take([7, 1, 5])
    assert contents(taken) == [before[row] for row in (7, 1, 5)] and taken.dense
    assert (taken.generated, taken.waited) == (generated, waited)


# --- gather_batch -----------------------------------------------------------------------------------------------------

KEPT = {
    "some": torch.rand(SHAPE, generator=torch.Generator().manual_seed(0)) < 0.4,
    "one row": torch.arange(SHAPE[0])[:, None].expand(SHAPE) == 2,
    "none": torch.zeros(SHAPE, dtype=torch.bool),
}


@pytest.mark.parametrize("own_values", [False, True])
@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (4, 2)])
def test_gathered_batch_matches_a_loop(collect, on_ranks, case, ranks, engine_size, own_values):
    """Kept rollouts alone are sent. Tokens may have advantages of their own, and be untrainable."""
    kept, by_rank = KEPT[case], [result.groups for result in collect(ranks, engine_size)]
    advantages = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))

    def on_rank(place):
        groups = by_rank[place.process_index]
        values = []
        for r in groups.of_rank(kept):
            trainable = torch.tensor([r.sample % 2 == 0 or 0 < i < len(r.logprobs) - 1 for i in range(len(r.logprobs))])
            values.append((torch.tensor([10.0 * r.sample + p for p in r.logprobs]), trainable))
        return gather_batch(groups, selection_of(advantages, kept), place, values if own_values else None)

    batches, sent = on_ranks(ranks, on_rank)
    cells = [cell for cell in CELLS if kept[cell]]
    rollouts = [expected(*cell) for cell in cells]
    tokens = [(cell, r, i) for cell, r in zip(cells, rollouts) for i in range(r.length)]
    for batch in batches:
        assert [list(map(int, ids)) for ids in batch.prompts] == [r.prompt_ids for r in rollouts]
        assert [list(map(int, ids)) for ids in batch.responses] == [r.response_ids for r in rollouts]
        assert batch.rollout_logprobs.tolist() == pytest.approx([r.logprobs[i] for _, r, i in tokens])
        assert batch.entropies.tolist() == pytest.approx([r.entropies[i] for _, r, i in tokens])
        values = [10.0 * cell[1] + r.logprobs[i] if own_values else advantages[cell].item() for cell, r, i in tokens]
        assert batch.advantages.tolist() == pytest.approx(values)
        flags = [not own_values or cell[1] % 2 == 0 or i not in (0, r.length - 1) for cell, r, i in tokens]
        assert batch.trainable.tolist() == flags
    prompts, responses = sum(len(r.prompt_ids) for r in rollouts), len(tokens)
    counts = {kind: sum(len(x) for x in sent if x.dtype == kind) for kind in ("int32", "float32", "uint8")}
    floats, flags = (2 + own_values) * responses, own_values * responses
    assert counts == {"int32": prompts + responses, "float32": floats, "uint8": flags}
    assert sum(map(len, sent)) == sum(counts.values())


def test_missing_entropies_are_nan(collect, on_ranks):
    """Rollout servers return none."""
    [result] = collect(entropies=False)
    assert result.groups.entropies.shape == SHAPE and result.groups.entropies.isnan().all()
    gather = partial(gather_batch, result.groups, selection_of(torch.zeros(SHAPE), KEPT["some"]))
    [batch], _ = on_ranks(1, gather)
    assert len(batch.entropies) == len(batch.sequence_ids) and batch.entropies.isnan().all()


# --- groups that a strategy carries over or drops ---------------------------------------------------------------------


def length_of(prompt: int, seed: int) -> int:
    return random.Random(f"{prompt} {seed}").randint(1, 30)


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2)])
def test_carried_groups_are_returned_once(on_ranks, ranks, engine_size):
    """By all ranks together, with their own problems, from states that are saved and restored after each step."""
    count, options = 4, [f"rollout.tensor_parallel_size={engine_size}", "rollout.max_completion_length=30"]
    options += ["rollout.strategy={rule: 'd3s.methods.carry_over:CarryOver', extra: 0.5}", "rollout.engine=vllm"]
    options += ["loss.old_logprobs=engine"]

    def one_step(place):
        collector = make_collector(place, SimulatedEngine(length_of, slots=9), [], *options)
        restore_parts(parts := stateful(collector.strategy), saved, place)
        asked = collector.problems_for(count)
        groups = collector.collect([(position + i) % 6 for i in range(asked)], position, step, count)
        return groups, part_states(parts, place), asked

    saved, position, waiting = {}, 0, []
    for step in range(4):  # noqa: B007 (one_step reads it)
        results, _ = on_ranks(ranks, one_step)
        tables, saved, asked = results[0]
        for place in range(position, position + asked):
            seeds = rollout_seeds(3, "train", [place], N)
            waiting.append((place % 6, [length_of(100 + place % 6, seed) for seed in seeds]))
        position += asked
        assert len(tables.problems) == count and tables.rewards.shape == (count, N)
        for group in zip(tables.problems, tables.lengths.tolist(), strict=True):
            waiting.remove(group)  # raises if there is none
        assert all(g.problems == tables.problems and torch.equal(g.lengths, tables.lengths) for g, _, _ in results)
        assert sum(len(g.rollouts) for g, _, _ in results) == count * N
    assert len(waiting) == 2
    with pytest.raises(UserError, match=f"the state of {ranks} processes, and this run has {ranks + 1}"):
        other = SimpleNamespace(num_processes=ranks + 1)
        restore_parts(stateful(make_collector(other, ScriptedEngine([]), [], *options).strategy), saved, other)


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (2, 2)])
def test_problems_may_have_several_groups(collect, ranks, engine_size):
    """A step then takes fewer problems than it has groups."""
    results = collect(ranks, engine_size, ["rollout.strategy=tests.helpers.own_rules:Doubled"], count=8)
    problems = results[0].groups.problems
    rollouts = [r for result in results for r in result.groups.rollouts]
    assert len(problems) == 8 and len(rollouts) == 8 * N
    for r in rollouts:
        row = PROBLEMS.index(r.problem)
        assert problems[r.row] == r.problem and r.response_ids == expected(row, r.sample).response_ids


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_dropped_groups_are_counted(collect, ranks):
    """Of 5 problems 3 are returned, with the responses that plain sampling gives them."""
    rule = "rollout.strategy={rule: 'd3s.methods.two_rounds:TwoRounds', extra: 0.5}"
    results = collect(ranks, options=[rule], count=3)
    for groups in (result.groups for result in results):
        assert groups.problems == results[0].groups.problems and len(set(groups.problems)) == 3
        for r in groups.rollouts:
            assert groups.problems[r.row] == r.problem
            assert r.response_ids == expected(PROBLEMS.index(r.problem), r.sample).response_ids
    sampled = [r for result in results for rollouts, _ in result.engine.calls for r in rollouts]
    assert len(sampled) == 2 * 5 + (N - 2) * 3 and sum(len(result.groups.rollouts) for result in results) == 3 * N
    assert results[0].groups.counts["decoded"] == sum(len(r.response_ids) for r in sampled)
