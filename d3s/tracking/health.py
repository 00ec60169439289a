"""What is silently wrong with a run: pure rules over its metrics, each of which speaks in one sentence.

Silent wrongness costs users more than crashes do: a template that never shows the answer format, a verifier that times
out, a policy that has collapsed. None of these stops a run, so each must be said.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PATIENCE = 5  # steps that must all show the symptom
TIMEOUT_SHARE = 0.01  # verdicts lost to time-outs; above this rewards are no longer what they claim to be
# Engine against actor: in float32 the largest |log-probability difference| is about 1e-6, in bfloat16 the mean 0.02.
FLOAT32_MISMATCH, BFLOAT16_MISMATCH = 1e-3, 0.1
CLIPPED_SHARE = 0.2  # of the trained tokens; those have no gradient
COLLAPSED_ENTROPY = 0.02  # of the run's first entropy
EXCERPT = 160  # characters of a response that a message quotes


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: `key` names the rule, `message` is a whole sentence for people."""

    key: str
    message: str


def health(
    history: Sequence[dict], samples: Sequence[dict] = (), patience: int = PATIENCE, config: Mapping | None = None
) -> list[Finding]:
    """Findings that hold at the last line of `history`.

    history: metrics lines in order of steps; the first line is the start of the run, the last `patience` are looked at.
        reward/zero_std_groups and completion/truncated are shares; reward/timeouts, no_answer and decided are counts.
    samples: the newest sample records (`answer`, `response`), quoted where they explain a finding.
    config: the run's sections, for the precision that the mismatch of engine and actor is judged by.
    A rule whose metrics are absent, or present for fewer than `patience` steps, finds nothing.
    """
    recent = list(history)[-patience:]
    found: list[Finding] = []
    if not recent:
        return found
    if len(recent) == patience:
        found += _symptoms(recent, samples)
        found += _collapsed_entropy(history[0], recent)
        found += _clipped(recent)
        found += _mismatch(recent, config or {})
        found += _nothing_masked(history[0], recent)
    found += _timeouts(recent)
    return found


def _symptoms(recent: list[dict], samples: Sequence[dict]) -> list[Finding]:
    """Rules of the kind: in every recent step, this metric sits at its worst value."""
    found, steps = [], f"the last {len(recent)} steps" if len(recent) > 1 else "the last step"
    all_zero = _always(recent, "reward/mean", 0.0) and _always(recent, "reward/std", 0.0)
    if all_zero:
        found.append(
            Finding(
                "zero_reward",
                f"every reward of {steps} is 0: either the problems are beyond this model, or the prompt template "
                f"or the verifier does not fit.{_quote(samples)}",
            )
        )
    elif _always(recent, "reward/zero_std_groups", 1.0):
        found.append(
            Finding(
                "zero_variance",
                f"in {steps} the responses of every group were judged alike, so nothing about the answers was learned: "
                "use problems of mixed difficulty or a larger rollout.num_generations.",
            )
        )
    if _always_all(recent, "reward/no_answer", "reward/decided"):
        found.append(
            Finding(
                "no_answer",
                f"the verifier found no answer, no \\boxed{{...}}, in any response of {steps}: the prompt must ask "
                f"for it and rollout.max_completion_length leave room for it.{'' if all_zero else _quote(samples)}",
            )
        )
    if _always(recent, "completion/truncated", 1.0):
        found.append(
            Finding(
                "all_truncated",
                f"every response of {steps} was cut at rollout.max_completion_length: raise it, or check that the "
                "model knows its end-of-sequence token.",
            )
        )
    return found


def _collapsed_entropy(first: dict, recent: list[dict]) -> list[Finding]:
    start, now = first.get("policy/entropy"), _values(recent, "policy/entropy")
    if start is None or start <= 0 or len(now) < len(recent) or max(now) > COLLAPSED_ENTROPY * start:
        return []
    return [
        Finding(
            "entropy_collapsed",
            f"the policy's entropy fell from {start:.3g} to {now[-1]:.3g} nats per token: it hardly explores any more. "
            "Lower optim.learning_rate, raise loss.epsilon_high, or stop here if Pass@1 is where you want it.",
        )
    ]


def _clipped(recent: list[dict]) -> list[Finding]:
    shares = [low + high for low, high in zip(_values(recent, "policy/clip_low"), _values(recent, "policy/clip_high"))]
    if len(shares) < len(recent) or min(shares) <= CLIPPED_SHARE:
        return []
    return [
        Finding(
            "much_clipped",
            f"{shares[-1]:.0%} of the trained tokens were clipped, and more than {CLIPPED_SHARE:.0%} in each of the "
            f"last {len(recent)} steps: they have no gradient. Raise loss.epsilon, or lower optim.learning_rate. With "
            "loss.kind: gspo the ratio is a mean over the response, so the shorter responses are, the larger epsilon "
            "must be; the published 3e-4 is for thousands of tokens.",
        )
    ]


def _mismatch(recent: list[dict], config: Mapping) -> list[Finding]:
    rollout, dtype = config.get("rollout", {}), config.get("model", {}).get("dtype")
    if dtype is None or rollout.get("top_p", 1) < 1 or rollout.get("top_k", -1) > 0:  # then the two differ by design
        return []
    half = dtype != "float32"
    key, limit = ("mismatch/mean_abs", BFLOAT16_MISMATCH) if half else ("mismatch/max_abs", FLOAT32_MISMATCH)
    gaps = _values(recent, key)
    if len(gaps) < len(recent) or min(gaps) <= limit:
        return []
    advice = "model.head_dtype: float32 lowers it; " if half else ""
    return [
        Finding(
            "mismatch",
            f"the engine's log-probabilities differ from the actor's: {key} is {gaps[-1]:.2g}, expected below "
            f"{limit:g} in {dtype}. The two do not compute the same model. {advice}compare with rollout.engine: "
            "transformers, and see what docs/architectures.md says of the architecture.",
        )
    ]


def _nothing_masked(first: dict, recent: list[dict]) -> list[Finding]:
    """At the end of a run whose sequence mask costs a forward pass over all rollouts."""
    ends = [first, *recent]
    if recent[-1].get("progress") != 1 or not _always(ends, "mismatch/rollouts_masked", 0.0):
        return []
    return [
        Finding(
            "nothing_masked",
            f"loss.engine_correction: sequence_mask left out no rollout in the first step and the last {len(recent)}: "
            "a smaller loss.engine_correction_cap masks more, loss.engine_correction: none saves a forward pass.",
        )
    ]


def _timeouts(recent: list[dict]) -> list[Finding]:
    lost, total = sum(_values(recent, "reward/timeouts")), sum(_values(recent, "reward/decided"))
    if not total or lost / total <= TIMEOUT_SHARE:
        return []
    return [
        Finding(
            "verifier_timeouts",
            f"the verifier gave up on {lost:.0f} of the last {total:.0f} responses ({lost / total:.1%}), which count "
            "as wrong: raise reward.timeout_s or reward.workers, or look at those answers.",
        )
    ]


def _values(lines: list[dict], key: str) -> list[float]:
    return [line[key] for line in lines if isinstance(line.get(key), int | float)]


def _always(lines: list[dict], key: str, value: float) -> bool:
    """Whether every line has `key`, and has it at `value`."""
    values = _values(lines, key)
    return len(values) == len(lines) and all(math.isclose(v, value, abs_tol=1e-9) for v in values)


def _always_all(lines: list[dict], key: str, total: str) -> bool:
    """Whether every line has `key` and `total`, equal and above 0."""
    return all(line.get(key) and line[key] == line.get(total) for line in lines)


def _quote(samples: Sequence[dict]) -> str:
    """The end of the newest response (its answer should stand there) beside the gold answer."""
    if not samples:
        return ""
    record = samples[-1]
    response, answer = record.get("response", ""), record.get("answer", "")
    tail = ("…" if len(response) > EXCERPT else "") + response[-EXCERPT:]
    return f" A sample: the gold answer is {answer!r}, the response {'ends' if tail != response else 'is'} {tail!r}."
