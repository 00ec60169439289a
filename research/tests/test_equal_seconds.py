"""Steps of equal seconds: the order of the turns, the table of hand-made seconds, the configuration of a row."""

from types import SimpleNamespace

import pytest

from research import equal_seconds
from research.beyond_rows import COUNTDOWN, Section, row
from research.equal_seconds import steps_table, take_turns, trainers_of
from research.methods import GRPO


class CountedTrainer:
    """Takes the given seconds, by a clock of its own."""

    clock, order = 0.0, ""

    def __init__(self, name: str, steps: int, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        self.state, self.config = SimpleNamespace(step=0), SimpleNamespace(train=SimpleNamespace(steps=steps))

    def step(self) -> None:
        CountedTrainer.clock += self.seconds
        CountedTrainer.order += self.name


def test_rows_take_turns_to_their_last_step(monkeypatch):
    monkeypatch.setattr(equal_seconds, "cpu_seconds", lambda: CountedTrainer.clock)
    trainers = {name: CountedTrainer(name, *run) for name, run in {"a": (3, 2.0), "b": (1, 5.0), "c": (2, 1.0)}.items()}
    assert take_turns(trainers) == pytest.approx({"a": 6.0, "b": 5.0, "c": 2.0})
    assert CountedTrainer.order == "abcaca"


def test_steps_table_extrapolates_to_the_first_row():
    """20 steps in 4 seconds are 30 in the 6 seconds of the first row."""
    lines = steps_table({"a": 3, "b": 20}, {"a": 6.0, "b": 4.0}).splitlines()
    assert lines[2:] == ["| a | 3 | 6.0 | 3 |", "| b | 20 | 4.0 | 30 |"]


def test_row_keeps_its_steps_on_the_first_base(tmp_path, monkeypatch):
    monkeypatch.setattr(equal_seconds, "Trainer", lambda config: config)
    section = Section("x", "X", (row("GRPO", 7, GRPO), row("D3S", 9)), bases=(COUNTDOWN, "tiny:precedence"))
    grpo, d3s = trainers_of(section, tmp_path).values()
    assert (grpo.train.steps, d3s.train.steps, grpo.model.name, grpo.eval.data) == (7, 9, COUNTDOWN, [])
    assert grpo.data.path == "synthetic:countdown" and grpo.train.output_dir != d3s.train.output_dir
