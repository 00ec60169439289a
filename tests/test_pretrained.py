"""Pretrained models, against copies damaged in known ways."""

import io
import json
import shutil
import sys
import time

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from benchmarks.architectures import save_random_model as save_architecture
from d3s.common import UserError
from d3s.pretrained import as_saved, check_name, load_model, load_pretrained, prompt_budget, read_config, stop_token_ids
from d3s.tiny import byte_tokenizer
from tests.helpers.evaluations import call_eval

UP = "model.layers.1.mlp.up_proj.weight"


def edit_weights(path, change):
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def edit_config(path, **changes):
    for file in ("config.json", "generation_config.json"):
        settings = json.loads((path / file).read_text())
        (path / file).write_text(json.dumps(settings | changes))


def to_pickle(path):
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


def truncate(path, share):
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[: int(len(content) * share)])


def spread_over_files(path):
    """Two files and an index; the tensor that is not finite is in the second."""
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    weights[UP][3, 4] = torch.inf
    names = {name: f"model-0000{2 if name == UP else 1}-of-00002.safetensors" for name in weights}
    for file in set(names.values()):
        save_file({n: t for n, t in weights.items() if names[n] == file}, path / file, {"format": "pt"})
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


DAMAGED = {
    "one tensor missing": (lambda p: edit_weights(p, lambda w: w.pop(UP)), f"1 tensors are missing .*files .{UP}.; "),
    "another shape": (lambda p: edit_weights(p, lambda w: w.update({UP: torch.zeros(3, 4)})),
                      rf"shape of config.json .{UP}: got \[3, 4\], expected \[128, 64\]"),
    "not a number": (lambda p: edit_weights(p, lambda w: w.update({UP: w[UP].to(torch.bfloat16) * torch.nan})),
                     f"{UP} in .* non-finite"),
    "infinite, second file": (spread_over_files, f"{UP} in model-00002-.* has non-finite values; use other weights$"),
    "truncated": (lambda p: truncate(p, 0.5), "cannot load the model's weights ..*incomplete metadata"),
    "pickled": (to_pickle, "cannot load the model's weights ..*no file named model.safetensors"),
    "no tokenizer": (lambda p: [x.unlink() for x in p.glob("tokenizer*")], "no tokenizer; expected tokenizer.json"),
    "eos after the last": (lambda p: edit_config(p, eos_token_id=257), "eos_token_id: got 257, expected less than"),
    "other keys": (lambda p: (p / "tokenizer.json").write_text('{"a": 1}'), "cannot load .* tokenizer .KeyError"),
    "no positions": (lambda p: (p / "config.json").write_text('{"model_type": "mamba"}'),
                     "expected max_position_embeddings and"),
    "few tokens": (lambda p: edit_config(p, vocab_size=200), "a tokenizer of 257 tokens, expected at most .* 200"),
    "a layer less": (lambda p: edit_config(p, num_hidden_layers=1, layer_types=["full_attention"]), r"12 tensors of .* "
                     "are not in the model of config.json .model.layers.1.input.*, ….; use the config.json"),
    "a bias of the head": (lambda p: edit_weights(p, lambda w: w.update({"lm_head.bias": torch.zeros(257)})),
                           r"1 tensors of the weight files are not in .* .lm_head.bias.;"),
    "no configuration": (lambda p: (p / "config.json").unlink(), "has no config.json, expected a model's directory$"),
    "a run": (lambda p: shutil.copytree(p, p / "model") and (p / "config.json").unlink(), "such as .*/model/model$"),
}  # fmt: skip


@pytest.fixture
def copy(tmp_path, gqa_model):
    return shutil.copytree(gqa_model, tmp_path / "model")


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_models_are_refused(copy, case):
    damage, message = DAMAGED[case]
    damage(copy)
    with pytest.raises(UserError, match=message) as refusal:
        load_pretrained(str(copy), 20)
    assert str(copy) in str(refusal.value) and "\n" not in str(refusal.value)


def test_tensors_beside_the_language_model_are_accepted(copy, tied_model):
    """Old buffers, a vision tower, further heads, and the head of a model whose head is its embedding."""
    names = ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.attn.masked_bias"]
    names += ["model.visual.blocks.0.attn.qkv.bias", "mtp.layers.0.mlp.up_proj.weight", "v_head.summary.weight"]
    edit_weights(copy, lambda w: w.update({name: torch.zeros(2) for name in names}))
    load_pretrained(str(copy), 20)
    tied = shutil.copytree(tied_model, copy.with_name("tied"))
    assert "lm_head.weight" not in load_file(tied / "model.safetensors")
    for _ in range(2):  # without and with the head in the file
        load_pretrained(str(tied), 20)
        model = load_model(str(tied))
        assert model.lm_head.weight is model.model.embed_tokens.weight
        edit_weights(tied, lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].clone()}))


def test_names_are_directories_or_hub_names():
    for name in ("gpt2", "Qwen/Qwen2.5-Math-1.5B", "a_b/c-d.e"):
        check_name(name)
    absent = "runs/absent", "./absent", "~/absent", "/absent", "org/absent/"
    impossible = "a/b/c", "org/my model", "org//name", "tiny:x", "my--model", "a..b", "x.git", "org/name.", "é"
    for name in (*absent, *impossible):
        with pytest.raises(UserError, match=f"^{name}: no such directory; expected .*, a hub name org/name"):
            check_name(name)
    with pytest.raises(UserError, match=r"^model\.name: no such directory"):
        check_name("")


def test_unreachable_hub_is_one_sentence_at_once(monkeypatch):
    """Without it transformers asks for each file six times, with pauses."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(UserError, match=r"^org/absent: .*not in the hub's cache, and http://127.0.0.1:9 cannot be"):
        read_config("org/absent")
    assert time.monotonic() - started < 10


def test_prompts_get_the_positions_that_responses_leave(gqa_model):
    assert prompt_budget("m", 100, 99) == 1 and load_pretrained(str(gqa_model), 20)[1] == 512 - 20
    for max_tokens in (100, 101):
        with pytest.raises(UserError, match=f"responses of up to {max_tokens} tokens, expected less than .* 100 pos"):
            prompt_budget("m", 100, max_tokens)


def test_code_of_a_model_is_never_executed(copy, tmp_path, monkeypatch):
    """Without `trust_remote_code=False` transformers asks "Do you wish to run the custom code?" on stdin."""
    edit_config(copy, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    (copy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\nclass M: pass\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    with pytest.raises(UserError, match="custom code"):
        load_pretrained(str(copy), 20)
    with pytest.raises(UserError, match="custom code"):
        load_model(str(copy))
    assert not (tmp_path / "ran").exists()


def test_damaged_models_are_refused_before_engines_exist(copy, tmp_path, monkeypatch, refusal):
    """By training and by evaluation; with all of its bytes the model gets as far as an engine."""

    def engine(*_, **__):
        raise UserError("an engine was built")

    for place in ("d3s.trainer.build_engine", "d3s.commands.evaluate.open_engine"):
        monkeypatch.setattr(place, engine)
    run = ["train.py", "--config", "configs/tiny.yaml", "tests/helpers/small.yaml", f"model.name={copy}"]
    test = ["--model", copy, "--data", "synthetic:precedence", "--limit", 2, "--max-tokens", 20]
    for share, reason in ((1, "an engine was built"), (0.9, "incomplete metadata")):
        truncate(copy, share)
        assert reason in refusal([*run, f"train.output_dir={tmp_path / reason}"])
        with pytest.raises(UserError, match=reason):
            call_eval(*test, "--output", tmp_path / f"{share} of it")


def test_converted_weights_are_those_of_the_files(tmp_path):
    """transformers fuses the experts of a layer on loading; vLLM expects those of the files and ignores others."""
    path = save_architecture("qwen3_moe", tmp_path / "model")
    saved = load_file(path / "model.safetensors")
    parameters = dict(load_model(str(path), dtype=torch.float32).named_parameters())
    assert parameters.keys() != saved.keys()
    converted = dict(as_saved(str(path), iter(parameters.items())))
    assert converted.keys() == saved.keys() and all(torch.equal(converted[name], saved[name]) for name in saved)
    save_file(converted, tmp_path / "copy.safetensors")  # raises an error for tensors that share memory
    edit_weights(path, lambda w: w.pop("model.layers.0.mlp.experts.2.up_proj.weight"))  # of a fused tensor
    with pytest.raises(UserError, match="cannot load the model's weights"):
        load_pretrained(str(path), 20)


def test_stop_tokens_are_those_of_generation_and_tokenizer(tmp_path):
    def write(name, **content):
        (tmp_path / name).write_text(json.dumps(content))

    write("config.json", model_type="qwen2", eos_token_id=7)
    assert stop_token_ids(str(tmp_path)) == [7]
    write("generation_config.json", eos_token_id=[3, 4])
    assert stop_token_ids(str(tmp_path)) == [3, 4]
    write("generation_config.json", temperature=0.5)
    assert stop_token_ids(str(tmp_path)) == [7]
    write("config.json", model_type="qwen2", eos_token_id=None)
    with pytest.raises(UserError, match="eos_token_id"):
        stop_token_ids(str(tmp_path))
    byte_tokenizer().save_pretrained(tmp_path)
    assert stop_token_ids(str(tmp_path)) == [byte_tokenizer().eos_token_id] == [0]
    write("generation_config.json", eos_token_id=[3, 4])
    assert stop_token_ids(str(tmp_path)) == [3, 4, 0]
