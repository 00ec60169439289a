"""What --dry-run reads from the machine: launcher environment, config.json, tokenizers, local data."""

import json
from types import SimpleNamespace

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.plan.machine import check_data, engine_device, prompt_limit
from tests.helpers.configs import SMALL


def test_engine_device_is_the_local_gpu(monkeypatch):
    half = load_config([], ["model.dtype=bfloat16"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert engine_device(load_config([])) == ("the CPU", 0)
    assert engine_device(half) == ("a GPU of 80 GB", 80 * 2**30)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "H100")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: SimpleNamespace(total_memory=85 + index))
    assert engine_device(half) == engine_device(load_config([])) == ("H100", 85)


def test_prompt_limit_leaves_positions_for_responses(tmp_path):
    """At most data.max_prompt_length."""
    for positions, response, limit in ((4096, 1024, 1024), (2048, 2000, 48), (None, 2000, 1024)):
        content = {"model_type": "qwen2"} | ({"max_position_embeddings": positions} if positions else {})
        (tmp_path / "config.json").write_text(json.dumps(content))
        words = [f"model.name={tmp_path}", f"rollout.max_completion_length={response}"]
        assert prompt_limit(load_config([], words)) == limit
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 2000}')
    with pytest.raises(UserError, match="2000"):
        prompt_limit(load_config([], words))


def test_local_data_is_counted(tmp_path):
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("".join(f'{{"problem": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(95, 115)))
    test.write_text('{"problem": "5+5=", "answer": "10"}\n' * 3)
    words = [f"data.path={train}", f"eval.data=[{test}]", "train.steps=10", "eval.every=4", "eval.n=7", "eval.k=[1]"]
    rows, count, longest = check_data(load_config(SMALL, words))
    assert (count, longest) == (20, 6)
    text = "4 times 7 samples per problem of test (3 problems)"  # before, after 4, 8 and 10
    assert rows[0][1].startswith(f"{train}: 20 problems, prompts of up to 6 tokens (limit 1024)")
    assert [label for label, _ in rows] == ["data", "template", "prompt", "ends", "evaluation"]
    assert rows[1:3] == [("template", "plain"), ("prompt", "--->95+1=<---")] and rows[-1][1] == text


@pytest.mark.parametrize("option", ["data.path=math500", "eval.data=[math500]"])
def test_splits_of_benchmarks_are_checked_without_the_hub(option):
    with pytest.raises(UserError, match=r"^math500: got split '(train|validation)', expected 'test'"):
        check_data(load_config(SMALL, [option]))
