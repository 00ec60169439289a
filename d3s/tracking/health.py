"""Health rules over the metrics of a run: symptoms that do not stop training but can spoil it.

Examples: a prompt template that never shows the answer format, a verifier that times out, a collapsed policy. None of
these raises an error, so each gets a warning with the metric, the problem and a remedy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PATIENCE = 5  # consecutive steps that must show the symptom
TIMEOUT_SHARE = 0.01  # of the verdicts; with more time-outs the rewards are no longer reliable
# |log-probability difference| of engine and actor: in float32 the maximum is about 1e-6, in bfloat16 the mean 0.02.
FLOAT32_MISMATCH, BFLOAT16_MISMATCH = 1e-3, 0.1
CLIPPED_SHARE = 0.2  # of the trained tokens; clipped tokens have no gradient
COLLAPSED_ENTROPY = 0.02  # relative to the entropy of the first step
EXCERPT = 160  # characters of a response that a message quotes


@dataclass(frozen=True)
class Finding:
    """One symptom: `key` names the rule, `message` reads `<metric>: <problem>; <remedy>`."""

    key: str
    message: str


def health(
    history: Sequence[dict], samples: Sequence[dict] = (), patience: int = PATIENCE, config: Mapping | None = None
) -> list[Finding]:
    """Return the findings at the last line of `history`.

    A rule is skipped if its metrics are absent, or present in fewer than `patience` steps.

    Args:
        history: metrics lines in order of steps. The first line is the first step of the run; the rules look at the
            last `patience` lines. reward/zero_std_groups and completion/truncated are shares; reward/timeouts,
            reward/no_answer and reward/decided are counts.
        samples: the newest sample records (`answer`, `response`), quoted where they explain a finding.
        config: the sections of the run's configuration. The precision decides which engine mismatch is acceptable.
    """
    recent = list(history)[-patience:]
    if not recent:
        return []
    findings: list[Finding] = []
    if len(recent) == patience:
        findings += _constant_metrics(recent, samples)
        findings += _collapsed_entropy(history[0], recent)
        findings += _clipped(recent)
        findings += _mismatch(recent, config or {})
        findings += _nothing_masked(history[0], recent)
    findings += _timeouts(recent)
    return findings


def _constant_metrics(recent: list[dict], samples: Sequence[dict]) -> list[Finding]:
    """Apply the rules for metrics that are at their worst value in every recent step."""
    findings, steps = [], f"the last {len(recent)} steps" if len(recent) > 1 else "the last step"
    all_zero = _always(recent, "reward/mean", 0.0) and _always(recent, "reward/std", 0.0)
    if all_zero:
        findings.append(
            Finding(
                "zero_reward",
                f"reward/mean: every reward of {steps} is 0; check the prompt template and the verifier, or use "
                f"problems within reach of this model{_quote(samples)}",
            )
        )
    elif _always(recent, "reward/zero_std_groups", 1.0):
        findings.append(
            Finding(
                "zero_variance",
                f"reward/zero_std_groups: in {steps} correctness did not vary within any group, so nothing about the "
                "answers was learned; use problems of mixed difficulty or a larger rollout.num_generations",
            )
        )
    if _always_equal(recent, "reward/no_answer", "reward/decided"):
        findings.append(
            Finding(
                "no_answer",
                f"reward/no_answer: the verifier found no answer, no \\boxed{{...}}, in any response of {steps}; ask "
                "for it in the prompt, and set rollout.max_completion_length high enough to reach it"
                f"{'' if all_zero else _quote(samples)}",
            )
        )
    if _always(recent, "completion/truncated", 1.0):
        findings.append(
            Finding(
                "all_truncated",
                f"completion/truncated: every response of {steps} was cut at rollout.max_completion_length; raise it, "
                "or check that the model knows its end-of-sequence token",
            )
        )
    return findings


def _collapsed_entropy(first: dict, recent: list[dict]) -> list[Finding]:
    initial, entropies = first.get("policy/entropy"), _values(recent, "policy/entropy")
    if initial is None or initial <= 0:
        return []
    if len(entropies) < len(recent) or max(entropies) > COLLAPSED_ENTROPY * initial:
        return []
    return [
        Finding(
            "entropy_collapsed",
            f"policy/entropy: fell from {initial:.3g} to {entropies[-1]:.3g} nats per token, so the policy hardly "
            "explores; lower optim.learning_rate, raise loss.epsilon_high, or stop here if Pass@1 is high enough",
        )
    ]


def _clipped(recent: list[dict]) -> list[Finding]:
    shares = [low + high for low, high in zip(_values(recent, "policy/clip_low"), _values(recent, "policy/clip_high"))]
    if len(shares) < len(recent) or min(shares) <= CLIPPED_SHARE:
        return []
    return [
        Finding(
            "much_clipped",
            f"policy/clip_low + clip_high: {shares[-1]:.0%} of the trained tokens were clipped, and more than "
            f"{CLIPPED_SHARE:.0%} in each of the last {len(recent)} steps; clipped tokens have no gradient: raise "
            "loss.epsilon or lower optim.learning_rate (with loss.kind: gspo the ratio is a mean over the response, "
            "so shorter responses need a larger epsilon; the published 3e-4 is for thousands of tokens)",
        )
    ]


def _mismatch(recent: list[dict], config: Mapping) -> list[Finding]:
    rollout, dtype = config.get("rollout", {}), config.get("model", {}).get("dtype")
    truncated_sampling = rollout.get("top_p", 1) < 1 or rollout.get("top_k", -1) > 0
    if dtype is None or truncated_sampling:  # the engine renormalizes over the remaining tokens, the actor does not
        return []
    half = dtype != "float32"
    key, limit = ("mismatch/mean_abs", BFLOAT16_MISMATCH) if half else ("mismatch/max_abs", FLOAT32_MISMATCH)
    gaps = _values(recent, key)
    if len(gaps) < len(recent) or min(gaps) <= limit:
        return []
    advice = "set model.head_dtype: float32 to lower it, " if half else ""
    return [
        Finding(
            "mismatch",
            f"{key}: the log-probabilities of engine and actor differ by {gaps[-1]:.2g}, expected below {limit:g} in "
            f"{dtype}, so the two do not compute the same model; {advice}compare with rollout.engine: transformers, "
            "and look up the architecture in docs/architectures.md",
        )
    ]


def _nothing_masked(first: dict, recent: list[dict]) -> list[Finding]:
    """At the end of a run: the sequence mask, which costs a forward pass over all rollouts, masked none of them."""
    if recent[-1].get("progress") != 1 or not _always([first, *recent], "mismatch/rollouts_masked", 0.0):
        return []
    return [
        Finding(
            "nothing_masked",
            "mismatch/rollouts_masked: loss.engine_correction: sequence_mask masked no rollout in the first step and "
            f"the last {len(recent)} steps; lower loss.engine_correction_cap to mask more, or set "
            "loss.engine_correction: none to save a forward pass",
        )
    ]


def _timeouts(recent: list[dict]) -> list[Finding]:
    timeouts, decided = sum(_values(recent, "reward/timeouts")), sum(_values(recent, "reward/decided"))
    if not decided or timeouts / decided <= TIMEOUT_SHARE:
        return []
    return [
        Finding(
            "verifier_timeouts",
            f"reward/timeouts: the verifier timed out on {timeouts:.0f} of the last {decided:.0f} responses "
            f"({timeouts / decided:.1%}), which count as wrong; raise reward.timeout_s or reward.workers, or inspect "
            "those answers",
        )
    ]


def _values(lines: list[dict], key: str) -> list[float]:
    return [line[key] for line in lines if isinstance(line.get(key), int | float)]


def _always(lines: list[dict], key: str, value: float) -> bool:
    """Return whether `key` is present in every line and equal to `value` in each."""
    values = _values(lines, key)
    return len(values) == len(lines) and all(math.isclose(v, value, abs_tol=1e-9) for v in values)


def _always_equal(lines: list[dict], key: str, total: str) -> bool:
    """Return whether `key` and `total` are present in every line, equal and above 0."""
    return all(line.get(key) and line[key] == line.get(total) for line in lines)


def _quote(samples: Sequence[dict]) -> str:
    """Quote the newest response, from its end, where the answer belongs, and its gold answer."""
    if not samples:
        return ""
    record = samples[-1]
    response, answer = record.get("response", ""), record.get("answer", "")
    end = ("…" if len(response) > EXCERPT else "") + response[-EXCERPT:]
    return f"; sample: the gold answer is {answer!r}, the response {'ends in' if end != response else 'is'} {end!r}"
