"""The entropy recorder on scripted batch updates, against the entropies of the rows that each request had.

A vLLM without the model runner that the recorder needs is refused in one sentence.
"""

import sys
from types import SimpleNamespace

import pytest
import torch

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.rollout import build_engine
from d3s.rollout.engine import OTHER_ENGINE, Rollout
from d3s.rollout.entropy_recorder import entropy_recorder


@pytest.fixture
def recorder():
    return entropy_recorder()(None, None, None)


def update(added=(), removed=(), moved=()):
    """A batch update of vLLM; each added row is (row, request, start, its live list of output tokens)."""
    rows = [
        (row, SimpleNamespace(extra_args=None if request is None else {"request": request, "start": start}), [], ids)
        for row, request, start, ids in added
    ]
    return SimpleNamespace(added=rows, removed=list(removed), moved=list(moved))


def entropies(logits):
    """The entropy of each row, as a loop over the vocabulary."""
    return [-sum(p * p.log() for p in row.softmax(-1)).item() for row in logits]


def rollout(length):
    return Rollout(0, [1], [2] * length, [0.0] * length, [], True)


def test_entropies_follow_requests_through_the_batch(recorder):
    """Request 7 swaps rows with 5, which then leaves; a row without a recorded request lies between them."""
    from vllm.v1.sample.logits_processor import MoveDirectionality

    logits = [torch.randn(rows, 9, generator=torch.Generator().manual_seed(rows)) for rows in (3, 3, 2)]
    seven, five = [], []
    recorder.update_state(update(added=[(0, 7, 0, seven), (1, None, 0, []), (2, 5, 4, five)]))
    assert recorder.apply(logits[0]) is logits[0]
    seven.append(1), five.append(1)
    recorder.update_state(update(moved=[(0, 2, MoveDirectionality.SWAP)]))
    recorder.apply(logits[1])
    seven.append(1), five.append(1)
    recorder.update_state(update(removed=[0], moved=[(2, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    recorder.apply(logits[2])
    rollouts = {7: rollout(3), 5: rollout(6)}
    recorder.write_to(rollouts)
    first, second, third = map(entropies, logits)
    assert rollouts[7].entropies == pytest.approx([first[0], second[2], third[0]], rel=1e-5)
    nan = float("nan")
    assert rollouts[5].entropies == pytest.approx([nan] * 4 + [first[2], second[0]], rel=1e-5, nan_ok=True)
    assert recorder.steps == []


def test_requests_added_with_output_were_preempted(recorder):
    before = recorder.preemptions
    recorder.update_state(update(added=[(0, 0, 0, []), (1, 1, 0, [4, 4])]))
    assert recorder.preemptions == before + 1
    recorder.apply(torch.zeros(2, 4))
    evicted = {1: rollout(3)}
    recorder.write_to(evicted)
    assert evicted[1].entropies[2] == pytest.approx(torch.tensor(4.0).log().item())


# --- a vLLM without the first model runner ---------------------------------------------------------------------------

REMEDY = f"; install the version of requirements.txt, or {OTHER_ENGINE}"


def refusal(model) -> str:
    """The message with which an engine refuses to be built."""
    with pytest.raises(UserError) as refused:
        build_engine(str(model), load_config([], []).rollout, dtype="float32", max_model_len=192, seed=0)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("module", [None, SimpleNamespace(LogitsProcessor=object)])
def test_missing_first_interface_is_one_sentence(engines, tied_model, monkeypatch, module):
    """Without the module, and without one of its names."""
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", module)
    message = refusal(tied_model)
    assert message.startswith("rollout.engine: vLLM 0.") and "first model runner (" in message
    assert "logits_processor" in message or "MoveDirectionality" in message
    assert message.endswith(REMEDY)


def test_ignored_class_is_one_sentence(engines, tied_model, monkeypatch):
    """A runner that loads the model and never makes an instance of the recorder."""
    config = SimpleNamespace(use_mla=True, get_head_size=lambda: 32)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    monkeypatch.setattr("vllm.LLM", lambda *_, **__: llm)
    message = refusal(tied_model)
    assert "the loaded runner does not use its logits processors" in message and message.endswith(REMEDY)
