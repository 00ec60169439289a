"""A random model whose samples are texts of bytes, with weights that neither copy tokens nor amplify rounding."""

import gc
from pathlib import Path

import torch

from benchmarks.speed.gpu_sides import random_model
from d3s.tiny import byte_tokenizer

SHAPE = {"cuda": "0.5B", "cpu": "tiny"}
DTYPE = {"cuda": "bfloat16", "cpu": "float32"}  # model.dtype; vLLM's CPU kernels are compared in float32
BYTES, OTHERS = 4.0, 0.3  # standard deviations of the logits of bytes, and of the rest of the vocabulary
RESIDUAL = 4.0  # of layers to the token's own embedding, which is also the head's: else a token predicts itself


@torch.no_grad()
def save_random(folder: Path, device: str) -> str:
    """Save a model of the shape of this device with a byte tokenizer, and return its path.

    Matrices keep the size of what they multiply, so that attention is not peaked, which would amplify rounding, and the
    layers, not the token's own embedding, decide the next token. Some tokens are likely, so that greedy tokens are
    stable and entropies differ.
    """
    model, tokenizer = random_model(SHAPE[device], "sdpa"), byte_tokenizer()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            gain = RESIDUAL if name.endswith(("o_proj", "down_proj")) else 1.0
            module.weight.normal_(std=gain * module.in_features**-0.5)
    embedding = model.get_input_embeddings().weight  # tied
    scale = torch.full((len(embedding), 1), OTHERS, device=embedding.device)
    scale[: len(tokenizer)] = BYTES
    embedding.normal_().mul_(scale * model.config.hidden_size**-0.5)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def free_memory() -> None:
    """Leave the card's memory to the processes that load what this one has saved."""
    gc.collect()
    torch.cuda.empty_cache()


def random_prompts(lengths: list[int]) -> list[list[int]]:
    """Random bytes as token ids, one prompt of each length."""
    g = torch.Generator().manual_seed(1)
    return [torch.randint(1, 257, (length,), generator=g).tolist() for length in lengths]
