"""The architectures benchmark, against known good, refused, broken and crashing cases."""

import os
import re
from pathlib import Path

import pytest

from benchmarks import architectures
from benchmarks.architectures import ARCHITECTURES, ENGINES, page, run_in_process, try_out
from d3s.rollout.transformers_engine import TransformersEngine

PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "architectures.md"


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_supported_architectures_match_the_engine(name, tmp_path):
    assert re.fullmatch(r"works, \de-0[5-8]", try_out(name, "transformers", tmp_path))


def test_unsupported_architectures_are_reported(tmp_path):
    assert try_out("gemma2", "transformers", tmp_path).startswith("refused: gemma2: models that transform their logits")


def test_stale_weights_are_reported_as_a_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(TransformersEngine, "load_weights", lambda self, weights: list(weights))
    assert re.fullmatch(
        r"differs by \de-0[5-8], by 0?\.?\d+ after an update", try_out("llama", "transformers", tmp_path)
    )


def test_a_crash_affects_one_case(monkeypatch):
    monkeypatch.setattr(architectures, "try_out", lambda *_: os._exit(3))
    assert run_in_process("llama", "vllm") == "fails: the process ended with exit code 3"


def test_page_lists_every_architecture():
    text = PAGE.read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == list(ARCHITECTURES)
    outcomes = {name: dict(zip(ENGINES, row.split(" | "), strict=True)) for name, row in rows.items()}
    assert all(re.match("works, |differs by |refused: |fails: ", o) for row in outcomes.values() for o in row.values())
    assert page(outcomes).split("\n| model_type")[1] == text.split("\n| model_type")[1]
