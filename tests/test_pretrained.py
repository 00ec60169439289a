"""Models that are not whole are refused in one sentence, before an engine is built; nothing that lies beside a model is
executed."""

import io
import json
import shutil
import sys

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

import eval as evaluation
import train as training
from benchmarks.architectures import save_random_model as save_architecture
from d3s.common import UserError
from d3s.pretrained import as_saved, load_model, load_pretrained, stop_token_ids

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


def without_tokenizer(path):
    for file in path.glob("tokenizer*"):
        file.unlink()


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
    "one tensor missing": (lambda p: edit_weights(p, lambda w: w.pop(UP)), f"1 tensors of the model .* {UP}$"),
    "head missing": (lambda p: edit_weights(p, lambda w: w.pop("lm_head.weight")), r"its weights: lm_head\.weight"),
    "another shape": (
        lambda p: edit_weights(p, lambda w: w.update({UP: torch.zeros(3, 4)})),
        rf"{UP} is \[3, 4\], expected \[128, 64\]",
    ),
    "not a number": (lambda p: edit_weights(p, lambda w: w[UP][0, 0].fill_(torch.nan)), f"{UP} in model.* not finite$"),
    "infinite, second file": (spread_over_files, f"{UP} in model-00002-of-00002.safetensors .* not finite$"),
    "truncated": (lambda p: truncate(p, 0.5), "cannot load its weights; .*incomplete metadata"),
    "empty": (lambda p: truncate(p, 0.0), "cannot load its weights; .*header too small"),
    "pickled": (to_pickle, "cannot load its weights; .*no file named model.safetensors"),
    "no tokenizer": (without_tokenizer, "the model has no tokenizer"),
    "eos outside": (lambda p: edit_config(p, eos_token_id=99999), "eos_token_id is 99999, the vocabulary has 257"),
    "other keys": (lambda p: (p / "tokenizer.json").write_text('{"a": 1}'), "cannot load its tokenizer; KeyError"),
    "a list": (lambda p: (p / "config.json").write_text("[1]"), "cannot load its config.json; TypeError"),
    "no heads": (lambda p: edit_config(p, num_attention_heads=0), "cannot load its weights; ZeroDivisionError"),
    "a size in words": (lambda p: edit_config(p, hidden_size="ten"), "config.json; .*hidden_size.: TypeError"),
    "no positions": (
        lambda p: (p / "config.json").write_text('{"model_type": "mamba"}'),
        "must have max_position_embeddings and vocab_size",
    ),
    "few tokens": (lambda p: edit_config(p, vocab_size=200), "tokenizer has 257 tokens, but vocab_size in .* is 200"),
    "no configuration": (lambda p: (p / "config.json").unlink(), "no model's directory: there is no config.json in it"),
    "own code": (lambda p: edit_config(p, model_type="evil", auto_map={"AutoConfig": "evil.C"}), "custom code"),
}  # fmt: skip


@pytest.fixture
def copy(tmp_path, gqa_model):
    return shutil.copytree(gqa_model, tmp_path / "model")


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_models_are_refused_in_one_sentence(copy, case):
    damage, message = DAMAGED[case]
    load_pretrained(str(copy), 20)  # complete, to begin with
    damage(copy)
    with pytest.raises(UserError, match=message) as refusal:
        load_pretrained(str(copy), 20)
    assert str(copy) in str(refusal.value) and "\n" not in str(refusal.value)


def test_tied_heads_and_unexpected_tensors_load(tmp_path, tied_model):
    path = shutil.copytree(tied_model, tmp_path / "model")
    assert "lm_head.weight" not in load_file(path / "model.safetensors")
    edit_weights(path, lambda w: w.update({"model.layers.9.mlp.up_proj.weight": torch.zeros(2)}))
    load_pretrained(str(path), 20)
    model = load_model(str(path))
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_missing_weights_are_never_drawn(copy):
    """Also by those who load without load_pretrained, as the actor and the transformers engine do."""
    edit_weights(copy, lambda w: w.pop(UP))
    with pytest.raises(UserError, match=UP):
        load_model(str(copy), dtype=torch.float32)


def test_code_beside_a_model_is_not_run_whatever_stdin_says(copy, tmp_path, monkeypatch):
    """transformers would ask "Do you wish to run the custom code?" on stdin."""
    edit_config(copy, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    (copy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\nclass M: pass\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    with pytest.raises(UserError, match="custom code"):
        load_pretrained(str(copy), 20)
    with pytest.raises(UserError, match="custom code"):
        load_model(str(copy))
    assert not (tmp_path / "ran").exists()


def test_train_and_eval_refuse_before_an_engine_is_built(copy, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("an engine was built")

    for place in ("d3s.trainer.build_engine", "d3s.evaluate.evaluator.open_engine"):
        monkeypatch.setattr(place, never)
    monkeypatch.setattr("d3s.trainer.RewardFunction", lambda *_: None)  # else its processes stay
    run = ["train.py", "--config", "configs/tiny.yaml", f"model.name={copy}", f"train.output_dir={tmp_path / 'run'}"]
    judge = [
        "eval.py",
        "--model",
        str(copy),
        "--data",
        "synthetic:precedence",
        "--n",
        "8",
        "--limit",
        "2",
        "--max-tokens",
        "20",
    ]

    def evaluate():
        evaluation.main(evaluation.parse_arguments(), Console(file=io.StringIO()))

    for words, command in ((run, training.main), ([*judge, "--output", str(tmp_path / "out")], evaluate)):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(AssertionError, match="an engine was built"):
            command()
    truncate(copy, 0.9)
    for words, command in ((run, training.main), ([*judge, "--output", str(tmp_path / "other")], evaluate)):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(UserError, match="incomplete metadata"):
            command()


def test_engines_get_weights_as_the_files_have_them(tmp_path):
    """transformers fuses the experts of a layer on loading; vLLM knows those of the files, and passes over others."""
    path = save_architecture("qwen3_moe", tmp_path / "model")
    saved = load_file(path / "model.safetensors")
    parameters = dict(load_model(str(path), dtype=torch.float32).named_parameters())
    assert parameters.keys() != saved.keys()
    handed = dict(as_saved(str(path), iter(parameters.items())))
    assert handed.keys() == saved.keys() and all(torch.equal(handed[name], saved[name]) for name in saved)
    save_file(handed, tmp_path / "copy.safetensors")  # it refuses tensors that share memory


def test_a_missing_expert_is_refused(tmp_path):
    """The experts of a layer are one tensor once they are loaded."""
    path = save_architecture("qwen3_moe", tmp_path / "model")
    edit_weights(path, lambda w: w.pop("model.layers.0.mlp.experts.2.up_proj.weight"))
    with pytest.raises(UserError, match="cannot load its weights"):
        load_pretrained(str(path), 20)


def test_an_architecture_that_vllm_changes_gets_one_sentence(tied_model, monkeypatch):
    """The real case, OLMo 2 and GPT-NeoX, is in docs/architectures.md: it spoils a process for every other engine."""

    def refuse(*_, **__):
        raise AssertionError("Current vLLM config is not set. This typically means")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", refuse)
    with pytest.raises(UserError, match=r"cannot load this architecture; use rollout\.engine: transformers"):
        load_model(str(tied_model))


def test_stop_tokens_of_a_model(tmp_path):
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
