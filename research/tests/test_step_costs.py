"""Costs of steps: two tiny runs that take turns, chunks of artificial rows, hand-computed ratios."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from research import step_costs
from research.jobs import RATES, Job, Search, Setting
from research.row import GRPO, Row, shape
from research.rows import ALL_ROLLOUTS_20, BY_NAME, GRPO_BEST, HEAVY_ROWS, ROWS
from research.step_costs import CHUNK, COLUMNS, SEED, Chunk, Costs, chunks, measure, read_costs, read_lines, trainer_of
from research.tests.experiments import SerialPool, lines_of, make_record, without_base_models

BASE = "tiny:precedence"
SMALL = (GRPO, *shape(8, 4), "data.limit=8", "rollout.max_completion_length=8", "optim.warmup_steps=0")
SMALL += ("reward.functions=[tests.helpers.rewards:even_length]",)


# --- measuring -------------------------------------------------------------------------------------------------------


@pytest.fixture
def chunk(monkeypatch, tied_model) -> Chunk:
    """GRPO in both ways, and a row that selects more tokens in its second step, on a random model."""
    without_base_models(monkeypatch, tied_model)
    rows = Row("GRPO, G = 4", SMALL, 2, 1), Row("tokens", (*SMALL, *ALL_ROLLOUTS_20[2:], "schedule.k_final=0.4"), 2, 2)
    grpo, tokens = (Job("compare", row, BASE, SEED, Setting(1e-3)) for row in rows)
    return Chunk(3, BASE, ((grpo, False), (grpo, True), (tokens, False)))


def test_rows_of_a_chunk_are_measured_in_turns(chunk, monkeypatch):
    measured, order = {}, []

    def recording(job, folder, zeros):
        trainer = trainer_of(job, folder, zeros)
        advance = trainer.advance

        def recorded():
            order.append((job.row.name, zeros))
            measured.setdefault((job.row.name, zeros), []).append(advance())

        trainer.advance = recorded
        return trainer

    monkeypatch.setattr(step_costs, "trainer_of", recording)
    lines = [dict(zip(COLUMNS, line, strict=True)) for line in measure(chunk)]
    assert sorted(order[:3]) == sorted(order[3:]) and order[0] != order[3]  # one step each, in an order that rotates
    assert {(line["base"], line["chunk"]) for line in lines} == {(BASE, 3)}
    grpo, zeros, tokens = (
        [line for line in lines if (line["row"], line["zeros_computed"]) == key]
        for key in (("GRPO, G = 4", 0), ("GRPO, G = 4", 1), ("tokens", 0))
    )
    assert [line["step"] for line in grpo] == [line["step"] for line in zeros] == [1, 2]
    assert [line["step"] for line in tokens] == [2]
    for first, second in (grpo, zeros):
        assert 0 < float(first["seconds"]) < float(second["seconds"])
    trained = {arm: [metrics["selection/tokens"] for metrics in steps] for arm, steps in measured.items()}
    assert all(more >= count for more, count in zip(trained["GRPO, G = 4", True], trained["GRPO, G = 4", False]))
    assert [metrics["schedule/k"] for metrics in measured["tokens", False]] == [0.2, 0.4]  # N, K and rate of each step


def test_rollouts_without_advantage_are_computed(chunk, monkeypatch, tmp_path):
    """Where every reward is equal nothing is trained, unless these rollouts are computed; the weights stay equal."""
    alike = Row("GRPO", (*SMALL, "reward.functions=[tests.helpers.rewards:always]"), 2, 1)
    trainers = [trainer_of(Job("compare", alike, BASE, SEED, Setting(1e-3)), tmp_path / str(z), z) for z in (0, 1)]
    tokens = [trainer.advance()["selection/tokens"] for trainer in trainers]
    assert tokens[0] == 0 < tokens[1]
    for ours, theirs in zip(*(trainer.actor.lm.parameters() for trainer in trainers), strict=True):
        assert torch.equal(ours, theirs)
    for trainer in trainers:
        trainer.close()


def test_chunks_hold_the_reference_and_pairs(monkeypatch):
    """Every measured row once, GRPO twice and together, the reference in each chunk."""
    without_base_models(monkeypatch)
    others = ("GRPO, G = 4, gradient norm at most 0.1", "random rewards, GRPO")
    rows = [*ROWS[:14], *(BY_NAME[name] for name in others)]
    known = {}
    for row in [*rows, *HEAVY_ROWS]:
        if row.rate_of is None and row.name != "PODS":
            for job in Search(row, {}).jobs(Setting(RATES[1], 0.03 if row.clips else None)):
                known[job.identity()] = make_record([0, row.steps], [[0], [4]])
    found = chunks(rows, BASE, known, "D3S")
    names = [[(job.row.name, zeros) for job, zeros in chunk.jobs] for chunk in found]
    assert all(part[0] == ("D3S", False) and part.count(("D3S", False)) == 1 for part in names)
    assert max(map(len, names)) <= CHUNK + 1 and [chunk.index for chunk in found] == list(range(len(found)))
    rest = [arm for part in names for arm in part[1:]]
    plain = [name for name, zeros in rest if not zeros]
    assert sorted(plain) == sorted(row.name for row in rows if row.name not in ("D3S", "PODS"))  # PODS has no setting
    twice = [name for name, zeros in rest if zeros]
    assert sorted(twice) == sorted(f"GRPO, G = {group}" for group in (2, 4, 8, 16, 32))
    assert all((name, False) in part for part in names for name, zeros in part if zeros)
    assert {(chunk.base, job.base, job.seed) for chunk in found for job, _ in chunk.jobs} == {(BASE, BASE, SEED)}
    (heavy, *_) = chunks(HEAVY_ROWS, f"{BASE}+32k", known, HEAVY_ROWS[0].name)
    assert [(job.row, zeros) for job, zeros in heavy.jobs[:2]] == [(HEAVY_ROWS[0], False), (HEAVY_ROWS[0], True)]


# --- reading ---------------------------------------------------------------------------------------------------------

COSTS = Costs(
    [
        *lines_of("D3S", {12: 20.0, 60: 100.0}, 0),
        *lines_of("D3S", {12: 44.0, 60: 200.0}, 1),  # a slower process
        *lines_of(GRPO_BEST, {12: 30.0, 72: 60.0}, 1),
        *lines_of(GRPO_BEST, {12: 50.0, 72: 90.0}, 1, zeros=1),
        *lines_of("heavy head: GRPO, G = 4", {10: 5.0, 30: 15.0}, 0, base=BASE + "+32k"),
        *lines_of("heavy head: NAT, K = 20 %", {20: 8.0, 60: 24.0}, 0, base=BASE + "+32k"),
    ]
)


def test_seconds_are_ratios_to_the_reference():
    """D3S takes 150 s in the mean and 200 s in the process of GRPO: GRPO's seconds times 3/4."""
    steps = np.array([0, 6, 12, 42, 72])
    assert COSTS.seconds(GRPO_BEST, BASE, steps) == pytest.approx([0, 11.25, 22.5, 33.75, 45])
    assert COSTS.seconds(GRPO_BEST, BASE, steps, zeros=True)[-1] == pytest.approx(67.5)


def test_seconds_of_the_reference_are_its_mean_curve():
    """150 s at the end; at step 12 the mean of 20 x 1.5 and 44 x 0.75."""
    assert COSTS.seconds("D3S", BASE, np.array([12, 60])) == pytest.approx([31.5, 150])


def test_seconds_of_other_warmups_are_of_the_task():
    steps = np.array([12, 72])
    assert COSTS.seconds(GRPO_BEST, f"{BASE}@1", steps).tolist() == COSTS.seconds(GRPO_BEST, BASE, steps).tolist()
    assert COSTS.seconds(GRPO_BEST, "tiny:countdown@1", steps) is None


def test_error_is_pooled_over_rows_with_several_seeds():
    """Ratios of 1 and 1.1 in one row, 2 and 2.2 in the other: both deviate by ln(1.1) / sqrt(2), each with f = 1."""
    ratios = {"PODS": (1.0, 1.1), "D2S": (2.0, 2.2), "D1S": (3.0,)}
    lines = [line for chunk in range(2) for line in lines_of("D3S", {60: 50.0}, chunk)]
    for row, of_row in ratios.items():
        lines += [line for chunk, ratio in enumerate(of_row) for line in lines_of(row, {60: 50 * ratio}, chunk)]
    costs, one = Costs(lines), np.log(1.1) / 2**0.5
    assert costs.freedom == 2
    found = [costs.error(row, f"{BASE}@1") for row in ("PODS", "D1S", "D3S", "GSPO")]
    assert found == pytest.approx([one / 2**0.5, one, 0, 0])


def test_padded_rows_have_their_own_reference():
    got = COSTS.seconds("heavy head: NAT, K = 20 %", BASE + "+32k", np.array([30, 60]))
    assert got == pytest.approx([12, 24])


def test_unmeasured_row_has_no_seconds():
    assert COSTS.seconds("PODS", BASE, np.array([12])) is None
    assert COSTS.seconds("D3S", BASE, np.array([12]), zeros=True) is None


@pytest.mark.parametrize("again", [[], ["--again", "2001"], ["--again", "0"]])
def test_rows_measured_again_replace_their_lines(tmp_path, monkeypatch, again):
    """Chunk 0 keeps D2S; chunk 1 had PODS alone, so its lines of the reference go too; the new chunk is numbered 1.

    With another seed everything stays, and the new chunk is numbered 2.
    """
    path = tmp_path / "costs.csv"
    before = [("D3S", 0), ("PODS", 0), ("D2S", 0), ("D3S", 1), ("PODS", 1)]
    lines = [f"{row},0,{BASE},{chunk},60,{100 + chunk}" for row, chunk in before]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    without_base_models(monkeypatch)
    names, known = ("D3S", "PODS"), {}
    for row in (BY_NAME[name] for name in names):
        for job in Search(row, {}).jobs(Setting(RATES[1])):
            known[job.identity()] = make_record([0, row.steps], [[0], [4]])
    work: list[Chunk] = []

    def measured(chunk):
        work.append(chunk)
        return [(job.row.name, 0, chunk.base, chunk.index, 60, 7) for job, _ in chunk.jobs]

    monkeypatch.setattr(step_costs, "COSTS", path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(step_costs, "ROOT", tmp_path)
    monkeypatch.setattr(step_costs, "read_lines", lambda source=path: read_lines(source))
    monkeypatch.setattr(step_costs, "read", lambda: [])
    monkeypatch.setattr(step_costs, "TASKS", (BASE,))
    monkeypatch.setattr(step_costs, "ProcessPoolExecutor", SerialPool)
    monkeypatch.setattr(step_costs, "measure", measured)
    monkeypatch.setattr(step_costs, "chunks", lambda *a: chunks(a[0], a[1], known, *a[3:]))
    monkeypatch.setattr("sys.argv", ["step_costs", "--row", "PODS", *again])
    step_costs.main()
    assert [[(job.row.name, job.seed) for job, _ in chunk.jobs] for chunk in work] == [
        [(name, int(again[1]) if again else SEED) for name in names]
    ]
    after = [(line["row"], line["chunk"], line["seconds"]) for line in read_lines(path)]
    old = [("PODS", "0", "100"), ("D3S", "1", "101"), ("PODS", "1", "101")] if again else []
    new = [("D3S", "12"[bool(again)], "7"), ("PODS", "12"[bool(again)], "7")]
    assert sorted(after) == sorted([("D3S", "0", "100"), ("D2S", "0", "100"), *old, *new])


@pytest.mark.parametrize("again", [[], ["--row", "PODS", "--again", "1"]])
def test_stopped_measurement_continues(again, tmp_path, monkeypatch):
    """Ends at its second chunk; the next command measures that one alone, and the lines of both are written.

    A command with other arguments does not take these for its own.
    """
    without_base_models(monkeypatch)
    work, fails = [], [False, True, False, True, False]

    def measured(chunk):
        work.append(chunk.index)
        if fails[len(work) - 1]:
            raise KeyboardInterrupt
        return [("D3S", 0, chunk.base, chunk.index, 60, 7)]

    (tmp_path / "runs").mkdir()
    before = [f"{row},0,{BASE},7,60,5" for row in ("D3S", "D2S")] if again else []
    (tmp_path / "costs.csv").write_text("\n".join([",".join(COLUMNS), *before]) + "\n")
    monkeypatch.setattr(step_costs, "COSTS", tmp_path / "costs.csv")
    monkeypatch.setattr(step_costs, "read_lines", lambda path=tmp_path / "costs.csv": read_lines(path))
    monkeypatch.setattr(step_costs, "ROOT", tmp_path)
    monkeypatch.setattr(step_costs, "read", lambda: [])
    monkeypatch.setattr(step_costs, "TASKS", (BASE,))
    monkeypatch.setattr(step_costs, "HEAVY_ROWS", [])
    monkeypatch.setattr(step_costs, "ProcessPoolExecutor", SerialPool)
    monkeypatch.setattr(step_costs, "measure", measured)
    monkeypatch.setattr(step_costs, "chunks", lambda *a: [Chunk(0, BASE, ()), Chunk(1, BASE, ())])
    monkeypatch.chdir(tmp_path)
    for arguments in (again, ["--row", "D2S", "--again", "9"], again):
        monkeypatch.setattr("sys.argv", ["step_costs", *arguments])
        with pytest.raises(KeyboardInterrupt) if len(work) < 4 else nullcontext():
            step_costs.main()
    assert work == [1, 0, 1, 0, 0]
    assert [line["chunk"] for line in read_lines(tmp_path / "costs.csv")] == ["0", "1", *["7"] * len(before)]
    assert len(list((tmp_path / "runs").iterdir())) == 1  # of the other command, which may go on


def test_costs_are_read_from_the_file(tmp_path):
    assert not read_costs(tmp_path / "none.csv")
    text = ",".join(COLUMNS) + f'\nD3S,0,{BASE},0,60,120\n"{GRPO_BEST}",1,{BASE},0,72,60\n'
    (tmp_path / "costs.csv").write_text(text)
    costs = read_costs(tmp_path / "costs.csv")
    assert costs and costs.seconds(GRPO_BEST, BASE, np.array([36]), zeros=True).tolist() == [30]
