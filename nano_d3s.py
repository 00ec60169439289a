"""D3S (arXiv 2509.22115) on GRPO in one file: torch and transformers, one process, one model for sampling and training.

    python nano_d3s.py                                     # the demo, in a clone of d3s: precedence
    python nano_d3s.py --n 4 4 --k 1 1                     # GRPO by the mean over tokens: all rollouts, all tokens
    python nano_d3s.py --model DIR --data problems.jsonl   # your model, lines {"problem": ..., "answer": ...}

A step: N and K by the schedule; G responses to each of B problems with the entropy of every token; rewards; advantages;
the N x B rollouts of the largest variance of the advantage; the fraction K of their tokens of the largest |A| x H; and
an update that runs those tokens alone. A test trains this file and the trainer on the same responses and finds the
same selections and, up to rounding, the same weights.

What train.py has and this file leaves out: vLLM, several ranks, ZeRO-3, LoRA, half precision, the head in chunks,
micro-batches, the sympy verifier in worker processes, GSPO and other losses, KL penalty, importance correction,
checkpoints and resuming, prompt templates, reports, checks of options.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

# --- the method: schedule, advantages, selection, loss ----------------------------------------------------------------


# [N, K] = (1 - p) [N_init, K_init] + p [N_final, K_final];  N even, as half of the kept rollouts should be right
def schedule(step: int, steps: int, n: tuple[int, int], k: tuple[float, float]) -> tuple[int, float]:
    """N, rollouts kept per problem, and K, the fraction of their tokens that is trained, in this step (0-based)."""
    p = step / (steps - 1) if steps > 1 else 1.0
    exact = n[0] + p * (n[1] - n[0])
    low, high = sorted(n)
    even = min(max(2 * math.floor(exact / 2 + 0.5), low + low % 2), high - high % 2)
    return {0.0: n[0], 1.0: n[1]}.get(p, n[0] if low == high else even), k[0] + p * (k[1] - k[0])


# A = (R - mean) / (std + 1e-4) over the G responses of a problem
def group_advantages(rewards: Tensor) -> Tensor:
    """[B, G] -> [B, G]; exactly 0 where all responses of a problem have the same reward."""
    exact = rewards.double()
    advantages = (exact - exact.mean(1, keepdim=True)) / (exact.std(1, keepdim=True) + 1e-4)
    return advantages.masked_fill((rewards == rewards[:, :1]).all(1, keepdim=True), 0.0).float()


# S = argmax_{|S| = N B} Var(A_S): for some j the j largest and the N B - j smallest advantages, so all j are tried
def select_rollouts(advantages: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Mark N x B rollouts of the pooled batch [B, G]; ties are drawn, by value of j and among equal advantages."""
    size, keep = advantages.numel(), n * len(advantages)
    shuffle = torch.rand(size, generator=generator, dtype=torch.float64).argsort()
    values, order = advantages.flatten().double()[shuffle].sort(stable=True)
    centered = values - values.mean()

    def sums(numbers: Tensor) -> Tensor:  # [keep + 1], the sum over the subset with j largest
        below = F.pad(numbers.cumsum(0), (1, 0))
        j = torch.arange(keep + 1)
        return below[size] - below[size - j] + below[keep - j]

    variances = sums(centered.square()) / keep - (sums(centered) / keep).square()
    best = variances >= variances.max() - 1e-9 * variances.max().abs()
    j = torch.arange(1, keep + 1)
    subset = F.pad((values[keep - j] != values[size - j]).cumsum(0), (1, 0))  # neighbors may be the same subset
    noise = torch.rand(keep + 1, generator=generator, dtype=torch.float64)
    best &= subset == subset[noise[subset].masked_fill(~best, -1).argmax()]
    largest = noise.masked_fill(~best, -1).argmax()
    rank = torch.arange(size)
    chosen = torch.zeros(size, dtype=torch.bool)
    chosen[shuffle[order]] = (rank >= size - largest) | (rank < keep - largest)
    return chosen.view(advantages.shape)


# T = top K % of |A| x H over all tokens of the kept rollouts
def select_tokens(advantages: Tensor, entropies: Tensor, k: float, generator: torch.Generator) -> Tensor:
    """Mark ceil(K * T) of the T tokens; ties are drawn."""
    if k == 1:
        return torch.ones(len(entropies), dtype=torch.bool)
    scores = advantages.abs() * entropies
    count = math.ceil(k * len(scores) - 1e-9 * len(scores))
    threshold = scores.sort(descending=True).values[count - 1]
    chosen = scores > threshold
    ties = (scores == threshold).nonzero()[:, 0]
    drawn = torch.randperm(len(ties), generator=generator)
    chosen[ties[drawn[: count - int(chosen.sum())]]] = True
    return chosen


# L = -sum_t min(r A, clip(r, 1 - eps, 1 + eps) A) / (selected tokens),   r = pi / pi_old
def grpo_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, epsilon: float, tokens: int) -> Tensor:
    """The loss of the tokens [T] that are run; `tokens` counts those selected, also with advantage 0."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -torch.minimum(ratio * advantages, clipped * advantages).sum() / tokens


# --- generation -------------------------------------------------------------------------------------------------------


@dataclass
class Rollout:
    """A prompt, one response to it up to and with its end token, and two values per response token."""

    prompt: list[int]
    response: list[int]
    logprobs: list[float]
    entropies: list[float]  # of the distribution that the token was drawn from, in nats


Sampler = Callable[[PreTrainedModel, list[list[int]], int], list[Rollout]]


@torch.no_grad()
def sample(
    model: PreTrainedModel, prompts: list[list[int]], n: int, max_tokens: int, generator: torch.Generator
) -> list[Rollout]:
    """Draw n responses to each prompt, at temperature 1."""
    rows = [prompt for prompt in prompts for _ in range(n)]
    width, ends = max(map(len, rows)), torch.tensor(model.generation_config.eos_token_id)  # one, or a list
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    rollouts, cache = [Rollout(row, [], [], []) for row in rows], None
    active = torch.ones(len(rows), dtype=torch.bool)
    model.set_attn_implementation("sdpa")
    for _ in range(max_tokens):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        logits, cache = model(ids, mask, positions, cache, logits_to_keep=1)[:2]  # by place: the cache has two names
        logprobs = logits[:, -1].float().log_softmax(-1)
        ids = logprobs.exp().multinomial(1, generator=generator)
        entropies = -(logprobs.exp() * logprobs).sum(-1)
        drawn = logprobs.gather(1, ids)[:, 0]
        for i in active.nonzero()[:, 0].tolist():
            rollouts[i].response.append(int(ids[i]))
            rollouts[i].logprobs.append(float(drawn[i]))
            rollouts[i].entropies.append(float(entropies[i]))
        active &= ~torch.isin(ids[:, 0], ends)
        if not active.any():
            break
        mask = F.pad(mask, (0, 1), value=1)
    return rollouts


def reward(text: str, answer: str) -> float:
    r"""1 if the last \boxed{} holds the answer, as a text or as a number, else 0."""
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", text)
    found, gold = boxes[-1].strip() if boxes else "", answer.strip()
    try:
        return float(found == gold or float(found) == float(gold))
    except ValueError:
        return float(found == gold)


# --- the update: only what was selected is run ------------------------------------------------------------------------


def packed_attention(module, query: Tensor, key: Tensor, value: Tensor, attention_mask, lengths: list[int], **options):
    """Causal attention inside each of the sequences of these lengths that share one row [1, heads, L, dim]."""
    parts = zip(*(x.split(lengths, dim=2) for x in (query, key, value)))
    scale, grouped = options.get("scaling"), query.shape[1] != key.shape[1]
    rows = [F.scaled_dot_product_attention(*part, is_causal=True, scale=scale, enable_gqa=grouped) for part in parts]
    return torch.cat(rows, dim=2).transpose(1, 2), None


def logprobs_of(model: PreTrainedModel, rollouts: list[Rollout], chosen: list[Tensor]) -> Tensor:
    """Log-probabilities, with gradient, of the chosen tokens (bool [tokens] for each rollout), in their order.

    Each sequence ends before its last chosen token, which predicts nothing; rollouts without one are not run. The head
    computes the rows of the chosen tokens alone.
    """
    ids, lengths, rows, targets, offset = [], [], [], [], 0
    for rollout, marks in zip(rollouts, chosen):
        places = marks.nonzero()[:, 0].tolist()
        if not places:
            continue
        first = len(rollout.prompt) - 1  # this position predicts the first response token
        length = first + places[-1] + 1
        ids += [*rollout.prompt, *rollout.response][:length]
        rows += [offset + first + place for place in places]
        targets += [rollout.response[place] for place in places]
        lengths.append(length)
        offset += length
    positions = torch.cat([torch.arange(length) for length in lengths])
    model.set_attn_implementation("packed")
    trunk = model.base_model(torch.tensor([ids]), position_ids=positions[None], lengths=lengths, use_cache=False)
    logits = model.get_output_embeddings()(trunk.last_hidden_state[0, rows]).float()
    return logits.log_softmax(-1).gather(1, torch.tensor(targets)[:, None])[:, 0]


def update(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    rollouts: list[Rollout],
    advantages: Tensor,
    selected: Tensor,
    minibatches: int,
    epsilon: float,
    generator: torch.Generator,
) -> None:
    """One pass over the kept rollouts in random minibatches.

    Args:
        advantages: [rollouts].
        selected: bool [T], of all their response tokens. Those with advantage 0 have no gradient and are not run, but
            the denominator counts them.
    """
    marks = selected.split([len(r.response) for r in rollouts])
    order = torch.randperm(len(rollouts), generator=generator).tolist()
    for part in range(min(minibatches, len(order))):
        members = order[part::minibatches]
        run = [i for i in members if advantages[i] != 0 and marks[i].any()]
        if not run:
            continue
        chosen = [marks[i] for i in run]
        logprobs = logprobs_of(model, [rollouts[i] for i in run], chosen)
        old = torch.cat([torch.tensor(rollouts[i].logprobs)[marks[i]] for i in run])
        per_token = torch.cat([advantages[i].expand(int(marks[i].sum())) for i in run])
        tokens = int(sum(marks[i].sum() for i in members))
        grpo_loss(logprobs, old, per_token, epsilon, tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


# --- the loop ---------------------------------------------------------------------------------------------------------


@dataclass
class Problem:
    """A prompt as token ids, and the gold answer."""

    prompt: list[int]
    answer: str


def batches(problems: list[Problem], size: int, seed: int) -> Iterator[list[Problem]]:
    """Batches of problems in random order, reshuffled when all were drawn."""
    generator, queue = torch.Generator().manual_seed(seed), []
    while True:
        while len(queue) < size:
            queue += torch.randperm(len(problems), generator=generator).tolist()
        yield [problems[i] for i in queue[:size]]
        queue = queue[size:]


def train(
    args: argparse.Namespace,
    model: PreTrainedModel,
    decode: Callable[[list[int]], str],
    problems: Iterator[list[Problem]],
    draw: Sampler,
    watch: Callable[[int, Tensor, Tensor], None] = lambda step, kept, selected: None,
) -> None:
    """Train the model in place; `watch` sees what each step selected: bool [B, G] rollouts, bool [T] tokens."""
    model.eval()  # no dropout: probabilities are those that were sampled with
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    for step in range(args.steps):
        started, generator = time.perf_counter(), torch.Generator().manual_seed(args.seed * 1_000_003 + step)
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (1 - step / args.steps)
        n, k = schedule(step, args.steps, args.n, args.k)
        batch = next(problems)
        rollouts = draw(model, [problem.prompt for problem in batch], args.responses)
        answers = [problem.answer for problem in batch for _ in range(args.responses)]
        rewards = torch.tensor([reward(decode(r.response), answer) for r, answer in zip(rollouts, answers)])
        advantages = group_advantages(rewards.view(len(batch), args.responses))
        kept = select_rollouts(advantages, n, generator)
        rollouts = [rollout for rollout, keep in zip(rollouts, kept.flatten().tolist()) if keep]
        lengths = torch.tensor([len(r.response) for r in rollouts])
        entropies = torch.tensor([h for r in rollouts for h in r.entropies])
        selected = select_tokens(advantages[kept].repeat_interleave(lengths), entropies, k, generator)
        update(model, optimizer, rollouts, advantages[kept], selected, args.minibatches, args.epsilon, generator)
        watch(step, kept, selected)
        seconds = time.perf_counter() - started
        trained = f"trained {int(selected.sum()):,} of {int(lengths.sum()):,} tokens of {len(rollouts)} rollouts"
        line = f"step {step + 1:3}/{args.steps}  reward {rewards.mean():.3f}  N {n} K {k:.0%}  {trained}"
        print(f"{line}  {seconds:.1f} s", flush=True)


def evaluate(model: PreTrainedModel, decode: Callable[[list[int]], str], problems: list[Problem], draw: Sampler) -> str:
    """Pass@1 and Pass@8 of 8 samples per problem."""
    model.eval()
    rollouts = draw(model, [problem.prompt for problem in problems], 8)
    answers = [problem.answer for problem in problems for _ in range(8)]
    right = torch.tensor([reward(decode(r.response), a) for r, a in zip(rollouts, answers)]).view(-1, 8)
    return f"Pass@1 {right.mean():.1%}  Pass@8 {right.amax(1).mean():.1%}  of {len(problems)} problems"


def read_problems(path: str, count: int, held_out: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Problems and answers to train on, and others to evaluate on: a task of the repository, or a file's last lines."""
    if path.startswith("synthetic:"):
        from d3s.data.synthetic import TASKS

        task = TASKS[path.removeprefix("synthetic:")]
        if task.reward:
            raise SystemExit(f"{path}: its answers are judged by {task.reward}; nano_d3s.py compares texts and numbers")
        return tuple([row[:2] for row in task.draw(*which, seed=0)] for which in (("train", count), ("test", held_out)))
    rows = [(row["problem"], str(row["answer"])) for row in map(json.loads, Path(path).read_text().splitlines())]
    if not 0 < held_out < len(rows):
        raise SystemExit(
            f"--held-out: got {held_out} of the {len(rows)} problems of {path}, expected 1 or more, and fewer"
        )
    return rows[:-held_out], rows[-held_out:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny:precedence", help="directory, or the demo's base model, made once")
    parser.add_argument("--data", default="synthetic:precedence", help="JSON lines with problem and answer")
    parser.add_argument("--steps", type=int, default=195)
    parser.add_argument("--problems", type=int, default=64, help="B, problems per step")
    parser.add_argument("--responses", type=int, default=4, help="G, responses per problem")
    parser.add_argument("--n", type=int, nargs=2, default=(2, 4), help="N in the first and the last step")
    parser.add_argument("--k", type=float, nargs=2, default=(0.2, 0.4), help="K in the first and the last step")
    parser.add_argument("--minibatches", type=int, default=8, help="optimizer steps per step")
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate, which decays to 0")
    parser.add_argument("--epsilon", type=float, default=0.2)
    parser.add_argument("--max-tokens", type=int, default=48, help="of a response")
    parser.add_argument("--held-out", type=int, default=128, help="problems to evaluate on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="directory for the trained model")
    args = parser.parse_args()
    if not args.data.startswith("synthetic:") and not Path(args.data).is_file():
        raise SystemExit(f"--data: {args.data} is no file")
    if args.model.startswith("tiny:"):
        from d3s.shapes import known_parameters
        from d3s.threads import choose_threads
        from d3s.tiny import find_model

        args.model = find_model(args.model)
        choose_threads(known_parameters(args.model))
    tokenizer, model = load(args.model)
    problems, tests = (
        [Problem(encode(tokenizer, text), answer) for text, answer in rows]
        for rows in read_problems(args.data, 4096, args.held_out)
    )
    generator = torch.Generator().manual_seed(args.seed)

    def draw(model: PreTrainedModel, prompts: list[list[int]], n: int) -> list[Rollout]:
        return sample(model, prompts, n, args.max_tokens, generator)

    def decode(ids: list[int]) -> str:
        return tokenizer.decode(ids, skip_special_tokens=True)

    print("before:", evaluate(model, decode, tests, draw))
    train(args, model, decode, batches(problems, args.problems, args.seed), draw)
    print("after: ", evaluate(model, decode, tests, draw))
    if args.save:
        model.save_pretrained(args.save)
        tokenizer.save_pretrained(args.save)


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The tokens of a prompt, without the end token that some tokenizers append."""
    ids = tokenizer(text)["input_ids"]
    appended = ids[-1] == tokenizer.eos_token_id and not text.endswith(tokenizer.eos_token)
    return ids[:-1] if appended else ids


def load(path: str) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer and the model of a directory, float32, with both kinds of attention and all end tokens."""
    AttentionInterface.register("packed", packed_attention)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ends = model.generation_config.eos_token_id
    ends = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}
    model.generation_config.eos_token_id = sorted(ends)
    return tokenizer, model


if __name__ == "__main__":
    main()
