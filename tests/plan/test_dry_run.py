"""The output of --dry-run of both programs, against hand-computed values, the trainer's steps, and a run's errors."""

import re
from functools import partial
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.flops import ModelShape
from d3s.memory import Placement
from d3s.plan import dry_run_sft
from d3s.plan.dry_run import notes, print_plan
from d3s.shapes import SHIPPED
from tests.helpers.configs import REAL, ROOT, SMALL, printed

COVERAGE, PLATEAU = "d3s.methods.coverage:Coverage", "d3s.methods.plateau:Plateau"
VADE, ROUNDS = "d3s.methods.vade:Vade", "tests.helpers.own_rules:InTwoRounds"
plan = partial(printed, print_plan)


def verdicts(text: str) -> list[str]:
    """Whether a GPU of 80 GB is enough, by placement."""
    (line,) = (line for line in text.splitlines() if line.startswith("│ a GPU of 80 GB "))
    return [verdict.strip() for verdict in line.split("│")[2:-1]]


@pytest.mark.parametrize(
    ("words", "ranks", "note"),
    [
        ([], 1, "nothing is clipped; optim.num_minibatches"),
        (["loss.kind=gspo"], 1, "gspo equals a token-level loss"),
        (["train.prompts_per_step=24"], 16, "train.prompts_per_step 24 is not a multiple of 16 processes"),
        (["train.max_tokens_per_microbatch=100"], 1, "2,047 tokens, more than train.max_tokens_per_microbatch 100"),
        (["model.dtype=bfloat16", "loss.old_logprobs=engine"], 1, "loss.old_logprobs: actor is more accurate"),
        ([f"schedule.follow={PLATEAU}", "eval.every=0"], 1, f"schedule.follow: {PLATEAU} needs evaluations"),
    ],
)
def test_notes_name_settings_worth_checking(words, ranks, note):
    assert any(note in text for text in notes(load_config([], words), Placement(ranks)))


def test_schedule_and_files_match_hand_values():
    """N from 4 to 12 and K from 10 % to 50 % in 9 steps of 8 problems, of which there are 48."""
    words = ["train.steps=9", "train.prompts_per_step=8", "data.limit=48", "rollout.num_generations=16", "eval.data=[]"]
    words += ["schedule.n_init=4", "schedule.n_final=12", "schedule.k_init=0.1", "schedule.k_final=0.5"]
    words += ["train.profile_steps=[3,4]"]
    text = " ".join(plan(*SMALL, *words).split())
    assert "B 8 x G 16 = 128 per step, 1,152 in 9 steps, 1.5 epochs" in text  # 9 x 8 / 48
    assert "each of about 16 rollouts in the first step, 48 in the last" in text  # 8 N in two mini-batches
    for n, (percent, step) in zip((4, 6, 8, 10, 12), ((0, 1), (25, 3), (50, 5), (75, 7), (100, 9))):
        assert f"│ {percent}% │ {step} │ {n} of 16 │ {8 * n} │ {10 + 5 * (step - 1):.1f}% │" in text
    n_times_k = sum(n * k for n, k in zip((4, 6, 6, 8, 8, 10, 10, 12, 12), (0.1 + 0.05 * i for i in range(9))))
    assert f"total: {n_times_k / (16 * 9):.2%} of the sampled tokens, at most {n_times_k * 8 * 64:,.0f} (" in text
    assert "Files in runs/tiny: config.yaml, metrics.jsonl, samples/" in text and "eval.jsonl" not in text
    assert "profile/ of 2 steps" in text


@pytest.mark.parametrize("rule", [COVERAGE, PLATEAU])
def test_bounds_of_a_followed_schedule_are_printed(rule):
    ends = ["schedule.n_init=8", "schedule.n_final=2", "schedule.k_init=0.2", "schedule.k_final=0.1"]
    text = plan(*SMALL, f"schedule.follow={rule}", *ends, width=250)
    assert f"{rule}: " in text and "N between 2 and 8, K between 10.0% and 20.0%" in text
    assert "each of between 16 and 64 rollouts" in text  # 16 N in two mini-batches
    assert text.count("≤ 8 of 16") == 5 and text.count("≤ 20.0%") == 5
    assert f"total: ≤ {8 * 0.2 / 16:.2%} of the sampled tokens" in text


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ([f"data.order={VADE}", "data.limit=3000"], [f"order {VADE}: ", "each problem is asked 0.59 times on average"]),
        ([f"rollout.strategy={ROUNDS}", "loss.beta=0.1"], [f"strategy {ROUNDS}", "model │ yes │ loss.beta: 0.1"]),
        (["reward.functions=[[boxed, 0.5]]"], ["reward 0.5 x boxed a failing call ends the run"]),
        (
            ["loss.engine_correction={rule: token_mask}", "loss.old_logprobs=actor", "schedule.n_init=null"],
            ["pi_old / pi_engine, token_mask", "without masked ones", "rollouts all"],
        ),
        (["rollout.engine=transformers"], ["│ engine │ 0.9 │"]),  # its weights
        (["loss.kind=gspo", "selector.token_scope=sample"], ["a selected one, for the sequence", "K of each response"]),
    ],
)
def test_rows_say_what_options_do(words, rows):
    text = " ".join(plan(*SMALL, *words, width=250).split())
    assert all(row in text for row in rows), text


@pytest.fixture
def bare_machine(monkeypatch):
    """A machine without a GPU and without a model of the hub."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("file", REAL, ids=lambda path: path.stem)
def test_real_models_fit_as_their_comments_state(file):
    config, text = load_config([file]), plan(file)
    assert config.model.name in text and "GB per process" in text
    assert "not on this machine: the run will download it from the hub" in " ".join(text.split())
    assert SHIPPED[config.model.name].parameters * 2 < config.rollout.gpu_memory_utilization * 80 * 2**30
    alone = "fits" if "1.5b" in file.stem else "does not fit"
    assert verdicts(text) == [alone, "fits", "fits"]
    assert ("--config_file configs/accelerate/zero3_8gpu.yaml does" in " ".join(text.split())) == (alone != "fits")
    assert config.eval.data == config.data.decontaminate and len(config.eval.data) == 7
    assert not list(notes(config, Placement() if alone == "fits" else Placement(8, True)))


@pytest.mark.parametrize("name", ["tiny:precedence", "MODEL"])
def test_unknown_lora_layers_are_refused(name, tied_model):
    name = name.replace("MODEL", str(tied_model))
    words = [f"model.name={name}", "lora.rank=4"]
    assert "on q_proj, gate_proj" in plan(*SMALL, *words, "lora.targets=[q_proj, gate_proj]")
    with pytest.raises(UserError, match=r"^lora.targets: got 'q_prj', expected linear layers of .* q_proj, up"):
        plan(*SMALL, *words, "lora.targets=[q_prj]")


def test_lora_fits_7b_on_one_gpu(bare_machine, monkeypatch):
    """The plan has no ZeRO-3, under which a run would be refused."""
    files = [ROOT / "configs/qwen2.5-math-7b.yaml", ROOT / "configs/lora.yaml"]
    text = plan(*files)
    assert verdicts(text) == ["fits"] and "ZeRO-3" not in text
    assert "rank 16, alpha 32, on all linear layers; 40.37 M parameters are trained" in text
    assert "model/ and adapter/ at the end" in " ".join(text.split()) and "each of 0.5 GB" in " ".join(text.split())
    page = (ROOT / "docs/running.md").read_text()
    for number in ("14.3", "12.8", "56", "70.6", "29.7"):  # GB
        assert f" {number} GB" in page and re.search(rf"│ +{number}(\.0)? │", text), number
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(UserError, match=r"^lora\.rank: got 16 under DeepSpeed"):
        plan(*files)


def test_launch_that_fits_is_named(bare_machine, monkeypatch):
    """A 32 B model fits eight GPUs of 80 GB only with offload; a model of 300 B fits neither."""
    for layers, named in ((60, "zero3_8gpu_offload.yaml"), (600, None)):
        shape = ModelShape(6144, layers, 48, 8, 128, 24_576, 152_064)
        monkeypatch.setattr("d3s.plan.dry_run.find_shape", lambda name, shape=shape: shape)
        sentences = re.findall(r"This launch does not fit; .* (\S+) does", " ".join(plan(REAL[-1]).split()))
        assert [Path(name).name for name in sentences] == ([named] if named else [])


def test_first_rank_notes_a_run_and_leaves_it_unchanged(monkeypatch, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert "contains a run" in plan(*SMALL, f"train.output_dir={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    monkeypatch.setenv("RANK", "1")
    assert plan(*SMALL) == ""


def test_warm_up_counts_demonstrations_and_passes():
    plan = partial(printed, dry_run_sft.print_plan, ROOT / "configs/sft.yaml", width=400)
    text = plan("data.limit=100", "train.prompts_per_step=5", "train.steps=50", "optim.lr_schedule=linear")
    assert "synthetic:countdown: 100 demonstrations; 250 are taken, 2.5 passes" in text
    assert "0.0001 in step 1, 0.00063 in step 26, 2.5e-05 in step 50" in text
    assert "none; one forward and backward pass over every demonstration" in text
    assert "runs/sft: config.yaml, metrics.jsonl, a checkpoint every 50 steps, model/ at the end" in text
    assert "org/name from the hub, not read; 6,400 demonstrations are taken in 200 steps" in plan("data.path=org/name")
