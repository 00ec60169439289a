"""Built-in base models with a large vocabulary, whose head is most of the work.

A model of 0.25 million parameters with 257 tokens spends 5 % of its work in the head; one with 32,768 tokens spends
90 %. The added tokens stand for the many that real vocabularies have and a mathematical text never shows.
"""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from d3s.common import write_directory
from d3s.data.synthetic import TASKS
from d3s.tiny import ensure_base, parse_name

SUFFIX = "+32k"  # of a base model's name: tiny:precedence+32k
VOCABULARY = 32_768
DEMONSTRATIONS = 512  # whose positions the added tokens are kept away from
LARGEST = 1e-6  # probability of all added tokens together, at any of these positions


def ensure(name: str) -> Path:
    """The directory of a base model, created if missing; `name` may end in SUFFIX."""
    plain = ensure_base(name.removesuffix(SUFFIX))
    if not name.endswith(SUFFIX):
        return plain
    source = Path(__file__).read_bytes()
    folder = plain.with_name(f"{plain.name}-padded-{hashlib.sha256(source).hexdigest()[:8]}")
    if not folder.exists():
        _pad(plain, folder, name.removesuffix(SUFFIX))
    return folder


def _pad(plain: Path, folder: Path, name: str) -> None:
    """Write the model at `plain` with VOCABULARY tokens, of which the added ones are never sampled."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(plain, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(plain)
    hidden, normalizers = _positions(model, tokenizer, name)
    known = model.get_input_embeddings().num_embeddings
    added = unlikely_row(hidden, normalizers, VOCABULARY - known)
    model.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    model.get_input_embeddings().weight.data[known:] = added
    model.tie_weights()
    with write_directory(folder, replace=False) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


@torch.no_grad()
def _positions(model, tokenizer, name: str) -> tuple[Tensor, Tensor]:
    """Last hidden states [T, D] and log-normalizers [T] at the positions that predict demonstrations' responses."""
    task, _ = parse_name(name)
    states, normalizers = [], []
    for prompt, response in TASKS[task].demonstrations(DEMONSTRATIONS, seed=1):
        prompt_ids, ids = tokenizer.encode(prompt), tokenizer.encode(prompt + response)
        hidden = model.model(torch.tensor([ids])).last_hidden_state[0, len(prompt_ids) - 1 :]
        states.append(hidden)
        normalizers.append(model.lm_head(hidden).logsumexp(-1))
    return torch.cat(states), torch.cat(normalizers)


# minimize over r the largest log( V exp(r h_t) / Z_t ); log-sum-exp over t bounds the largest from above
def unlikely_row(hidden: Tensor, normalizers: Tensor, count: int) -> Tensor:
    """A row of the head [D] such that `count` tokens that share it have a probability of at most LARGEST together.

    Args:
        hidden: [T, D] inputs of the head.
        normalizers: [T] log-sum-exp of the other tokens' logits.

    Raises: ValueError if no such row is found.
    """
    row = torch.zeros(hidden.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([row], lr=0.05)
    offset = torch.tensor(count).log()
    for _ in range(2000):
        logs = hidden @ row + offset - normalizers
        if logs.max().exp() <= LARGEST:
            return row.detach()
        optimizer.zero_grad()
        logs.logsumexp(0).backward()
        optimizer.step()
    raise ValueError(f"{count} added tokens keep a probability of {logs.max().exp():.1e}, expected {LARGEST}")
