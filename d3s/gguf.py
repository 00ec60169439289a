"""Read a GGUF file of the Llama architecture: its metadata, its tensors as float32, its tokenizer.

GGUF, version 3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Only what such files have
that are quantized to Q4_1 and Q8_0 is read; anything else is refused.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from d3s.common import UserError

SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d")  # struct formats by type number
STRING, ARRAY = 8, 9
ALIGNMENT = 32
BLOCK = 32  # weights of a quantized block
# type number -> (weights, fields) of a block
F32, Q4_1, Q8_0 = 0, 3, 8
BLOCKS = {
    F32: (1, np.dtype([("q", "<f4")])),
    Q4_1: (BLOCK, np.dtype([("scale", "<f2"), ("least", "<f2"), ("q", "u1", BLOCK // 2)])),
    Q8_0: (BLOCK, np.dtype([("scale", "<f2"), ("q", "i1", BLOCK)])),
}
CONTROL = 3  # a token's type: never part of a text
TENSOR_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufFile:
    """The contents of a GGUF file: `metadata` by key; `tensors` decodes one tensor after the other."""

    def __init__(self, content: bytes, name: str) -> None:
        """Read the metadata. Raises UserError if `content` is no GGUF file of version 3 that this class can read."""
        self._content, self._at, self.name = content, 0, name
        if content[:4] != b"GGUF" or len(content) < 24:
            raise UserError(f"{name}: got {content[:4]!r}, expected a GGUF file")
        _, version, tensor_count, entry_count = (self._scalar(kind) for kind in ("I", "I", "Q", "Q"))
        if version != 3:
            raise UserError(f"{name}: got GGUF version {version}, expected 3")
        self.metadata = {self._string(): self._value(self._scalar("I")) for _ in range(entry_count)}
        self._index = [self._tensor_entry() for _ in range(tensor_count)]
        self._data = -(-self._at // ALIGNMENT) * ALIGNMENT

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, float32 tensor) in the file's order."""
        for name, shape, kind, offset in self._index:
            if kind not in BLOCKS:
                raise UserError(f"{self.name}: tensor {name}: got type {kind}, expected one of {sorted(BLOCKS)}")
            size, fields = BLOCKS[kind]
            count = int(np.prod(shape)) // size
            blocks = np.frombuffer(self._content, fields, count, self._data + offset)
            yield name, torch.from_numpy(_decode(blocks, kind).reshape(shape[::-1]))

    def _tensor_entry(self) -> tuple[str, list[int], int, int]:
        name, dimensions = self._string(), self._scalar("I")
        shape = list(self._scalars("Q", dimensions))  # the contiguous dimension first
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _scalars(self, kind: str, count: int) -> tuple:
        form = f"<{count}{kind}"
        values = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return values

    def _scalar(self, kind: str) -> Any:
        return self._scalars(kind, 1)[0]

    def _string(self) -> str:
        return self._scalars("s", self._scalar("Q"))[0].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(SCALARS[kind])
        inner, count = self._scalar("I"), self._scalar("Q")
        if inner in (STRING, ARRAY):
            return [self._value(inner) for _ in range(count)]
        return list(self._scalars(SCALARS[inner], count))


# Q8_0: w = scale q.  Q4_1: w = scale q + least, where byte i of a block holds weight i in its low half and weight
# i + 16 in its high half.
def _decode(blocks: np.ndarray, kind: int) -> np.ndarray:
    q = blocks["q"]
    if kind == F32:
        return q.copy()
    scale = blocks["scale"].astype(np.float32)[:, None]
    if kind == Q8_0:
        return scale * q
    return scale * np.concatenate([q & 15, q >> 4], axis=1) + blocks["least"].astype(np.float32)[:, None]


def llama_config(file: GgufFile) -> Any:
    """The transformers configuration of a Llama model. Raises UserError for another architecture."""
    from transformers import LlamaConfig

    metadata = file.metadata
    if metadata.get("general.architecture") != "llama":
        raise UserError(f"{file.name}: got {metadata.get('general.architecture')!r}, expected the architecture 'llama'")
    own = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    return LlamaConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=own["embedding_length"],
        intermediate_size=own["feed_forward_length"],
        num_hidden_layers=own["block_count"],
        num_attention_heads=own["attention.head_count"],
        num_key_value_heads=own["attention.head_count_kv"],
        max_position_embeddings=own["context_length"],
        rms_norm_eps=own["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": own["rope.freq_base"]},
        tie_word_embeddings=all(name != "output.weight" for name, *_ in file._index),
        eos_token_id=metadata["tokenizer.ggml.eos_token_id"],
        bos_token_id=metadata["tokenizer.ggml.bos_token_id"],
        pad_token_id=metadata["tokenizer.ggml.unknown_token_id"],
    )


def llama_weights(file: GgufFile, config: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors under the names of transformers."""
    trunk = "model."
    top = {"token_embd": f"{trunk}embed_tokens", "output_norm": f"{trunk}norm", "output": "lm_head"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, tensor in file.tensors():
        stem, _, suffix = name.rpartition(".")
        _, layer, part = stem.split(".") if stem.startswith("blk.") else ("", "", "")
        if part in heads:  # GGUF rotates neighboring rows of a head, transformers those half a head apart
            rows = tensor.unflatten(0, (heads[part], -1, 2))
            tensor = rows.transpose(1, 2).flatten(0, 2)
        target = f"{trunk}layers.{layer}.{TENSOR_NAMES[part]}" if part else top[stem]
        yield f"{target}.{suffix}", tensor.contiguous()


def read_bpe_tokenizer(file: GgufFile) -> Any:
    """The byte-level BPE tokenizer, every digit a piece of its own, with the chat template of the file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ("model", "pre", "tokens", "merges", "token_type", "eos_token_id", "unknown_token_id")
    model, pre, tokens, merges, types, eos, pad = (file.metadata[f"tokenizer.ggml.{name}"] for name in names)
    if (model, pre) != ("gpt2", "smollm"):
        raise UserError(f"{file.name}: got the tokenizer {model}/{pre}, expected gpt2/smollm")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=tokens[eos],
        pad_token=tokens[pad],
        chat_template=file.metadata["tokenizer.chat_template"],
    )
