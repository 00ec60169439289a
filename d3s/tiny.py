"""The built-in base model: a byte-level tokenizer, a tiny Qwen2, a short supervised warm-up.

The warm-up shows the facts and the format of a task, not its skill; d3s/data/synthetic.py describes what is left out.
"""

import hashlib
import json
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from d3s.common import UserError, write_directory
from d3s.data.synthetic import TASKS
from d3s.packing import Batch, pack, supervised_batch
from d3s.policy import Policy
from d3s.pretrained import not_sharded
from d3s.shapes import TINY
from d3s.threads import choose_threads

BASES = Path("runs/base")
# Weights named like the base model's directory, which depends on the recipe. To make them again, delete the file and
# BASES, start a run, and copy its model.safetensors here.
SHIPPED = Path(__file__).parent / "bases"
EOS = "<|endoftext|>"
WARMUP = {"packed": True, "steps": 1400, "batch_size": 24, "muon_lr": 6e-3, "adamw_lr": 3e-3, "grad_clip": 1.0}


def parse_name(name: str) -> tuple[str, int | None] | None:
    """Parse `tiny:TASK@SEED` to (TASK, SEED) and `tiny:TASK` to (TASK, None); None for the name of another model.

    Raises: UserError for an unknown task or a seed that is not a number.
    """
    if not name.startswith("tiny:"):
        return None
    task, at, seed = name.removeprefix("tiny:").partition("@")
    if task not in TASKS or seed.isdecimal() != bool(at):
        names = " or ".join(f"tiny:{task}" for task in TASKS)
        raise UserError(f"model.name: got {name!r}, expected {names}, optionally followed by @SEED")
    return task, int(seed) if at else None


def find_model(name: str) -> str:
    """The directory or hub name to load: that of a built-in base model, created if missing, or `name` itself."""
    return name if parse_name(name) is None else str(ensure_base(name))


def ensure_base(name: str, steps: int = WARMUP["steps"], folder: Path = BASES) -> Path:
    """Return the directory of the base model `tiny:TASK` or `tiny:TASK@SEED`; create it if missing.

    The weights of two are part of the repository: a warm-up on another CPU ends with others, by rounding.

    Args:
        steps: of the warm-up; fewer give a weaker base.
        folder: where base models are kept; one with the same recipe is reused.
    """
    task, seed = parse_name(name)
    seed = seed or 0  # of the initial weights and the demonstrations
    recipe = WARMUP | {"steps": steps}
    sample = TASKS[task].demonstrations(8, seed)
    # the sample is hashed so that a base of other demonstrations is not reused
    fingerprint = hashlib.sha256(json.dumps([TINY, recipe, sample]).encode()).hexdigest()[:8]
    path = folder / f"{task}-seed{seed}-{fingerprint}"
    if not (path / "config.json").exists():
        shipped, tokenizer = SHIPPED / f"{path.name}.safetensors", byte_tokenizer()
        with write_directory(path, replace=False) as temporary:
            _random_model(seed, tokenizer).save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            if shipped.exists():
                shutil.copyfile(shipped, temporary / "model.safetensors")
            else:
                print(f"creating the built-in base model {name}: a minute or two, once", file=sys.stderr, flush=True)
                choose_threads(0)
                _warm_up(task, seed, recipe, tokenizer, temporary)
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


def _warm_up(task: str, seed: int, recipe: dict, tokenizer, folder: Path) -> None:
    """Train the model in `folder` on demonstrations. Muon for matrices, AdamW for the rest."""
    from rich.progress import track

    with not_sharded():
        policy = Policy(str(folder), max_length=TINY["max_position_embeddings"])
    policy.accumulate_in_place()
    matrices = [p for n, p in policy.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in policy.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        BatchedMuon(matrices, lr=recipe["muon_lr"]),
        torch.optim.AdamW(rest, lr=recipe["adamw_lr"], betas=(0.9, 0.98), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, recipe["steps"]) for o in optimizers]
    hidden = not sys.stdout.isatty()
    batches = _batches(task, seed, recipe, tokenizer)
    for step, batch in enumerate(track(batches, f"warm-up of tiny:{task}", transient=True, disable=hidden)):
        if hidden and step and step % max(1, len(batches) // 5) == 0:
            print(f"warm-up of tiny:{task}: {step} of {len(batches)} steps", file=sys.stderr, flush=True)
        supervised_update(policy, optimizers, recipe["grad_clip"], batch)
        for schedule in schedules:
            schedule.step()
    policy.lm.save_pretrained(folder)


def _random_model(seed: int, tokenizer):
    """The model before its warm-up. The random state of the process stays as it is."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokens = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, "pad_token_id": None}
        return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), **tokens, **TINY))


# L = -1/|S| sum_{t in S} log pi(y_t | x, y_<t),   S: the selected tokens of the batch
def supervised_update(
    policy: Policy, optimizers: Sequence[torch.optim.Optimizer], max_grad_norm: float, batch: Batch
) -> float:
    """Forward, backward and a step of every optimizer on a batch that fits into one pass; the loss."""
    lengths = batch.forward_lengths(batch.selected)
    micro = pack(batch, [i for i, length in enumerate(lengths) if length], lengths)
    logprobs, _, _ = policy(micro, batch.selected[micro.flat], temperature=1.0)
    loss = -logprobs.mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


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


def _batches(task: str, seed: int, recipe: dict, tokenizer) -> list[Batch]:
    """The batch of each step. Each has demonstrations of similar lengths; the order of the batches is shuffled."""
    pairs = TASKS[task].demonstrations(recipe["steps"] * recipe["batch_size"], seed)
    samples = [(tokenizer.encode(p), [*tokenizer.encode(r), tokenizer.eos_token_id]) for p, r in pairs]
    samples.sort(key=lambda sample: len(sample[0]) + len(sample[1]))
    size = recipe["batch_size"]
    batches = [supervised_batch(samples[start : start + size]) for start in range(0, len(samples), size)]
    random.Random(seed).shuffle(batches)
    return batches
