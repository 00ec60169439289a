"""Rules and an engine of a user's own: right ones, of which five compute what D3S computes, and wrong ones."""

import os
from itertools import count

import torch

from d3s.groups import in_groups
from d3s.rollout.transformers_engine import TransformersEngine
from d3s.selector import select_rollouts


def surrogate(logprobs, old_logprobs, advantages, denominator, clip=0.2):
    ratio = (logprobs - old_logprobs).exp()
    smaller = torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -(smaller / denominator).sum(), {}


calls = count(1)


def unlike_ranks(logprobs, advantages, denominator):
    """Rank 1 returns the statistics in another order, and after some calls another one."""
    ones = torch.ones_like(logprobs).sum().detach()
    stats = {"ones": ones, "twos": 2 * ones}
    if os.environ.get("RANK") == "1":
        stats = dict(reversed(stats.items())) | ({"threes": 3 * ones} if next(calls) > 10 else {})
    return -(logprobs * advantages / denominator).sum(), stats


class UnlikeOrder:
    """Problems from the number of the rank on."""

    def take(self, count, position):
        return [(int(os.environ.get("RANK", "0")) + i) % 12 for i in range(count)]


class UnlikeFollow:
    """From the second step on rank 1 selects all tokens, which needs no entropies, and no pass for them."""

    def at(self, step):
        return 4, 1.0 if step and os.environ.get("RANK") == "1" else 0.6


def unlike_weights(advantages):
    return torch.ones_like(advantages).bool(), torch.full_like(advantages, 1.0 + int(os.environ.get("RANK", "0")))


def nan_loss(logprobs, denominator):
    return (logprobs / denominator).sum() * float("nan"), {}


def pooled(advantages, keep, eligible, generator):
    return select_rollouts(advantages, keep, 1.0, generator, eligible)


def priorities(advantages, entropies):
    return (advantages * entropies).abs()


def standardized(rewards, counted):
    """GRPO's, with divisors."""
    divisors = rewards.double().std(1, keepdim=True) + 1e-4
    centered = rewards.double() - rewards.double().mean(1, keepdim=True)
    return (centered / divisors).float().masked_fill((rewards == rewards[:, :1]).all(1, keepdim=True), 0.0), divisors


def line(progress):
    return progress


def also_line(progress, *, slope=1):
    return slope * progress


def sequence_mean(logprobs, sequence_log_ratio, advantages, denominator):
    ratio = (sequence_log_ratio + logprobs - logprobs.detach()).exp()
    return -(ratio * advantages / denominator).sum(), {"mean_ratio": ratio.detach().sum()}


def unlikely(logprobs, fraction):
    """Mark tokens by a threshold instead of ranking them."""
    return logprobs < logprobs.quantile(fraction) if len(logprobs) else torch.zeros(0, dtype=torch.bool)


def no_token(sequence_ids):
    return torch.zeros(len(sequence_ids), dtype=torch.bool)


def every_other(sequence_ids):
    """Mark and weight."""
    chosen = torch.arange(len(sequence_ids)) % 2 == 0
    return chosen, torch.full((len(sequence_ids),), 2.0)


def takes_all(**arguments):
    return arguments["advantages"].abs()


def halved(log_ratios):
    return torch.full_like(log_ratios, 0.5), {"halved": 1}


class Rotation:
    """An order of problems that skips one after each response that was right."""

    def __init__(self, problems, stride=1):
        self.size, self.stride, self.next = len(problems), stride, 0

    def take(self, count):
        first, self.next = self.next, self.next + count * self.stride
        return [(first + i * self.stride) % self.size for i in range(count)]

    def learn(self, verdicts):
        self.next += int((verdicts > 0).sum())

    def metrics(self):
        return {"order/next": self.next}

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Restless:
    """N and K follow the mean rewards of all steps."""

    def __init__(self, curve):
        self.curve, self.rewards = curve, []

    def at(self):
        return self.curve(sum(self.rewards) % 1)

    def observe(self, metrics):
        self.rewards.append(metrics["reward/mean"])
        return f"the mean reward was {self.rewards[-1]:.3f}"

    def state_dict(self):
        return {"rewards": self.rewards}

    def load_state_dict(self, state):
        self.rewards = state["rewards"]


class InTwoRounds:
    """Half of each group, then the others: the same responses, as each has its seed."""

    def generate(self, engine, prompts, problems, n, params, seeds, entropies):
        groups = [[] for _ in prompts]
        for first, last in ((0, n // 2), (n // 2, n)):
            own = [seed for i, seed in enumerate(seeds) if first <= i % n < last]
            rollouts = engine.generate(prompts, last - first, params, own, entropies=entropies, problems=problems)
            for group, sampled in zip(groups, in_groups(rollouts, last - first)):
                group += sampled
        return groups


class NotOfThree:
    """Fails where a prompt begins with 103."""

    def generate(self, engine, prompts, problems, n, params, seeds, on_finished):
        if any(prompt[0] == 103 for prompt in prompts):
            raise RuntimeError("broken")
        rollouts = engine.generate(prompts, n, params, seeds, on_finished=on_finished, problems=problems)
        return in_groups(rollouts, n)


class Doubled:
    """Two groups to each problem, if that many are needed."""

    def problems_for(self, count):
        return count - count // 2

    def generate(self, engine, prompts, problems, count, n, params, seeds):
        first, second = (engine.generate(prompts, n, params, seeds, problems=problems) for _ in range(2))
        return in_groups(first + second, n)[:count]


class OtherPrompt:
    """Answers another prompt in the third rollout."""

    def generate(self, engine, prompts, problems, n, params, seeds):
        rollouts = engine.generate(prompts, n, params, seeds, problems=problems)
        rollouts[2].prompt_ids = [1]
        return in_groups(rollouts, n)


# --- wrong ------------------------------------------------------------------------------------------------------------


def nan_priorities(entropies):
    return entropies.log() - entropies.log()


class Silent:
    """The built-in engine, by arguments in another order; it reports no response as it ends, and has no checksums."""

    def __init__(self, max_model_len, model_path, config, dtype, tokens=1000):
        self.engine = TransformersEngine(model_path, config, dtype=dtype, max_model_len=max_model_len)
        self.tokens = tokens

    def sample(self, seeds, rollouts, params, entropies):
        self.engine.sample(rollouts, params, seeds, entropies, lambda rollout: None)

    def load_weights(self, weights):
        self.engine.load_weights(weights)
