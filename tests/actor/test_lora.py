"""LoRA against direct arithmetic, peft's own merge, and full training of the same models."""

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

from d3s.actor import Actor
from d3s.actor.lora import check_targets
from d3s.checkpoint import export_model
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import LoraConfig
from d3s.launch import start_accelerator
from d3s.tiny import byte_tokenizer
from d3s.tracking.metrics import update_metrics
from tests.helpers.actors import assert_bitwise_equal, copy_parameters, make_actor, make_batch, update
from tests.helpers.models import save_random_model
from tests.helpers.rounding import assert_same_gradients, assert_same_values

RANK, ALPHA = 4, 24
LORA = [f"lora.rank={RANK}", f"lora.alpha={ALPHA}"]
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS = {  # Qwen2 comes with biases and a tied head; the others differ in layout
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 128},  # weights [in, out], fused query-key-value
    "phi3": SIZES | {"num_key_value_heads": 1, "pad_token_id": None},  # fused query-key-value and gate-up
}


@pytest.fixture(scope="module")
def models(tied_model, tmp_path_factory):
    """Directories of random models by architecture; biases and norms are random too."""
    paths = {"qwen2": tied_model}
    for kind, settings in KINDS.items():
        config = AutoConfig.for_model(kind, vocab_size=257, eos_token_id=0, initializer_range=0.15, **settings)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
        paths[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(paths[kind])
    return paths


@pytest.fixture(params=["qwen2", *KINDS])
def path(request, models):
    """Each architecture in turn."""
    return models[request.param]


def adapters(actor):
    """(A, B) of every adapted layer, by the layer's name."""
    pairs = {}
    for name, parameter in actor.lm.named_parameters():
        layer, adapter, part = name.partition(".lora_")
        if adapter:
            pairs.setdefault(layer, {})[part[0]] = parameter
    return {layer: (pair["A"], pair["B"]) for layer, pair in pairs.items()}


def moved(actor):
    """The actor with random B: at the start it is 0, which hides A."""
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, b in adapters(actor).values():
            b.copy_(torch.randn(b.shape, generator=g) * 0.05)
    return actor


def base_weights(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).state_dict()


def oriented(path, matrix):
    """[out, in] as this model stores it."""
    return matrix.T if "gpt2" in json.loads((path / "config.json").read_text())["model_type"] else matrix


def export(actor, folder):
    export_model(actor, byte_tokenizer(), folder / "model")
    return folder / "model"


# --- the first step ---------------------------------------------------------------------------------------------------


def test_first_step_equals_full_training(path):
    """The same log-probabilities, entropies and losses; the seed alone decides A."""
    full, torch_state = make_actor(path), torch.get_rng_state()
    lora = make_actor(path, *LORA)
    assert torch.equal(torch.get_rng_state(), torch_state)
    batch = make_batch()
    logprobs, entropies = full.compute_logprobs(batch)
    assert all(map(torch.equal, lora.compute_logprobs(batch), (logprobs, entropies)))
    batch.old_logprobs = logprobs + 0.3 * torch.randn(len(logprobs), generator=torch.Generator().manual_seed(1))
    metrics, expected = (update(actor, batch)[0] for actor in (lora, full))
    assert metrics["loss"] == expected["loss"] != 0
    assert metrics["mismatch/mean_abs"] == expected["mismatch/mean_abs"]
    torch.manual_seed(7)
    seeds = [make_actor(path, *LORA, f"train.seed={seed}") for seed in (0, 0, 3)]
    first, again, other = (next(iter(adapters(actor).values()))[0] for actor in seeds)
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_adapters_alone_are_trained(path):
    """Every linear layer except the head, in both directions; merging leaves the frozen weights alone, bit for bit."""
    actor, batch = make_actor(path, *LORA, "lora.rank=3"), make_batch()
    start, sums = copy_parameters(actor), []
    for _ in range(2):
        actor.update(batch, 1e-2, torch.Generator().manual_seed(0))
        sums += [sum(tensor.double().sum().item() for _, tensor in actor.weights()) for _ in range(2)]
    assert sums[0] == sums[1] != sums[2] == sums[3]
    trained = {name for name, p in actor.lm.named_parameters() if p.requires_grad}
    assert {name for name, p in actor.lm.named_parameters() if not torch.equal(p, start[name])} == trained
    linear = {"qwen2": 7, "gpt2": 4, "phi3": 4}[actor.lm.config.model_type]
    assert len(adapters(actor)) == 2 * linear and len(trained) == 4 * linear
    held = {id(p) for group in actor.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in actor.lm.parameters() if p.requires_grad}


# --- merged weights ---------------------------------------------------------------------------------------------------


def test_merged_weights_match_arithmetic(path, tmp_path):
    """W + alpha / rank B A in float64; peft's own merge of the exported adapter; the exported model."""
    actor = moved(make_actor(path, *LORA))
    merged, base = dict(actor.weights()), base_weights(path)
    assert merged.keys() == base.keys()  # tied weights under both names
    for name, weight in base.items():
        a, b = adapters(actor).get(name.removesuffix(".weight"), (None, None))
        if a is None or name.endswith(".bias"):
            assert torch.equal(merged[name], weight), name
        else:
            assert (merged[name] - weight).abs().max() > 0.01
            exact = weight.double() + ALPHA / RANK * oriented(path, b.detach().double() @ a.detach().double())
            assert_same_values(merged[name].double(), exact)
    exported = export(actor, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(exported)
    assert_bitwise_equal(loaded.state_dict(), merged)
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(path), tmp_path / "adapter").eval()
    ids = make_batch().prompts[3]
    with torch.no_grad():
        with_adapter, with_merged = (model(torch.tensor([ids])).logits for model in (peft, loaded))
    assert_same_values(with_adapter, with_merged)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [False, 1, True])
def test_gradients_project_the_full_gradient(device, path, checkpointing, tmp_path):
    """dA = s B^T dW and dB = s dW A^T, with dW of full training at the merged weights and s = alpha / rank."""
    actor, batch = moved(make_actor(path, *LORA, f"model.gradient_checkpointing={checkpointing}")), make_batch()
    _, [full] = update(make_actor(export(actor, tmp_path)), batch, learning_rate=0.0)
    _, [got] = update(actor, batch, learning_rate=0.0)
    expected = {}
    for name, (a, b) in adapters(actor).items():
        gradient = ALPHA / RANK * oriented(path, full[f"{name}.weight"])
        expected[f"{name}.lora_A.default.weight"] = b.detach().cpu().T @ gradient
        expected[f"{name}.lora_B.default.weight"] = gradient @ a.detach().cpu().T
    assert_same_gradients(got, expected)


# --- precision, reference, state --------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [False, True])
def test_half_precision_keeps_adapters_in_float32(device, gqa_model, checkpointing):
    """The frozen model is bfloat16, and so are the merged weights, which are rounded once.

    The gradients are those of float32 up to a few percent, as all products are rounded.
    """
    actors, gradients = [], []
    for dtype in ("float32", "bfloat16"):
        overrides = [*LORA, f"model.dtype={dtype}", f"model.gradient_checkpointing={checkpointing}"]
        config = load_config([], [*overrides, "rollout.max_completion_length=20", "optim.max_grad_norm=1e9"])
        actors.append(moved(Actor(str(gqa_model), config, start_accelerator(config), 64)))
        gradients += update(actors[-1], make_batch(), 1e-3)[1]
    for name, gradient in gradients[0].items():
        assert gradients[1][name].dtype == torch.float32
        assert 0 < (gradients[1][name] - gradient).norm() < 0.1 * gradient.norm(), name
    merged, base = dict(actors[1].weights()), base_weights(gqa_model)
    for layer, (a, b) in adapters(actors[1]).items():
        frozen = base[f"{layer}.weight"].bfloat16().to(a.device)
        expected = (frozen.float() + ALPHA / RANK * (b @ a)).bfloat16()
        assert torch.equal(merged[f"{layer}.weight"], expected) and merged[f"{layer}.weight"].dtype == torch.bfloat16


def test_reference_is_the_model_without_adapter(device, path):
    """As a loaded reference, after updates too; and no second copy of the weights."""
    overrides = ["loss.beta=0.1", "loss.kl_estimator=k2"]
    actor, batch, full = moved(make_actor(path, *LORA, *overrides)), make_batch(), make_actor(path, *overrides)
    expected, _ = full.compute_logprobs(batch, reference=True)
    for _ in range(2):
        batch.ref_logprobs, _ = actor.compute_logprobs(batch, reference=True)
        assert torch.equal(batch.ref_logprobs, expected)
        metrics = update_metrics(actor.update(batch, 1e-2, torch.Generator().manual_seed(0)))
        assert metrics["policy/kl_ref"] > 0
    assert actor.reference is None and all(a.requires_grad for pair in adapters(actor).values() for a in pair)
    assert not torch.equal(actor.compute_logprobs(batch)[0], expected)


def test_saved_adapter_continues_bitwise(path, tmp_path):
    """The files hold adapters and their moments alone."""
    batch, actor = make_batch(), make_actor(path, *LORA)
    actor.update(batch, 1e-2, torch.Generator().manual_seed(0))
    actor.save(tmp_path)
    trained = sum(p.numel() for pair in adapters(actor).values() for p in pair)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert 12 * trained < size < 12 * trained + 60_000  # names and headers
    again = make_actor(path, *LORA, "train.seed=9")
    again.load(tmp_path, 1)
    for one in (actor, again):
        one.update(batch, 1e-2, torch.Generator().manual_seed(0))
    assert_bitwise_equal(dict(again.weights()), dict(actor.weights()))


def test_adapter_of_another_model_is_refused(tied_model, tmp_path):
    make_actor(tied_model, *LORA).save(tmp_path)
    other = save_random_model(tmp_path / "other", seed=3)
    for model, overrides, error, message in (
        (other, LORA, UserError, "the adapter belongs to other frozen weights"),
        (tied_model, [*LORA, "lora.targets=[q_proj]"], ValueError, "the trained layers are others"),
        (tied_model, [], ValueError, "the trained layers are others"),  # a sentence in load_checkpoint
    ):
        with pytest.raises(error, match=message):
            make_actor(model, *overrides).load(tmp_path, 1)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_targets_select_layers(gqa_model):
    for target in ("lm_head", "proj"):
        with pytest.raises(UserError, match=f"^lora.targets: got '{target}', expected linear layers of .*q_proj"):
            check_targets(str(gqa_model), LoraConfig(rank=2, targets=["v_proj", target]))
    check_targets(str(gqa_model), LoraConfig(rank=None, targets=["proj"]))
    actor = make_actor(gqa_model, *LORA, "lora.targets=[q_proj,layers.1.mlp.up_proj]")
    names = {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"}
    assert adapters(actor).keys() == names


def test_experts_need_named_targets(tmp_path):
    """The weights of experts are one tensor, not linear layers: all-linear would silently leave them out."""
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "num_key_value_heads": 2, "vocab_size": 257}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **SIZES, **experts)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"'all-linear' would never train model\.layers\.0\.mlp\..*; name the layers"):
        check_targets(str(tmp_path), LoraConfig(rank=2))
    assert len(adapters(make_actor(tmp_path, *LORA, "lora.targets=[q_proj,v_proj]"))) == 4
