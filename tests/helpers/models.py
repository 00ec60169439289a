"""Tiny models with random weights, saved as transformers and vLLM load them."""

from pathlib import Path


def save_random_model(path: Path, seed: int, **changes) -> Path:
    """Save a two-layer Qwen2 over the byte vocabulary, with weights large enough to make some tokens likely."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from d3s.tiny import byte_tokenizer

    tokenizer = byte_tokenizer()
    settings = {
        "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "tie_word_embeddings": True, "initializer_range": 0.15, "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(Qwen2Config(**settings | changes))
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # biases start at 0, which would hide a lost bias
                torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
