"""The output of --dry-run, against hand-computed values, the trainer's steps, and a run's errors."""

import re
from functools import partial
from pathlib import Path

import pytest

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.flops import ModelShape
from d3s.plan.dry_run import notes, print_plan
from d3s.plan.machine import SHIPPED
from d3s.plan.memory import Placement, choose_recomputation, memory, peaks
from d3s.policy import CHUNK_ELEMENTS
from tests.helpers.configs import REAL, ROOT, SMALL, printed

CHUNK = CHUNK_ELEMENTS["cuda"]
GB = 2**30


plan = partial(printed, print_plan)


def verdicts(text: str) -> list[str]:
    """Whether a GPU of 80 GB is enough, by placement."""
    (line,) = (line for line in text.splitlines() if line.startswith("│ a GPU of 80 GB "))
    return [verdict.strip() for verdict in line.split("│")[2:-1]]


# --- notes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "ranks", "note"),
    [
        ([], 1, "nothing is clipped; optim.num_minibatches"),
        (["loss.kind=gspo"], 1, "gspo equals a token-level loss"),
        (["train.prompts_per_step=24"], 16, "train.prompts_per_step 24 is not a multiple of 16 processes"),
        (["train.max_tokens_per_microbatch=100"], 1, "2,047 tokens, more than train.max_tokens_per_microbatch 100"),
        (["model.dtype=bfloat16", "loss.old_logprobs=engine"], 1, "loss.old_logprobs: actor is more accurate"),
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


VADE, ROUNDS = "d3s.methods.vade:Vade", "tests.helpers.own_rules:InTwoRounds"
MASK = ["loss.engine_correction={rule: token_mask}", "loss.old_logprobs=actor"]


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ([f"data.order={VADE}", "data.limit=3000"], [f"order {VADE}: ", "0.59 visits per problem are too few"]),
        (
            [f"rollout.strategy={ROUNDS}", "loss.beta=0.1"],
            [f"strategy {ROUNDS}", "model │ yes │ loss.beta: 0.1"],
        ),
        (["reward.functions=[[d3s.reward:boxed, 0.5]]"], ["reward 0.5 x d3s.reward:boxed a failing call ends the run"]),
        (
            [*MASK, "schedule.n_init=null"],
            ["pi_old / pi_engine, token_mask", "without masked ones", "rollouts all"],
        ),
        (["loss.kind=gspo", "selector.token_scope=sample"], ["a selected one, for the sequence", "K of each response"]),
    ],
)
def test_rows_say_what_options_do(words, rows):
    text = " ".join(plan(*SMALL, *words, width=250).split())
    assert all(row in text for row in rows), text


# --- the screen ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", REAL, ids=lambda path: path.stem)
def test_real_models_fit_as_their_comments_state(file):
    config, text = load_config([file]), plan(file)
    assert config.model.name in text and "GB per process" in text
    assert "not on this machine: the run will download it from the hub" in " ".join(text.split())
    shape = SHIPPED[config.model.name]
    place = Placement() if "1.5b" in file.stem else Placement(8, True)
    engine = int(config.rollout.gpu_memory_utilization * 80 * GB)
    planned = choose_recomputation(config, shape, place, CHUNK, 80 * GB, 80 * GB)
    assert max(peaks(memory(planned, shape, place, CHUNK), engine, True, place.zero3).values()) < 0.9 * 80 * GB
    assert shape.parameters * 2 < engine
    alone = "fits" if "1.5b" in file.stem else "does not fit"
    assert verdicts(text) == [alone, "fits", "fits"]
    assert ("--config_file configs/accelerate/zero3_8gpu.yaml does" in " ".join(text.split())) == (alone != "fits")
    benchmarks = ["aime24", "aime25", "amc23", "gsm8k", "math500", "minerva", "olympiadbench"]
    assert config.eval.data == config.data.decontaminate == benchmarks
    assert config.selector.cross_share == ("llama" not in file.stem)
    assert not list(notes(config, place))


def test_lora_fits_7b_on_one_gpu(monkeypatch):
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


def test_launch_that_fits_is_named(monkeypatch):
    """A 32 B model fits eight GPUs of 80 GB only with offload; a model of 300 B fits neither."""
    for layers, named in ((60, "zero3_8gpu_offload.yaml"), (600, None)):
        shape = ModelShape(6144, layers, 48, 8, 128, 24_576, 152_064)
        monkeypatch.setattr("d3s.plan.dry_run.find_shape", lambda name, shape=shape: shape)
        sentences = re.findall(r"This launch does not fit; .* (\S+) does", " ".join(plan(REAL[-1]).split()))
        assert [Path(name).name for name in sentences] == ([named] if named else [])


def test_only_the_first_rank_prints(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert plan(*SMALL) == ""


def test_directory_with_a_run_is_noted_and_unchanged(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert "contains a run" in plan(*SMALL, f"train.output_dir={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
