"""The plan of a run: its arithmetic against hand computations and against what torch really does, and the screen."""

import io
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import Config
from d3s.downsampling import schedule_at
from d3s.plan.dry_run import notes, passes, print_plan
from d3s.plan.machine import SHIPPED, find_shape, launched
from d3s.plan.memory import (
    ModelShape,
    Placement,
    activation_bytes,
    checkpoint_bytes,
    evaluations,
    kv_cache_bytes,
    largest_microbatch,
    memory,
    peaks,
    spread_steps,
    token_share,
)
from d3s.plan.step_time import config_work, estimate_seconds, step_work
from d3s.policy import CHUNK_ELEMENTS

ROOT = Path(__file__).resolve().parents[2]
REAL = sorted(path for path in (ROOT / "configs").glob("*.yaml") if path.stem not in ("tiny", "countdown", "ablation"))
QWEN_1B, QWEN_7B, LLAMA_8B = SHIPPED.values()
CHUNK = CHUNK_ELEMENTS["cuda"]
GB = 2**30


def plan(*words: str | Path) -> str:
    """What --dry-run prints for these files and overrides."""
    files = [word for word in words if "=" not in str(word)]
    out = io.StringIO()
    print_plan(load_config(files, [word for word in words if "=" in str(word)]), Console(file=out, width=100))
    return out.getvalue()


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "share"),
    [
        ([], 0.0875),  # the integral of (8 + 24 p) / 32 * (0.05 + 0.15 p)
        (["schedule.shape=cosine"], 0.092),
        (["schedule.shape=exponential"], 0.133),
        (["schedule.shape=step"], (0.25 * 0.05 + 0.20) / 2),
        (["schedule.shape=constant"], 0.25 * 0.05),
        (["schedule.n_init=16", "schedule.n_final=16", "schedule.k_init=0.1", "schedule.k_final=0.1"], 0.05),
        (["schedule.n_init=null", "schedule.k_init=1", "schedule.k_final=1"], 1.0),
    ],
)
def test_the_share_of_tokens_is_the_integral_of_the_schedule(overrides, share):
    assert token_share(load_config([], ["train.steps=5000", *overrides])) == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize("shape", ["linear", "cosine", "exponential", "step", "constant"])
def test_long_runs_are_not_planned_step_by_step(shape):
    """A run of a million steps has the share of tokens of one of 1,999, whose every step is counted."""
    share = token_share(load_config([], ["train.steps=1999", f"schedule.shape={shape}"]))
    long = load_config([], [f"train.steps={10**6}", f"schedule.shape={shape}"])
    assert token_share(long) == pytest.approx(share, abs=1e-3)
    assert spread_steps(7) == list(range(7)) and spread_steps(9, 3) == [1, 4, 7] and len(spread_steps(10**6)) == 2000


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
@pytest.mark.parametrize("every", [0, 1, 3, 5, 11])
def test_evaluations_are_those_of_the_training_loop(steps, every):
    config = load_config([], [f"train.steps={steps}", f"eval.every={every}", "eval.data=[gsm8k]"])
    done = 1 + sum(step == steps or (every > 0 and step % every == 0) for step in range(1, steps + 1))
    assert evaluations(config) == done
    assert evaluations(load_config([], [f"train.steps={steps}", f"eval.every={every}"])) == 0


# --- the model -------------------------------------------------------------------------------------------------------


def test_parameters_of_the_shipped_models_are_those_of_their_published_weights():
    assert QWEN_1B.parameters == 1_543_714_304
    assert QWEN_7B.parameters == 7_615_616_512
    assert LLAMA_8B.parameters == 8_030_261_248
    assert {load_config([path]).model.name for path in REAL} == set(SHIPPED)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_those_that_transformers_makes(kind, tied):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "hidden_size": 96,
        "intermediate_size": 200,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "vocab_size": 131,
        "tie_word_embeddings": tied,
    }
    if kind == "qwen3":
        sizes["head_dim"] = 32
    config = AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = ModelShape.of(json.loads(config.to_json_string(use_diff=False)))
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_a_model_of_another_kind_has_no_shape(tmp_path):
    assert ModelShape.of({"model_type": "mixtral"}) is None
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    assert find_shape(str(tmp_path)) is None
    assert find_shape("no such model") is None
    assert find_shape("some/model-that-is-not-here") is None


def test_shapes_come_from_the_models_own_file(tied_model):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tied_model)
    assert find_shape(str(tied_model)).parameters == model.num_parameters()
    assert find_shape("tiny:precedence").layers == 2


# --- memory ----------------------------------------------------------------------------------------------------------


def test_the_cache_of_a_token_is_that_of_the_published_sizes():
    assert kv_cache_bytes(LLAMA_8B, "bfloat16") == 128 * 1024  # 32 layers, 8 heads of 128, key and value, 2 bytes
    assert kv_cache_bytes(QWEN_1B, "float32") == 28 * 2 * 128 * 2 * 4


@pytest.mark.parametrize(("mode", "dtype"), [("float32", "float32"), ("autocast", "bfloat16"), ("zero3", "bfloat16")])
def test_activations_are_what_autograd_keeps(tmp_path, mode, dtype):
    """The difference between models of three layers and of one, on 512 packed tokens."""
    kept = []
    for layers in (1, 3):
        shape, saved = saved_by_autograd(tmp_path / str(layers), layers, mode)
        kept.append(saved)
    tokens = 512
    expected = 2 * tokens * activation_bytes(shape, dtype, 1, False, mode == "zero3") // shape.layers
    assert kept[1] - kept[0] == pytest.approx(expected, rel=0.03)


def saved_by_autograd(path: Path, layers: int, mode: str) -> tuple[ModelShape, int]:
    """Bytes that a forward pass leaves for the backward pass, parameters and their copies not counted."""
    from d3s.packing import Batch, pack
    from d3s.policy import Policy
    from tests.helpers.models import save_random_model

    sizes = {"hidden_size": 96, "intermediate_size": 320, "num_attention_heads": 6, "num_key_value_heads": 2}
    policy = Policy(str(save_random_model(path, seed=0, num_hidden_layers=layers, **sizes)), max_length=512)
    shape = find_shape(str(path))
    if mode == "zero3":
        policy = policy.to(torch.bfloat16)
    storages = {}
    weights = {tuple(parameter.shape) for parameter in policy.parameters()}
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and not {tuple(tensor.shape), tuple(tensor.shape)[::-1]} & weights:
            storages[storage.data_ptr()] = tensor
        return tensor

    batch = Batch([[1] * 8], [[2] * 505], *(torch.ones(505) for _ in range(3)))
    batch.selected = torch.ones(505, dtype=torch.bool)
    micro = pack(batch, [0], batch.forward_lengths(cut=True))
    assert micro.input_ids.shape == (1, 512)
    autocast = torch.autocast("cpu", torch.bfloat16) if mode == "autocast" else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
        outputs = policy(micro, batch.selected, 1.0)
    assert outputs[0].requires_grad
    return shape, sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def test_checkpointing_keeps_the_inputs_of_all_layers_and_the_inside_of_one():
    layer = activation_bytes(QWEN_7B, "bfloat16", 1000, False, True) // 28
    assert layer == 1000 * (16 * 3584 + 6 * 3584 + 4 * 512 + 8 * 18_944)
    assert activation_bytes(QWEN_7B, "bfloat16", 1000, True, True) == layer + 28 * 1000 * 2 * 3584
    assert activation_bytes(QWEN_7B, "float32", 1000, True, False) == 1000 * (
        28 * 4 * 3584 + 24 * 3584 + 12 * 3584 + 8 * 512 + 16 * 18_944
    )


def test_memory_of_one_process_by_hand():
    config = load_config([ROOT / "configs/qwen2.5-math-1.5b.yaml"])
    p = QWEN_1B.parameters
    parts = memory(config, QWEN_1B, Placement(), CHUNK)
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (4 * p, 4 * p, 8 * p)
    assert (parts["copies"], parts["stepping"], parts["reference"]) == (2 * p, 4 * p, 0)
    assert parts["head"] == 4 * 4 * CHUNK + 6 * 151_936 * 1536
    assert memory(config, QWEN_1B, Placement(2), CHUNK)["head"] == 4 * 4 * CHUNK + 10 * 151_936 * 1536
    assert memory(config, QWEN_1B, Placement(2), CHUNK)["gradients"] == 8 * p  # DDP's buckets
    full = config.model_copy(update={"model": config.model.model_copy(update={"dtype": "float32"})})
    assert memory(full, QWEN_1B, Placement(), CHUNK)["copies"] == 0
    assert memory(load_config([], ["loss.beta=0.1"]), QWEN_1B, Placement(), CHUNK)["reference"] == 4 * p


def test_memory_under_zero3_by_hand():
    config = load_config([ROOT / "configs/qwen2.5-math-7b.yaml"])
    own = QWEN_7B.parameters // 8
    parts = memory(config, QWEN_7B, Placement(8, True), CHUNK)
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (2 * own, 4 * own, 12 * own)
    assert parts["copies"] == 2 * 10**9 + 2 * 5 * 10**8
    offloaded = memory(config, QWEN_7B, Placement(8, True, True), CHUNK)
    assert (offloaded["weights"], offloaded["gradients"], offloaded["optimizer"]) == (2 * own, 0, 0)
    assert memory(config, QWEN_7B, Placement(8, True, True, True), CHUNK)["weights"] == 0


def test_peaks_add_up_what_is_there_at_the_same_time():
    parts = {"weights": 1, "gradients": 2, "optimizer": 4, "reference": 8, "copies": 16, "activations": 32, "head": 64}
    parts["stepping"] = 128
    assert peaks(parts, 1000, True, False) == {"generate": 13 + 1000, "update": 15 + 128}
    assert peaks(parts | {"stepping": 3}, 1000, False, True) == {"generate": 15 + 1000, "update": 15 + 112 + 1000}


def test_a_microbatch_holds_at_least_the_longest_sequence():
    config = load_config([], ["train.max_tokens_per_microbatch=100", "data.max_prompt_length=60"])
    assert largest_microbatch(config) == 60 + 1024 - 1
    assert any("more than train.max_tokens_per_microbatch 100" in note for note in notes(config, Placement()))


def test_a_checkpoint_is_weights_and_two_moments():
    assert checkpoint_bytes(Config(), QWEN_1B, Placement()) == 12 * QWEN_1B.parameters
    assert checkpoint_bytes(Config(), QWEN_1B, Placement(8, True)) == 16 * QWEN_1B.parameters


# --- seconds ---------------------------------------------------------------------------------------------------------


def test_the_work_of_a_step_by_hand():
    shape = ModelShape(hidden=8, layers=1, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocabulary=100, tied=True)
    trunk = 8 * (8 + 4 + 4) + 8 * 8 + 3 * 8 * 16 + 2 * 8 + 8
    work = step_work(shape, rollouts=10, length=5, forwarded=30, selected=7, engine_rows=4, updates=2)
    assert work["generate"] == {
        "calls": 5 * 3, "tokens": 50, "trunk": 50 * 2 * trunk, "head": 50 * 1600, "vocabulary": 5000
    }  # fmt: skip
    assert work["update"] == {"calls": 2, "trunk": 30 * 6 * trunk, "head": 7 * 6400, "parameters": 2 * (trunk + 800)}
    assert work["sync"] == {"calls": 1, "parameters": trunk + 800}


def test_seconds_are_estimated_only_for_what_was_measured(tmp_path, monkeypatch):
    config = load_config([ROOT / "configs/tiny.yaml"], ["schedule.shape=constant"])
    shape = find_shape("tiny:precedence")
    monkeypatch.setattr("d3s.plan.step_time.MEASURED", tmp_path / "scaling.json")
    assert "make bench-scaling measures" in estimate_seconds(config, shape, Placement(), 0, "none")
    units = {phase: dict.fromkeys(kinds, 0.0) for phase, kinds in config_work(config, shape, 0, 0).items()}
    units["generate"]["tokens"], units["update"]["calls"] = 1e-3, 0.5
    record = {"machine": {"gpu": "none"}, "dtype": "float32", "units": units}
    (tmp_path / "scaling.json").write_text(json.dumps(record))
    said = estimate_seconds(config, shape, Placement(), 0, "none")
    assert "a step, at most: 17 at first, 17 at the end (generate 16 to 16, update 1 to 1, sync 0 to 0)" in said
    assert f"the run {(256 * 64 * 1e-3 + 2 * 0.5) * 110 / 60:.1f} minutes" in said
    for other in (
        estimate_seconds(config, shape, Placement(2), 0, "none"),
        estimate_seconds(config, shape, Placement(), 0, "a card"),
        estimate_seconds(load_config([ROOT / "configs/qwen2.5-math-1.5b.yaml"]), QWEN_1B, Placement(), 0, "none"),
    ):
        assert "not estimated" in other


# --- the passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("correction", "old"),
    [("none", "engine"), ("none", "actor"), ("truncate", "actor"), ("sequence_mask", "actor")],
)
@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("known", [False, True], ids=["engine", "actor"])
def test_the_plan_names_the_passes_that_the_trainer_makes(known, correction, old, minibatches, beta):
    """Where the actor is asked for entropies or checks all rollouts, nothing is scored again."""
    from d3s.downsampling import forward_passes
    from d3s.packing import Batch
    from d3s.trainer import Trainer

    words = [f"selector.entropy_source={'actor' if known else 'engine'}", f"loss.engine_correction={correction}"]
    words += [f"loss.beta={beta}", f"loss.old_logprobs={old}", f"optim.num_minibatches={minibatches}"]
    config, mask = load_config([], words), correction == "sequence_mask"
    made = ["score the kept"] if known and not mask else []

    def score(batch, reference=False, wanted=None, entropies=True):
        made.append("score by the reference" if reference else "score the selected")
        assert torch.equal(wanted, batch.selected)
        return torch.zeros(3), torch.zeros(3)

    batch = Batch([[1]], [[1, 2, 3]], *(torch.zeros(3) for _ in range(3)))
    batch.selected = torch.tensor([True, False, False])
    self = SimpleNamespace(config=config, actor=SimpleNamespace(compute_logprobs=score, has_gradient=lambda *_: True))
    Trainer.add_logprobs(
        self, batch, forward_passes(config, config.schedule.k_init), torch.zeros(3) if known or mask else None
    )
    assert [item.name for item in passes(config) if item.runs and item.name.startswith("score")] == made


def test_the_sequence_ratio_needs_whole_rollouts():
    gspo = load_config([ROOT / "configs/method/gspo.yaml"])
    assert "all tokens" in passes(gspo)[-1].why
    once = load_config([ROOT / "configs/method/gspo.yaml"], ["optim.num_minibatches=1"])
    assert "last selected token" in passes(once)[-1].why
    assert any("gspo is grpo" in note for note in notes(once, Placement()))


# --- the screen ------------------------------------------------------------------------------------------------------


def test_the_plan_of_the_embedded_default():
    config = load_config([ROOT / "configs/tiny.yaml"])
    text = plan(ROOT / "configs/tiny.yaml")
    b, g, steps = config.train.prompts_per_step, config.rollout.num_generations, config.train.steps
    assert f"B {b} x G {g} = {b * g:,} a step, {b * g * steps:,} in {steps} steps" in text
    assert "synthetic:precedence: 4,096 problems, prompts of up to" in text
    for step in (0, steps - 1):
        n, k = schedule_at(config, step)
        assert f"{n} of {g}" in text
        assert f"{k:.1%}" in text
    assert f"in all {token_share(config):.2%} of the sampled tokens" in text
    assert "0.25 M parameters" in text
    assert f"Files in {config.train.output_dir}: config.yaml, metrics.jsonl, eval.jsonl" in text
    assert len(text.splitlines()) <= 60


@pytest.mark.parametrize("file", REAL, ids=lambda path: path.stem)
def test_real_models_fit_where_their_comments_say(file):
    config, text = load_config([file]), plan(file)
    assert config.model.name in text and "GB per process" in text
    assert "not on this machine: the run will ask the hub" in " ".join(text.split())
    shape = SHIPPED[config.model.name]
    place = Placement() if "1.5b" in file.stem else Placement(8, True)
    engine = int(config.rollout.gpu_memory_utilization * 80 * GB)
    assert max(peaks(memory(config, shape, place, CHUNK), engine, True, place.zero3).values()) < 0.9 * 80 * GB
    assert shape.parameters * 2 < engine
    (verdicts,) = (line.split("│")[2:-1] for line in text.splitlines() if line.startswith("│ a GPU of 80 GB "))
    alone = "fits" if "1.5b" in file.stem else "does not fit"
    assert [verdict.strip() for verdict in verdicts] == [alone, "fits", "fits"]
    seven = ["aime24", "aime25", "amc23", "gsm8k", "math500", "minerva", "olympiadbench"]
    assert config.eval.data == config.data.decontaminate == seven
    assert config.selector.cross_group == ("llama" not in file.stem)
    assert not list(notes(config, place))


def test_a_dry_run_loads_no_model_and_no_engine():
    code = (
        "import sys; sys.argv = ['train.py', '--dry-run', '--config', 'configs/tiny.yaml'];"
        "from transformers import PreTrainedModel; PreTrainedModel.__init__ = None;"
        "import train; assert train.main() == 0; assert not {'vllm', 'deepspeed'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "peak while updating" in run.stdout


def test_one_rank_prints_for_all_and_knows_how_it_was_launched(monkeypatch):
    assert launched() == Placement()
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert launched() == Placement(16)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu")
    assert launched() == Placement(16, True, True)
    text = plan(ROOT / "configs/qwen2.5-math-7b.yaml")
    assert "16 processes under ZeRO-3" in text and "launched *" in text
    assert "not a multiple of 16 processes" in plan(ROOT / "configs/tiny.yaml", "train.prompts_per_step=24")
    monkeypatch.setenv("RANK", "1")
    assert plan(ROOT / "configs/tiny.yaml") == ""


@pytest.mark.parametrize(
    ("content", "overrides", "said"),
    [
        (None, [], "no such file"),
        ("", [], "no problems found"),
        ('{"problem": "1+1=", "answer": "2"}\n{"problem": \n', [], "line 2: not valid JSON"),
        ('{"problem": "1+1=", "answer": "2"}\n\n{"problem": "1+1=", "answer": "2"}\n', [], "line 2: got an empty line"),
        ('{"question": "1+1=", "answer": "2"}\n', [], "no field 'problem'"),
        (
            '{"problem": "1+1=", "answer": "2"}\n' * 16,
            ["data.max_prompt_length=3"],
            "longer than 3 tokens",
        ),
        ('{"problem": "1+1=", "answer": "2"}\n' * 15, [], "got 15 problems"),
        ('{"problem": "1+1=", "answer": "2"}\n', [], "got 1 problem,"),
        ('{"problem": "1+1=", "answer": "2"}\n' * 16, ["data.template=plane"], "did you mean 'plain'?"),
        ('{"problem": "1+1=", "answer": "2"}\n' * 16, ["eval.data=[none.jsonl]"], "none.jsonl: no such file"),
        ('{"problem": "1+1=", "answer": "2"}\n' * 16, ["reward.function=d3s.reward:nothing"], "d3s.reward:nothing"),
        (None, ["data.path=problems.tsv"], "problems.tsv: unknown data set"),
        (None, ["data.path=synthetic:precedence", "eval.data=[/dev/zero]"], "/dev/zero: unknown data set"),
        (
            None,
            ["data.path=synthetic:precedence", "rollout.max_completion_length=2048"],
            "less than the 2048 positions",
        ),
        (None, ["data.path=synthetic:precedence", "rollout.max_completion_length=2047"], "longer than 1 tokens"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would_refuse(tmp_path, content, overrides, said):
    path = tmp_path / "problems.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        plan(ROOT / "configs/tiny.yaml", f"data.path={path}", *overrides)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{tmp}", "is no model's directory: there is no config.json in it"),
        ("{tmp}/none", "there is no such directory"),
        ("./none", "there is no such directory"),
        ("runs/none", "there is no such directory"),
        ("a model", "must be a directory, a hub name as org/name, or tiny:TASK"),
        ("{tmp}/broken", "config.json: cannot be read as a model's config.json"),
        ("{tmp}/half", "config.json: cannot be read as a model's config.json"),
    ],
)
def test_a_dry_run_refuses_what_is_no_model(tmp_path, name, said):
    for folder, content in (("broken", "{"), ("half", '{"model_type": "qwen2"}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(content)
    with pytest.raises(UserError) as caught:
        plan(ROOT / "configs/tiny.yaml", f"model.name={name.format(tmp=tmp_path)}")
    assert said in str(caught.value)


def test_a_directory_with_a_run_is_noted_and_left_alone(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    text = plan(ROOT / "configs/tiny.yaml", f"train.output_dir={tmp_path}")
    assert "holds a run already" in text
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
