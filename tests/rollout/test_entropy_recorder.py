"""The entropy recorder on scripted batch updates, against the entropies of the rows that each request had.

A vLLM without the model runner that the recorder needs is refused in one sentence.
"""

import re
import sys
from math import nan
from types import SimpleNamespace

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout import build_engine
from d3s.rollout.engine import OTHER_ENGINE, Rollout
from d3s.rollout.entropy_recorder import entropy_recorder


def update(added=(), removed=(), moved=()):
    """A batch update of vLLM; each added row is (row, request, start, its live list of output tokens)."""
    rows = [
        (row, SimpleNamespace(extra_args=None if request is None else {"request": request, "start": start}), [], ids)
        for row, request, start, ids in added
    ]
    return SimpleNamespace(added=rows, removed=list(removed), moved=list(moved))


def test_entropies_follow_requests_through_the_batch():
    """Request 7 swaps rows with 5, which then leaves; a row without a recorded request lies between them."""
    from vllm.v1.sample.logits_processor import MoveDirectionality

    recorder = entropy_recorder()(None, None, None)
    logits = [torch.randn(rows, 9, generator=torch.Generator().manual_seed(rows)) for rows in (3, 3, 2)]
    seven, five = [], []
    recorder.update_state(update(added=[(0, 7, 0, seven), (1, None, 0, []), (2, 5, 4, five)]))
    assert recorder.apply(logits[0]) is logits[0]
    for removed, moved in (([], (0, 2, MoveDirectionality.SWAP)), ([0], (2, 0, MoveDirectionality.UNIDIRECTIONAL))):
        seven.append(1), five.append(1)
        recorder.update_state(update(removed=removed, moved=[moved]))
        recorder.apply(logits[len(seven)])
    rollouts = {7: Rollout(0, [1], [2] * 3, [], [], True), 5: Rollout(0, [1], [2] * 6, [], [], True)}
    recorder.write_to(rollouts)
    first, second, third = ([-sum(p * p.log() for p in row.softmax(-1)).item() for row in step] for step in logits)
    assert rollouts[7].entropies == pytest.approx([first[0], second[2], third[0]], rel=1e-5)
    assert rollouts[5].entropies == pytest.approx([nan] * 4 + [first[2], second[0]], rel=1e-5, nan_ok=True)
    assert recorder.steps == []


# --- a vLLM without the first model runner ---------------------------------------------------------------------------


def assert_refused(model, reason) -> None:
    """An engine refuses to be built, in one line that matches the reason."""
    remedy = f"; install the version of requirements.txt, or {re.escape(OTHER_ENGINE)}"
    with pytest.raises(UserError, match=rf"^rollout.engine: vLLM 0\..* first model runner \(.*{reason}.*{remedy}$"):
        build_engine(str(model), load_config([], []).rollout, dtype="float32", max_model_len=192, seed=0)


@pytest.mark.parametrize("module", [None, SimpleNamespace(LogitsProcessor=object)])
def test_missing_first_interface_is_one_sentence(engines, tied_model, monkeypatch, module):
    """Without the module, and without one of its names."""
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", module)
    assert_refused(tied_model, "(logits_processor|MoveDirectionality)")


def test_ignored_class_is_one_sentence(engines, tied_model, monkeypatch):
    """A runner that loads the model and never makes an instance of the recorder."""
    config = SimpleNamespace(use_mla=True, get_head_size=lambda: 32)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    monkeypatch.setattr("vllm.LLM", lambda *_, **__: llm)
    assert_refused(tied_model, "the loaded runner does not use its logits processors")
