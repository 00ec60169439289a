"""What a run chooses for the memory of its machine: recomputed layers, micro-batch, KV cache."""

import pytest
from accelerate import Accelerator

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.fitting import choose_recomputation, fit_cpu, fit_recomputation, launched, require_states
from d3s.flops import ModelShape
from d3s.memory import FITS, GB, Placement, cache_bytes, engine_bytes, memory, peaks
from d3s.policy import CHUNK_ELEMENTS
from d3s.shapes import SHIPPED
from tests.helpers.configs import ROOT

QWEN_1B = SHIPPED["Qwen/Qwen2.5-Math-1.5B"]
CHUNK = CHUNK_ELEMENTS["cuda"]
SHAPE = ModelShape(1024, 24, 16, 16, 64, 2816, 32_000)  # 0.4 billion parameters


def test_placement_is_read_from_the_launcher(monkeypatch):
    assert launched() == Placement()
    for name, value, *place in (
        ("WORLD_SIZE", "16", 16),
        ("ACCELERATE_USE_DEEPSPEED", "true", 16),
        ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3", 16, True),
        ("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu", 16, True, True),
        ("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "cpu", 16, True, True, True),
        ("LOCAL_WORLD_SIZE", "8", 16, True, True, True, 8),
        ("LOCAL_WORLD_SIZE", "16", 16, True, True, True),
        ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2", 16),
    ):
        monkeypatch.setenv(name, value)
        assert launched() == Placement(*place)


def recomputation(
    value: str, shape: ModelShape | None = QWEN_1B, free: int = 80 * GB, engine: str = "vllm"
) -> bool | int:
    """What the plan of Qwen2.5-Math-1.5B makes of model.gradient_checkpointing; nothing is free on a CPU."""
    options = [f"model.gradient_checkpointing={value}", f"rollout.engine={engine}", "rollout.seeds=request"]
    config = load_config([ROOT / "configs/qwen2.5-math-1.5b.yaml"], options)
    return choose_recomputation(config, shape, Placement(), CHUNK, free, free).model.gradient_checkpointing


def test_auto_recomputes_as_few_layers_as_fit():
    """38.2 GB if all 28 layers are; of 2^15 tokens a layer saves 3.72 GB, its input takes 0.19 GB.

    k layers that are not recomputed fit in 0.9 x 80 GB if 3.72 (k - 1) - 0.19 k <= 33.8: at most 10.
    """
    assert recomputation("auto") == 28 - 10
    assert recomputation("auto", free=140 * GB) == 28 - 25
    assert (recomputation("auto", free=200 * GB), recomputation("auto", free=40 * GB)) == (0, 28)
    assert recomputation("auto", engine="transformers") == 28 - 9  # whose weights, 2.9 GB, stay
    assert recomputation("auto", shape=None) is True and recomputation("auto", free=0) is False
    assert [recomputation(value) for value in ("true", "0", "28")] == [True, 0, 28]
    with pytest.raises(UserError, match=r"got 29, expected at most the 28 layers of Qwen/Qwen2\.5-Math-1\.5B"):
        recomputation("29")


def small_cpu(*words):
    return load_config([], ["rollout.max_completion_length=256", "data.max_prompt_length=256", *words])


@pytest.mark.parametrize("free_gb", [64, 24, 16, 12, 9])
def test_step_on_a_cpu_fits_what_is_free(free_gb):
    """The micro-batch is halved as often as needed, and the cache has the rest."""
    config, one = small_cpu(), Placement()
    fitted = fit_cpu(config, SHAPE, one, CHUNK, free_gb * GB)
    tokens, cache = fitted.train.max_tokens_per_microbatch, int(fitted.rollout.kv_cache_gb * GB)

    def peak(tokens, cache):
        words = [f"train.max_tokens_per_microbatch={tokens}", f"rollout.kv_cache_gb={cache / GB}"]
        sized = small_cpu(*words)
        return max(peaks(memory(sized, SHAPE, one, CHUNK), engine_bytes(sized, SHAPE, 0), False, False).values())

    limit = FITS * free_gb * GB
    assert peak(tokens, cache) <= limit or (tokens, cache) == (511, GB // 2)
    assert tokens == 16384 or peak(2 * tokens, GB // 2) > limit
    all_responses = 256 * 512 * cache_bytes(SHAPE, 4)
    assert cache == all_responses or abs(peak(tokens, cache) - limit) < 2**12 or cache == GB // 2


def test_set_sizes_are_kept_on_a_cpu():
    config = small_cpu("train.max_tokens_per_microbatch=9000", "rollout.kv_cache_gb=2")
    fitted = fit_cpu(config, SHAPE, Placement(), CHUNK, 1)
    assert (fitted.train.max_tokens_per_microbatch, fitted.rollout.kv_cache_gb) == (9000, 2)


@pytest.mark.parametrize("free_gb", [0.1, 40])
def test_step_that_may_not_fit_is_said_on_a_cpu(gqa_model, monkeypatch, capsys, free_gb):
    monkeypatch.setattr("d3s.fitting.free_memory", lambda: int(free_gb * GB))
    lengths = ["train.max_tokens_per_microbatch=65536", "rollout.max_completion_length=32000"]
    fit_recomputation(load_config([], [*lengths, "rollout.engine=transformers"]), str(gqa_model), Accelerator(cpu=True))
    said = capsys.readouterr().out
    assert ("memory: a step may need" in said and "0.1 GB are free" in said) if free_gb < 1 else said == ""


def test_states_that_cannot_fit_are_refused():
    require_states(small_cpu(), SHAPE, Placement(), 16 * SHAPE.parameters)
    with pytest.raises(UserError, match=r"^model.name: got weights, gradients .* GB of free memory; use"):
        require_states(small_cpu(), SHAPE, Placement(), 16 * SHAPE.parameters - 1)


@pytest.mark.parametrize(("free", "layers"), [(0, 2), (85 * 2**30, 1)])
def test_ranks_recompute_the_most_that_any_needs(pretended, gqa_model, monkeypatch, free, layers):
    """Another rank recomputes one of two layers."""
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (free, 85 * 2**30))
    monkeypatch.setattr("d3s.fitting.all_gather_objects", lambda items, _: [*items, 1])
    fitted = fit_recomputation(load_config([], ["model.gradient_checkpointing=auto"]), str(gqa_model), Accelerator())
    assert fitted.model.gradient_checkpointing == layers
