"""The tokenizer made from pieces and scores merges as SentencePiece does."""

from types import SimpleNamespace

from research.gemma import read_tokenizer

PIECES = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *"\u2581abc",
    "ab",
    "bc",
    "abc",
]


def test_merges_follow_the_scores():
    """`bc` has a higher score than `ab`, so abc is a + bc, joined to a piece of its own; bytes stand for the rest."""
    control = {"<pad>", "<eos>", "<bos>", "<unk>"}
    kinds = [3 if piece in control else 6 if piece.startswith("<0x") else 1 for piece in PIECES]
    scores = [0.0] * (len(PIECES) - 3) + [-2.0, -1.0, -3.0]
    metadata = {"tokens": PIECES, "scores": scores, "token_type": kinds, "bos_token_id": 2, "eos_token_id": 1}
    file = SimpleNamespace(metadata={f"tokenizer.ggml.{key}": value for key, value in metadata.items()})
    tokenizer = read_tokenizer(file)
    tokens = {
        text: tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) for text in ("abc", "ab", "aab cb", "\u00e4")
    }
    assert tokens["abc"] == ["<bos>", "abc"] and tokens["ab"] == ["<bos>", "ab"]
    assert tokens["aab cb"] == ["<bos>", "a", "ab", "\u2581", "c", "b"]
    assert tokens["\u00e4"] == ["<bos>", "<0xC3>", "<0xA4>"]
    assert all(tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text for text in tokens)
