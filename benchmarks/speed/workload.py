"""Random models, rollouts and rewards of a chosen size, as work to measure."""

import argparse
import zlib
from pathlib import Path


def save_model(
    path: Path, vocabulary: int, hidden: int = 256, layers: int = 4, intermediate: int | None = None, seed: int = 0
) -> Path:
    """Save a Qwen2 with random weights, a tied head and head size 64 or less, and a byte tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from d3s.tiny import byte_tokenizer

    heads = max(1, hidden // 64)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate or 4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        initializer_range=0.05,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def add_model_arguments(parser: argparse.ArgumentParser, layers: int = 4) -> None:
    """Options for a random model of a size, or for a model's directory."""
    parser.add_argument("--model", type=Path, help="a model's directory instead of a random model")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=layers)


def place_model(path: Path, vocabulary: int, args: argparse.Namespace) -> Path:
    """Put the model of `add_model_arguments` at `path`, and return it."""
    if args.model is None:
        return save_model(path, vocabulary, args.hidden, args.layers)
    path.symlink_to(args.model.resolve())
    return path


def model_label(args: argparse.Namespace, vocabulary: int | None = None) -> str:
    """The model of `add_model_arguments` in a title."""
    size = f"{args.layers} layers x {args.hidden}" + (f", vocabulary {vocabulary:,}" if vocabulary else "")
    return args.model.name if args.model else size


def results_name(benchmark: str, args: argparse.Namespace) -> str:
    """The name of the published results; those of a model's directory are their own."""
    return f"{benchmark}-{args.model.name}" if args.model else benchmark


def save_wide_tokenizer(path: Path, vocabulary: int) -> None:
    """Save a tokenizer that decodes as many tokens: the bytes, and words of letters. It encodes bytes only."""
    from itertools import islice, product
    from string import ascii_lowercase

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from d3s.tiny import EOS

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ("\u0120" + "".join(letters) for letters in product(ascii_lowercase, repeat=4))  # a space and four letters
    symbols = [EOS, *alphabet, *islice(words, vocabulary - len(alphabet) - 1)]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS).save_pretrained(path)


def make_rollouts(
    vocabulary: int, prompts: int, group: int, prompt_tokens: int, response_tokens: int, ragged: bool, seed: int = 0
) -> dict[str, list]:
    """Random rollouts as plain lists, `group` per prompt: token ids, rewards 0 or 1, entropies, log-probabilities.

    Entropies are random numbers, because those of a random model distinguish no tokens. With `ragged`, lengths vary
    between half of the given length and the full length; otherwise all are equal and no side pays for padding.
    """
    import random

    rng = random.Random(seed)

    def ids(longest: int) -> list[int]:
        length = rng.randint(longest // 2, longest) if ragged else longest
        return [rng.randrange(1, vocabulary) for _ in range(length)]

    prompt_ids = [ids(prompt_tokens) for _ in range(prompts)]
    responses = [ids(response_tokens) for _ in range(prompts * group)]
    return {
        "prompts": [prompt for prompt in prompt_ids for _ in range(group)],
        "responses": responses,
        "rewards": [float(i % group == 0 or (rng.random() < 0.5 and i % group > 1)) for i in range(len(responses))],
        "entropies": [[rng.random() for _ in response] for response in responses],
        "logprobs": [[-rng.random() for _ in response] for response in responses],
    }


def coin(response: str, answer: str = "") -> float:
    """A reward that is 1 for about half of all texts, so that groups of random responses have unequal rewards."""
    return float(zlib.crc32(response.encode()) % 2)
