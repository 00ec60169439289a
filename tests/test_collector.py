"""Collecting and gathering with a scripted engine and reward, against loops over all samples.

Several ranks are threads that share one all_gather_objects and one all_gather_arrays.
"""

import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from d3s.collector import Collector, RewardError, gather_batch
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts
from d3s.rewards.scored import Outcome
from d3s.rollout.engine import Rollout, SamplingParams
from d3s.rollout.groups import RolloutGroups
from d3s.rollout.seeds import rollout_seeds
from research.carry_over import SimulatedEngine

N = 4  # samples of a problem
END = 50  # the end-of-sequence token
PROBLEMS, POSITION = [5, 0, 3, 2, 4], 70
PROMPTS = EncodedPrompts(
    problems=[Problem(str(i), f"problem {i}", f"answer {i}", "test") for i in range(6)],
    texts=[f"prompt {i}" for i in range(6)],
    ids=[[100 + i] * (i + 1) for i in range(6)],
    dropped=0,
)


# --- scripted parts ---------------------------------------------------------------------------------------------------


def respond(prompt: list[int], seed: int) -> Rollout:
    """The response to this prompt and seed."""
    draw = random.Random(f"{prompt} {seed}")
    length = draw.randint(1, 6)
    ids = [draw.randrange(END) for _ in range(length)]
    return Rollout(
        prompt_index=-1,
        prompt_ids=prompt,
        response_ids=ids if length == 6 else [*ids[:-1], END],
        logprobs=[-draw.random() for _ in range(length)],
        entropies=[draw.random() for _ in range(length)],
        finished=length < 6,
    )


class ScriptedEngine:
    """Responds by `respond`, and finishes the responses in random order."""

    def __init__(self, events: list[str], entropies: bool) -> None:
        self.events, self.calls, self.entropies = events, [], entropies

    def generate(self, prompts, n, params, seeds, *, entropies=True, on_finished=None):
        self.calls.append((prompts, n, params))
        cells = [(row, sample) for row in range(len(prompts)) for sample in range(n)]
        rollouts = [respond(prompts[row], seed) for (row, _), seed in zip(cells, seeds, strict=True)]
        for rollout, cell in zip(rollouts, cells):
            rollout.prompt_index, rollout.sample = cell
            if not self.entropies:
                rollout.entropies = []
        for rollout in random.Random(0).sample(rollouts, len(rollouts)):
            on_finished(rollout)
        self.events.append("generated")
        return rollouts


def score(text: str, answer: str, length: int) -> tuple[float, float]:
    """Reward and verdict: whether the sum of the tokens is even, and a penalty for length."""
    verdict = float(sum(map(int, text.split())) % 2 == 0)
    return verdict - 0.125 * length, verdict


class ScriptedReward:
    """Scores by `score`, which needs the answer of the right problem."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def submit(self, text, answer, row):
        length = min(6, len(text.split()) + 1)  # with END, which the longest ones lack
        assert row["problem"].removeprefix("problem ") == answer.removeprefix("answer ")
        self.events.append("submitted")

        def result():
            self.events.append("awaited")
            parts = {"length": float(length)} if length % 2 else {}
            return Outcome(*score(text, answer, length), parts, [(0, 1, 0.5)] if length == 3 else [])

        return result

    def score_group(self, outcomes, responses, lengths, answer, row):
        """Leave the outcomes, and remember the group."""
        assert len(outcomes) == len(responses)
        assert all(len(text.split()) <= length for text, length in zip(responses, lengths, strict=True))
        self.events.append((row["problem"], answer, *responses))
        return outcomes


class NumberTokenizer:
    """Token ids as numbers; END is special."""

    def decode(self, ids, skip_special_tokens):
        return " ".join(str(i) for i in ids if not (skip_special_tokens and i == END))


def text_of(rollout: Rollout) -> str:
    """The numbers of the response without END."""
    return " ".join(map(str, rollout.response_ids[: len(rollout.response_ids) - rollout.finished]))


class Ranks:
    """Run a function on several ranks, which are threads, and gather their objects."""

    def __init__(self, count: int) -> None:
        self.count, self.barrier, self.items, self.sent = count, threading.Barrier(count), {}, []

    def all_gather_objects(self, items, accelerator):
        self.items[accelerator.process_index] = items
        self.barrier.wait(10)
        gathered = [item for rank in range(self.count) for item in self.items[rank]]
        self.barrier.wait(10)
        return gathered

    def all_gather_arrays(self, array, accelerator):
        self.sent.append(array)
        return self.all_gather_objects([array], accelerator)

    def run(self, function) -> list:
        places = [SimpleNamespace(process_index=rank, num_processes=self.count) for rank in range(self.count)]
        with ThreadPoolExecutor(self.count) as threads:
            return list(threads.map(function, places))


@pytest.fixture
def collect(monkeypatch):
    """collect(ranks, ...): Ranks, and of each rank its accelerator, groups, engine and events."""

    def run(count=1, engine_size=1, entropies=True, step=0, options=()):
        settings = [f"rollout.num_generations={N}", f"rollout.tensor_parallel_size={engine_size}", "train.seed=3"]
        settings += ["rollout.temperature=0.8", "rollout.max_completion_length=6"]
        config = load_config([], [*settings, "schedule.n_init=2", "schedule.n_final=4", *options])
        ranks = Ranks(count)
        monkeypatch.setattr("d3s.collector.all_gather_objects", ranks.all_gather_objects)
        monkeypatch.setattr("d3s.collector.all_gather_arrays", ranks.all_gather_arrays)

        def on_rank(accelerator):
            events = []
            engine, reward = ScriptedEngine(events, entropies), ScriptedReward(events)
            collector = Collector(config, accelerator, engine, reward, NumberTokenizer(), PROMPTS)
            groups = collector.collect(list(PROBLEMS), POSITION, step)
            return SimpleNamespace(accelerator=accelerator, groups=groups, engine=engine, events=events)

        return ranks, ranks.run(on_rank)

    return run


def expected_rollout(row: int, column: int) -> Rollout:
    """The rollout of this cell of the tables, by the seed of its place in the data order."""
    seeds = rollout_seeds(3, "train", [POSITION + row], N)
    return respond(PROMPTS.ids[PROBLEMS[row]], seeds[column])


CELLS = [(row, column) for row in range(len(PROBLEMS)) for column in range(N)]


# --- collect ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2), (7, 1)])
def test_tables_match_a_loop_on_every_rank(collect, ranks, engine_size):
    _, results = collect(ranks, engine_size)
    for result in results:
        groups = result.groups
        assert groups.problems == PROBLEMS and groups.rewards.shape == (len(PROBLEMS), N)
        for cell in CELLS:
            rollout = expected_rollout(*cell)
            reward, verdict = score(text_of(rollout), "", len(rollout.response_ids))
            assert (groups.rewards[cell].item(), groups.verdicts[cell].item()) == (reward, verdict)
            assert groups.lengths[cell].item() == len(rollout.response_ids)
            assert groups.finished[cell].item() is rollout.finished
            length = len(rollout.response_ids)
            assert groups.parts["length"][cell].tolist() == pytest.approx(
                length if length % 2 else math.nan, nan_ok=True
            )
            mean = sum(rollout.entropies) / len(rollout.entropies)
            assert groups.entropies[cell].item() == pytest.approx(mean, rel=1e-6)
        assert groups.generated == sum(len(expected_rollout(*cell).response_ids) for cell in CELLS)
        assert groups.rewards.dtype == groups.verdicts.dtype == torch.float32 and groups.finished.dtype == torch.bool


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2), (7, 1)])
def test_every_rollout_is_held_by_one_rank(collect, ranks, engine_size):
    """The rank also has its text, in the order of the tables; ranks of one engine request the same prompts."""
    _, results = collect(ranks, engine_size)
    held = []
    for result in results:
        cells = [(r.prompt_index, r.sample) for r in result.groups.rollouts]
        assert cells == sorted(cells)
        for cell, rollout in zip(cells, result.groups.rollouts, strict=True):
            expected = expected_rollout(*cell)
            assert (rollout.response_ids, rollout.logprobs) == (expected.response_ids, expected.logprobs)
            assert rollout.text == text_of(expected)
        held += cells
        assert result.events.count("submitted") == len(cells)  # each response is verified once
    assert sorted(held) == CELLS
    for rank, result in enumerate(results):
        assert result.engine.calls[0][0] == results[rank - rank % engine_size].engine.calls[0][0]


def test_engine_receives_the_sampling_options(collect):
    _, [result] = collect()
    [(prompts, n, params)] = result.engine.calls
    assert prompts == [PROMPTS.ids[problem] for problem in PROBLEMS] and n == N
    assert params == SamplingParams(max_tokens=6, temperature=0.8)


def test_rewards_are_submitted_during_generation(collect):
    """No verdict is awaited before the last response has been generated."""
    _, [result] = collect()
    events = result.events[: -len(PROBLEMS)]
    assert events == ["submitted"] * len(CELLS) + ["generated"] + ["awaited"] * len(CELLS)
    assert 0 <= result.groups.waited < 5


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (4, 2)])
def test_groups_are_scored_whole_and_in_order(collect, ranks, engine_size):
    """Each group once, by one rank, with its responses in the order of the samples."""
    _, results = collect(ranks, engine_size)
    scored = [event for result in results for event in result.events if isinstance(event, tuple)]
    groups = [
        (f"problem {p}", f"answer {p}", *(text_of(expected_rollout(row, column)) for column in range(N)))
        for row, p in enumerate(PROBLEMS)
    ]
    assert sorted(scored) == sorted(groups)


# --- groups -----------------------------------------------------------------------------------------------------------


def cell_contents(groups: RolloutGroups) -> list[list[tuple]]:
    """Everything known of each cell, by row and column."""
    rollouts = {(r.prompt_index, r.sample): (r.response_ids, r.text, r.outcome) for r in groups.rollouts}
    tables = (groups.rewards, groups.verdicts, groups.lengths, groups.finished, groups.entropies)
    return [
        [(problem, *rollouts[row, column], *(t[row, column].item() for t in tables)) for column in range(N)]
        for row, problem in enumerate(groups.problems)
    ]


def test_take_keeps_rows_in_the_given_order(collect):
    groups = collect()[1][0].groups
    before = cell_contents(groups)
    taken = groups.take([3, 0])
    assert cell_contents(taken) == [before[3], before[0]] and len(taken.rollouts) == 2 * N
    assert (taken.generated, taken.waited) == (groups.generated, groups.waited)  # replaced groups were paid for


def test_addition_appends_rows_and_sums_costs(collect):
    """Dynamic sampling adds groups before it takes those that have a signal."""
    first, second = (collect()[1][0].groups for _ in range(2))
    second = second.take([4, 1, 2])
    second.waited = 1.5
    before = cell_contents(first) + cell_contents(second)
    costs = first.generated + second.generated, first.waited + 1.5
    total = first + second
    assert cell_contents(total) == before and (total.generated, total.waited) == costs
    rows = [7, 1, 5]
    assert cell_contents(total.take(rows)) == [before[row] for row in rows]


# --- gather_batch -----------------------------------------------------------------------------------------------------

SHAPE = (len(PROBLEMS), N)
KEPT = {
    "some": torch.rand(SHAPE, generator=torch.Generator().manual_seed(0)) < 0.4,
    "all": torch.ones(SHAPE, dtype=torch.bool),
    "one row": torch.arange(SHAPE[0])[:, None].expand(SHAPE) == 2,
    "none": torch.zeros(SHAPE, dtype=torch.bool),
}


def gather(collect, kept, ranks, engine_size=1):
    """The batch on every rank, the advantages, and the arrays that the ranks sent."""
    group, results = collect(ranks, engine_size)
    advantages = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    group.sent.clear()
    by_rank = {result.accelerator.process_index: result.groups for result in results}
    batches = group.run(lambda place: gather_batch(by_rank[place.process_index], advantages, kept, place))
    return batches, advantages, group.sent


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (4, 2)])
def test_gathered_batch_matches_a_loop(collect, case, ranks, engine_size):
    kept = KEPT[case]
    batches, advantages, _ = gather(collect, kept, ranks, engine_size)
    cells = [cell for cell in CELLS if kept[cell]]
    rollouts = [expected_rollout(*cell) for cell in cells]
    for batch in batches:
        assert [list(map(int, ids)) for ids in batch.prompts] == [r.prompt_ids for r in rollouts]
        assert [list(map(int, ids)) for ids in batch.responses] == [r.response_ids for r in rollouts]
        repeated = [advantages[cell].item() for cell, r in zip(cells, rollouts) for _ in r.response_ids]
        assert batch.advantages.tolist() == repeated
        for got, name in ((batch.rollout_logprobs, "logprobs"), (batch.entropies, "entropies")):
            expected = torch.tensor([x for r in rollouts for x in getattr(r, name)])
            assert torch.equal(got, expected)


def test_gathering_sends_kept_rollouts_only(collect):
    kept = KEPT["some"]
    _, _, sent = gather(collect, kept, ranks=2)
    rollouts = [expected_rollout(*cell) for cell in CELLS if kept[cell]]
    prompts, responses = (sum(len(getattr(r, f"{name}_ids")) for r in rollouts) for name in ("prompt", "response"))
    elements = {
        kind: sum(len(array) for array in sent if array.dtype == kind) for kind in ("int32", "float32", "uint8")
    }
    assert elements == {"int32": prompts + responses, "float32": 2 * responses, "uint8": responses}
    assert sum(map(len, sent)) == sum(elements.values())


def test_missing_entropies_are_nan(collect):
    """Rollout servers return none."""
    ranks, [result] = collect(entropies=False)
    assert result.groups.entropies.shape == SHAPE and result.groups.entropies.isnan().all()
    [batch] = ranks.run(lambda place: gather_batch(result.groups, torch.zeros(SHAPE), KEPT["some"], place))
    assert len(batch.entropies) == len(batch.sequence_ids) and all(map(math.isnan, batch.entropies.tolist()))


def test_tokens_travel_with_their_own_values(collect):
    """Advantages of single tokens and untrainable positions, on two ranks against a loop."""
    kept = KEPT["some"]
    group, results = collect(2)
    by_rank = {result.accelerator.process_index: result.groups for result in results}

    def own_values(rollout):
        return torch.tensor([10.0 * rollout.prompt_index + rollout.sample + p / 8 for p in rollout.logprobs])

    def gather_own(place):
        groups = by_rank[place.process_index]
        for rollout in groups.rollouts:
            rollout.untrainable = [0, len(rollout.response_ids) - 1] if rollout.sample % 2 else []
        values = [own_values(rollout) for rollout in groups.of_rank(kept)]
        return gather_batch(groups, torch.zeros(SHAPE), kept, place, values)

    for batch in group.run(gather_own):
        rollouts = [(*cell, expected_rollout(*cell)) for cell in CELLS if kept[cell]]
        for _, sample, rollout in rollouts:
            rollout.sample = sample
        expected = []
        for row, _, rollout in rollouts:
            rollout.prompt_index = row
            expected.append(own_values(rollout))
        assert torch.equal(batch.advantages, torch.cat(expected))
        trainable = []
        for _, sample, rollout in rollouts:
            last = len(rollout.response_ids) - 1
            trainable += [sample % 2 == 0 or i not in (0, last) for i in range(last + 1)]
        assert batch.trainable.tolist() == trainable


def test_every_rank_knows_of_spans(collect):
    """A rank holds the spans of its own rollouts, also through take and addition."""
    _, results = collect(2)
    for result in results:
        groups = result.groups
        doubled = groups.take([3, 0]) + groups.take([1])
        assert groups.dense and doubled.dense
        for r in doubled.rollouts:
            assert r.outcome.spans == ([(0, 1, 0.5)] if len(r.response_ids) == 3 else [])
    assert any(r.outcome.spans for result in results for r in result.groups.rollouts)


def test_failed_rewards_end_every_rank(collect, monkeypatch):
    """The message is that of the rank whose function failed; no rank waits for another."""

    def fail(self, text, answer, row):
        def result():
            if row["problem"] == "problem 3":
                raise UserError("reward.functions: broken")
            return Outcome(0.0, 0.0, {}, [])

        return result

    monkeypatch.setattr(ScriptedReward, "submit", fail)
    with pytest.raises(RewardError, match="broken"):
        collect(2)


def test_failed_strategies_end_every_rank(collect):
    with pytest.raises(RewardError, match=r"^rollout\.strategy: .*NotOfThree\.generate raised RuntimeError: broken"):
        collect(2, options=["rollout.strategy=tests.helpers.own_rules:NotOfThree"])


# --- groups that a strategy carries over ------------------------------------------------------------------------------


def length_of(prompt: int, seed: int) -> int:
    return random.Random(f"{prompt} {seed}").randint(1, 30)


@pytest.mark.parametrize(("ranks", "engine_size"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2)])
def test_carried_groups_are_returned_once(monkeypatch, ranks, engine_size):
    """By all ranks together, with their own problems, from states that are saved and restored after each step."""
    count, group = 4, Ranks(ranks)
    monkeypatch.setattr("d3s.collector.all_gather_objects", group.all_gather_objects)
    options = [f"rollout.num_generations={N}", f"rollout.tensor_parallel_size={engine_size}", "train.seed=3"]
    strategy = "rollout.strategy={rule: 'd3s.methods.carry_over:CarryOver', extra: 0.5}"
    options += [strategy, "rollout.engine=vllm", "loss.old_logprobs=engine"]
    config = load_config([], [*options, "rollout.max_completion_length=30", "schedule.n_init=2", "schedule.n_final=4"])

    def one_step(place):
        reward, engine = ScriptedReward([]), SimulatedEngine(length_of, slots=9)
        collector = Collector(config, place, engine, reward, NumberTokenizer(), PROMPTS)
        for name, state in collector.of_this_rank(saved).items():
            collector.parts[name].load_state_dict(state)
        asked = collector.problems_for(count)
        groups = collector.collect([(position + i) % 6 for i in range(asked)], position, step, count)
        states = collector.of_all_ranks({name: part.state_dict() for name, part in collector.parts.items()})
        return groups, states, asked

    saved, position, expected = {}, 0, []
    for step in range(4):  # noqa: B007 (one_step reads it)
        results = group.run(one_step)
        tables, _, asked = results[0]
        for place in range(position, position + asked):
            seeds = rollout_seeds(3, "train", [place], N)
            lengths = [length_of(100 + place % 6, seed) for seed in seeds]
            expected.append((place % 6, lengths))
        position += asked
        assert len(tables.problems) == count and tables.rewards.shape == (count, N)
        for cell in zip(tables.problems, tables.lengths.tolist(), strict=True):
            expected.remove(cell)  # raises if there is none
        assert all(g.problems == tables.problems and torch.equal(g.lengths, tables.lengths) for g, _, _ in results)
        assert sum(len(g.rollouts) for g, _, _ in results) == count * N
        saved = results[0][1]
    assert len(expected) == 2
    with pytest.raises(UserError, match=f"the state of {ranks} processes, and this run has {ranks + 1}"):
        place = SimpleNamespace(process_index=0, num_processes=ranks + 1)
        Collector(config, place, None, None, None, PROMPTS).of_this_rank(saved)


class TwoRoundEngine:
    """Responds by `respond`, in as many calls as a strategy makes."""

    def __init__(self):
        self.sampled = []

    def sample(self, rollouts, params, seeds, entropies, on_finished):
        for r, seed in zip(rollouts, seeds, strict=True):
            told = respond(r.prompt_ids, seed)
            r.response_ids, r.logprobs, r.entropies, r.finished = (
                told.response_ids, told.logprobs, told.entropies, told.finished
            )  # fmt: skip
            self.sampled.append(r)
            on_finished(r)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_groups_of_two_rounds_have_their_seeds_and_count_what_was_dropped(monkeypatch, ranks):
    """Of 5 problems on several ranks 3 are returned, with the responses that plain sampling gives them."""
    group, engines = Ranks(ranks), [TwoRoundEngine() for _ in range(ranks)]
    monkeypatch.setattr("d3s.collector.all_gather_objects", group.all_gather_objects)
    options = [f"rollout.num_generations={N}", "train.seed=3", "schedule.n_init=2", "schedule.n_final=4"]
    options += ["rollout.strategy={rule: 'd3s.methods.two_rounds:TwoRounds', extra: 0.5}"]

    def collect_on(place):
        engine = engines[place.process_index]
        collector = Collector(load_config([], options), place, engine, ScriptedReward([]), NumberTokenizer(), PROMPTS)
        assert collector.problems_for(3) == len(PROBLEMS)
        return collector.collect(PROBLEMS, POSITION, count=3)

    results = group.run(collect_on)
    for groups in results:
        assert groups.problems == results[0].problems and len(set(groups.problems)) == 3
        for r in groups.rollouts:
            assert groups.problems[r.prompt_index] == r.problem
            seed = rollout_seeds(3, "train", [POSITION + PROBLEMS.index(r.problem)], N)[r.sample]
            assert r.response_ids == respond(PROMPTS.ids[r.problem], seed).response_ids
    sampled = [r for engine in engines for r in engine.sampled]
    assert len(sampled) == 2 * 5 + (N - 2) * 3 and sum(len(groups.rollouts) for groups in results) == 3 * N
    counts = results[0].counts
    assert counts["decoded"] == sum(len(r.response_ids) for r in sampled)


def test_another_prompt_is_refused(collect):
    """As of a resumed run with other data."""
    with pytest.raises(RewardError, match=r"got a response to another prompt than that of problem 5, sample 2; a res"):
        collect(options=["rollout.strategy=tests.helpers.own_rules:OtherPrompt"])
