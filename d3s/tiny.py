"""The built-in base model: a byte-level tokenizer, a tiny Qwen2, a short supervised warm-up.

The warm-up shows the facts and the format of a task, not its skill; d3s/data/synthetic.py describes what is left out.
"""

import hashlib
import json
import random
import sys
from pathlib import Path

import torch
from torch import Tensor

from d3s.common import UserError, write_directory
from d3s.data.synthetic import TASKS

BASES = Path("runs/base")
EOS = "<|endoftext|>"
MODEL = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
WARMUP = {"steps": 1400, "batch_size": 24, "muon_lr": 6e-3, "adamw_lr": 3e-3, "grad_clip": 1.0}


def parse_name(name: str) -> tuple[str, int | None] | None:
    """Parse `tiny:TASK@SEED` to (TASK, SEED) and `tiny:TASK` to (TASK, None); None for the name of another model.

    Raises: UserError for an unknown task or a seed that is not a number.
    """
    if not name.startswith("tiny:"):
        return None
    task, at, seed = name.removeprefix("tiny:").partition("@")
    if task not in TASKS or seed.isdigit() != bool(at):
        names = " or ".join(f"tiny:{task}" for task in TASKS)
        raise UserError(f"model.name: got {name!r}, expected {names}, optionally followed by @SEED")
    return task, int(seed) if at else None


def find_model(name: str) -> str:
    """The directory or hub name to load: that of a built-in base model, created if missing, or `name` itself."""
    return name if parse_name(name) is None else str(ensure_base(name))


def ensure_base(name: str, seed: int = 0, steps: int | None = None, folder: Path = BASES) -> Path:
    """Return the directory of the base model `tiny:TASK` or `tiny:TASK@SEED`; create it if missing.

    Args:
        seed: of the initial weights and the demonstrations, if the name has none.
        steps: of the warm-up; fewer give a weaker base.
        folder: where base models are kept; one with the same recipe is reused.
    """
    parsed = parse_name(name)
    if parsed is None:
        raise UserError(f"model.name: got {name!r}, expected tiny:TASK")
    task, name_seed = parsed
    seed = seed if name_seed is None else name_seed
    recipe = {**WARMUP, "steps": WARMUP["steps"] if steps is None else steps}
    sample = TASKS[task].demonstrations(8, seed)
    # the sample is hashed so that a base of other demonstrations is not reused
    fingerprint = hashlib.sha256(json.dumps([MODEL, recipe, sample]).encode()).hexdigest()[:8]
    path = folder / f"{task}-seed{seed}-{fingerprint}"
    if not (path / "config.json").exists():
        print(f"creating the built-in base model {name}: about a minute, once", file=sys.stderr, flush=True)
        model = _warm_up(task, seed, recipe)
        with write_directory(path, replace=False) as temporary:
            model.save_pretrained(temporary)
            byte_tokenizer().save_pretrained(temporary)
    return path


def byte_tokenizer():
    """A tokenizer with one token per byte and an end-of-sequence token: every text round-trips.

    It is byte-level BPE without merges, because transformers loads every tokenizer of a Qwen2 model as Qwen2's, whose
    pre-tokenizer drops what a vocabulary of characters needs.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate([EOS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS)


def _warm_up(task: str, seed: int, recipe: dict):
    """Supervised training on demonstrations, with the loss on responses only. Muon for matrices, AdamW for the rest."""
    from rich.progress import track
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = byte_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = Qwen2Config(
            vocab_size=len(tokenizer),
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            pad_token_id=None,
            **MODEL,
        )
        model = Qwen2ForCausalLM(config)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        BatchedMuon(matrices, lr=recipe["muon_lr"]),
        torch.optim.AdamW(rest, lr=recipe["adamw_lr"], betas=(0.9, 0.98), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, recipe["steps"]) for o in optimizers]
    batches = _batches(task, seed, recipe, tokenizer)
    hidden = not sys.stdout.isatty()
    for ids, labels in track(batches, description=f"warm-up of tiny:{task}", transient=True, disable=hidden):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["grad_clip"])
        for step in (*optimizers, *schedules):
            step.step()
        model.zero_grad(set_to_none=True)
    return model


# M <- 0.95 M + G;  W <- W - lr sqrt(max(1, rows / columns)) NewtonSchulz5(G + 0.95 M)
# Muon, K. Jordan et al. 2024. torch.optim.Muon orthogonalizes matrix by matrix in bfloat16, which on a CPU takes as
# long as the forward and backward pass of this model; stacked matrices of equal shape in float32 take a third of that.
class BatchedMuon(torch.optim.Optimizer):
    """Muon for the matrices of a tiny model on a CPU."""

    def __init__(self, matrices: list[Tensor], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})
        self._shapes = {tuple(p.shape): [q for q in matrices if q.shape == p.shape] for p in matrices}

    @torch.no_grad()
    def step(self) -> None:
        """Update every matrix."""
        lr = self.param_groups[0]["lr"]
        for shape, parameters in self._shapes.items():
            gradients = torch.stack([p.grad for p in parameters])
            momentum = self.state[parameters[0]].setdefault("momentum", torch.zeros_like(gradients))
            momentum.mul_(0.95).add_(gradients)
            update = orthogonalize(gradients + 0.95 * momentum) * max(1, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(parameters, update):
                parameter.sub_(change, alpha=lr)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Move the singular values of each of the matrices [N, rows, columns] close to 1, by five Newton-Schulz steps."""
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    x = x.mT if x.shape[1] > x.shape[2] else x
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if matrices.shape[1] > matrices.shape[2] else x


def _batches(task: str, seed: int, recipe: dict, tokenizer) -> list[tuple[Tensor, Tensor]]:
    """(input_ids, labels) of each step, [batch, length]. Each batch has similar lengths; their order is shuffled."""
    pairs = TASKS[task].demonstrations(recipe["steps"] * recipe["batch_size"], seed)
    encoded = [(tokenizer.encode(p), [*tokenizer.encode(r), tokenizer.eos_token_id]) for p, r in pairs]
    encoded.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
    batches = []
    for start in range(0, len(encoded), recipe["batch_size"]):
        rows = encoded[start : start + recipe["batch_size"]]
        width = max(len(p) + len(r) for p, r in rows)
        ids = torch.tensor([p + r + [0] * (width - len(p) - len(r)) for p, r in rows])
        labels = torch.tensor([[-100] * len(p) + r + [-100] * (width - len(p) - len(r)) for p, r in rows])
        batches.append((ids, labels))
    random.Random(seed).shuffle(batches)
    return batches
