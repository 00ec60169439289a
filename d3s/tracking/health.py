"""Health rules over the metrics of a run: symptoms that do not stop training but can spoil it.

Examples: a prompt template that never shows the answer format, a verifier that times out, a collapsed policy. None of
these raises an error, so each gets a warning with the metric, the problem and a remedy.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, stdev

PATIENCE = 5  # consecutive steps that must show the symptom
WINDOW = 50  # steps that the rules read, besides the first OPENING
OPENING = 10
TIMEOUT_SHARE = 0.01  # of the verdicts; with more time-outs the rewards are no longer reliable
# |log-probability difference| of engine and actor: in float32 the maximum is about 1e-6, in bfloat16 the mean 0.02.
FLOAT32_MISMATCH, BFLOAT16_MISMATCH = 1e-3, 0.1
UNCLOSED_SHARE = 0.5  # of the responses; more of them never reach an answer
# Of the responses. In few runs of docs/data/card, all with selection, they grow to the limit and stay there.
CUT_SHARE = 0.95
# Of the groups: those with equal rewards, and those of them that must be wrong throughout. In the 1,292 runs of
# docs/data/runs.csv both are exceeded by random rewards and by GRPO with groups of 2 alone.
EQUAL_GROUPS, WRONG_GROUPS = 0.75, 0.3
CLIPPED_SHARE = 0.2  # of the trained tokens; clipped tokens have no gradient
# Relative to the first step. In the runs of docs/data/runs.csv the entropy of 12 steps is at least 31 % of the first.
COLLAPSED_ENTROPY, LOW_ENTROPY, ALIKE = 0.15, 0.25, 0.5  # with low entropy, that share of distinct responses
SOLVED = 0.8  # right answers; a policy that has more need not explore
PLATEAU, STILL_LEARNING = 10, 0.02  # steps whose mean reward is compared with that of as many before, and a rise of it
# A jump is a median of the last steps above this multiple of the median of at least FEWEST steps before them. In the
# 1,135 runs of docs/data/runs.csv the gradient norm of 12 steps is at most 2.4 times the median before, their KL 0.03.
GRADIENT_JUMP, KL_JUMP, FEWEST = 4, 10, 10
# Nats per token, in one of the OPENING steps. Of the 12 runs in docs/data/card that have more in their first step one
# recovers, where the mean is of 21 tokens; where it is more than 0.3, the reward is 0 within two steps.
LARGE_UPDATE = 0.2
LEAST_KL = 0.05  # nats per token; a jump to less is harmless
# A drift is a median of the last steps above this multiple of that of the OPENING. In the same runs the gradient norm
# of 12 steps is at most 3.1 times the first, and the last KL divergence to the initial policy at most 0.9.
GRADIENT_DRIFT, STILL_RISING, KL_DRIFT, MOST_KL = 10, 1.2, 4, 1.0
WORSE_ERRORS = 3  # standard errors of the paired difference by which an evaluation is below the best one
EXCERPT = 160  # characters of a response that a message quotes


Finding = tuple[str, str]  # the key of a rule, and `<metric>: <problem>; <remedy>`


def health(
    history: Sequence[dict],
    samples: Sequence[dict] = (),
    patience: int = PATIENCE,
    config: Mapping | None = None,
    evaluations: Sequence[dict] = (),
) -> dict[str, str]:
    """Return the findings at the last line of `history`: `<metric>: <problem>; <remedy>` by the key of the rule.

    A rule is skipped if its metrics are absent, or present in fewer than `patience` steps.

    Args:
        history: metrics lines in order of steps. The first lines are the first OPENING steps of the run; the rules look
            at these, at the last `patience` lines, and for jumps at the last WINDOW. reward/zero_std_groups and
            completion/truncated are shares; reward/timeouts, reward/no_answer and reward/decided are counts.
        samples: the newest sample records (`answer`, `response`), quoted where they explain a finding.
        config: the sections of the run's configuration. The precision decides which engine mismatch is acceptable, the
            selection which remedies there are.
        evaluations: lines of eval.jsonl in order of steps.
    """
    config = config or {}
    recent, earlier = list(history)[-patience:], list(history)[-WINDOW:-patience]
    opening = list(history)[:-patience][:OPENING]
    if not recent:
        return {}
    findings: list[Finding | None] = []
    if len(recent) == patience:
        findings += [*_constant_metrics(history, recent, samples), _exploded_gradient(opening, earlier, recent, config)]
        findings += [*_jumped_kl(opening, earlier, recent, config), _collapsed_entropy(history, recent)]
        findings += [_cut(history[0], recent), _unclosed_thoughts(recent), _wrong_groups(recent)]
        findings += [_clipped(recent), _mismatch(recent, config), _nothing_masked(history[0], recent)]
    findings += [_large_update(recent[-1]), *_worse_evaluations(evaluations, config), _timeouts(recent)]
    return dict(filter(None, findings))


def _constant_metrics(history: Sequence[dict], recent: list[dict], samples: Sequence[dict]) -> Iterator[Finding]:
    """Apply the rules for metrics that are at their worst value in every recent step."""
    steps = f"the last {len(recent)} steps" if len(recent) > 1 else "the last step"
    all_zero = _always(recent, "reward/mean", 0.0) and _always(recent, "reward/std", 0.0)
    if all_zero:
        problem, remedy = "", "check the prompt template and the verifier, or use problems within reach of this model"
        # In docs/data/card one step of 4 updates at 2e-5 takes it from 0.07 to 0, and from zeros nothing is learned.
        if better := [line for line in history if (line.get("reward/mean") or 0.0) > 0]:
            problem = f", and was {better[-1]['reward/mean']:.2g} in step {better[-1]['step']}"
            remedy = "an update may have destroyed the policy: lower optim.learning_rate or raise optim.warmup_steps"
        yield "zero_reward", f"reward/mean: every reward of {steps} is 0{problem}; {remedy}{_quote(samples)}"
    elif _always(recent, "reward/zero_std_groups", 1.0):
        yield (
            "zero_variance",
            f"reward/zero_std_groups: in {steps} correctness did not vary within any group, so nothing about the "
            "answers was learned; use problems of mixed difficulty or a larger rollout.num_generations",
        )
    answers = [(line.get("reward/no_answer"), line.get("reward/decided")) for line in recent]
    if all(missing and missing == decided for missing, decided in answers):
        yield (
            "no_answer",
            f"reward/no_answer: the verifier found no answer, no \\boxed{{...}}, in any response of {steps}; ask "
            "for it in the prompt, and set rollout.max_completion_length high enough to reach it"
            f"{'' if all_zero else _quote(samples)}",
        )


def _cut(first: dict, recent: list[dict]) -> Finding | None:
    """Nearly all responses reach the limit, from the start or since the policy no longer ends them."""
    shares, began = _values(recent, "completion/truncated"), first.get("completion/truncated", 1.0)
    if len(shares) < len(recent) or min(shares) < CUT_SHARE:
        return None
    since, remedy = "", "raise it, or check that the model knows its end-of-sequence token"
    if began < CUT_SHARE / 2:
        since = f", in the first step {began:.0%}: the policy no longer ends its responses"
        remedy = "lower optim.learning_rate, or set reward.length, as no reward asks for an end"
    return "all_truncated", (
        f"completion/truncated: for {len(recent)} steps, at least {min(shares):.0%} of the responses were cut at "
        f"rollout.max_completion_length{since}; {remedy}"
    )


def _wrong_groups(recent: list[dict]) -> Finding | None:
    """Most groups have equal rewards, and more of them than the right answers can explain."""
    equal, accuracy = (_values(recent, f"reward/{name}") for name in ("zero_std_groups", "accuracy"))
    if len(equal) < len(recent) or len(accuracy) < len(recent) or min(equal) == 1:  # 1: zero_reward or zero_variance
        return None
    wrong = [share - max(right, 0.0) for share, right in zip(equal, accuracy)]
    if min(equal) < EQUAL_GROUPS or min(wrong) < WRONG_GROUPS:
        return None
    return "wrong_groups", (
        f"reward/zero_std_groups: for {len(recent)} steps, most groups have equal rewards, in the last one "
        f"{equal[-1]:.0%}, and at least {wrong[-1]:.0%} are wrong throughout; use easier problems or a larger "
        "rollout.num_generations, or where the reward has been higher, a lower optim.learning_rate"
    )


def _unclosed_thoughts(recent: list[dict]) -> Finding | None:
    """Most responses end before their answer, inside a thought that they or the prompt opened."""
    shares = _values(recent, "completion/unclosed_thought")
    if shares and min(shares) > UNCLOSED_SHARE:
        return "unclosed_thoughts", (
            f"completion/unclosed_thought: {fmean(shares):.0%} of the responses of the last {len(recent)} steps end "
            "inside a thought, where no answer counts; raise rollout.max_completion_length"
        )


# Against three failures D3S (arXiv 2509.22115) has a setting: the gradient explodes (larger N_init), the KL divergence
# jumps (D3S-I), the accuracy falls late (larger N_final). A run that keeps everything has no such setting, and gets the
# general remedy alone.
def _exploded_gradient(opening: list[dict], earlier: list[dict], recent: list[dict], config: Mapping) -> Finding | None:
    norm, before = _rise(earlier, recent, "grad_norm", GRADIENT_JUMP)
    if not norm and _rise(earlier, recent, "grad_norm", STILL_RISING)[0]:
        norm, before = _rise(opening, recent, "grad_norm", GRADIENT_DRIFT)
    remedy = "raise schedule.n_init, or " * (_selects_rollouts(config) and "schedule/n" in recent[-1])
    if norm:
        return "gradient_exploded", (
            f"grad_norm: rose from {before:.3g} to {norm:.3g} (medians before and in the last {len(recent)} steps); "
            f"{remedy}lower optim.learning_rate or optim.max_grad_norm"
        )


def _large_update(step: dict) -> Finding | None:
    """One of the OPENING steps moved the policy far; later a jump shows against the steps before."""
    kl = step.get("policy/approx_kl") or 0.0
    if kl > LARGE_UPDATE and step["step"] <= OPENING:
        return "large_update", (
            f"policy/approx_kl: the updates of step {step['step']} moved the policy by {kl:.2g} nats per token, "
            f"expected at most {LARGE_UPDATE:g}; lower optim.learning_rate, or raise optim.warmup_steps"
        )


def _jumped_kl(opening: list[dict], earlier: list[dict], recent: list[dict], config: Mapping) -> Iterator[Finding]:
    pooled = _selects_rollouts(config) and config["selector"]["cross_share"]
    remedy = "select within groups (selector.cross_share: 0, as in D3S-I), or " if pooled else ""
    for key in ("policy/kl_ref", "policy/approx_kl"):
        jump, drift = _rise(earlier, recent, key, KL_JUMP), _rise(opening, recent, key, KL_DRIFT)
        for (kl, before), least in ((jump, LEAST_KL), (drift, MOST_KL)):
            if kl > least:
                yield (
                    f"jumped_{key.removeprefix('policy/')}",
                    f"{key}: rose from {before:.3g} to {kl:.3g} nats per token (medians before and in the last "
                    f"{len(recent)} steps); {remedy}lower optim.learning_rate or loss.epsilon",
                )


# On SmolLM2-135M (docs/data/card) the entropy falls by nine tenths within 12 steps while the accuracy still rises, with
# every K: a smaller learning rate slows it, a larger K does not. So a rising reward is no symptom, and K no remedy.
def _collapsed_entropy(history: Sequence[dict], recent: list[dict]) -> Finding | None:
    first = history[0]
    entropy, distinct = (_greatest_share(first, recent, key) for key in ("policy/entropy", "completion/distinct"))
    if entropy > COLLAPSED_ENTROPY and not (entropy <= LOW_ENTROPY and distinct <= ALIKE):
        return None
    half = min(PLATEAU, len(history) // 2)
    before, now = (_values(lines, "reward/mean") for lines in (history[-2 * half : -half], history[-half:]))
    rises = before and now and fmean(now) > fmean(before) + STILL_LEARNING
    if rises or fmean(_values(recent, "reward/accuracy") or [0.0]) > SOLVED:
        return None
    alike = f" and completion/distinct from {first['completion/distinct']:.0%} to " if distinct <= ALIKE else ""
    alike += f"{recent[-1]['completion/distinct']:.0%}" if alike else ""
    return "entropy_collapsed", (
        f"policy/entropy: fell from {first['policy/entropy']:.3g} to {recent[-1]['policy/entropy']:.3g} nats per "
        f"token{alike}, and reward/mean rises no longer: the policy hardly explores; lower optim.learning_rate, raise "
        "loss.epsilon_high, or stop here if Pass@1 is high enough"
    )


def _worse_evaluations(evaluations: Sequence[dict], config: Mapping) -> Iterator[Finding]:
    """Benchmarks of which the last two evaluations are below the best one before by more than chance, by problem."""
    remedy = "let N grow further (schedule.n_shape: linear, a larger schedule.n_final), " * _selects_rollouts(config)
    shares: dict[str, list[list[float]]] = {}  # by benchmark, of right samples, of each problem in each evaluation
    rewards = {line.get("data"): line.get("reward") for line in evaluations}  # the last one of each benchmark
    for line in evaluations:
        if line.get("right") and line.get("n") and line.get("reward") == rewards[line["data"]]:
            shares.setdefault(line["data"], []).append([right / line["n"] for right in line["right"]])
    for name, lines in shares.items():
        best = max(lines[:-2], key=fmean, default=())
        if all(_is_worse(line, best) for line in lines[-2:]):
            previous, last = map(fmean, lines[-2:])
            yield (
                f"worse/{name}",
                f"{name}: the share of right samples fell from {fmean(best):.1%} to {previous:.1%} and {last:.1%} in "
                f"the last two evaluations; {remedy}lower optim.learning_rate, or keep the best model "
                "(eval.keep_best: true)",
            )


def _clipped(recent: list[dict]) -> Finding | None:
    shares = [low + high for low, high in zip(_values(recent, "policy/clip_low"), _values(recent, "policy/clip_high"))]
    if len(shares) < len(recent) or min(shares) <= CLIPPED_SHARE:
        return None
    return "much_clipped", (
        f"policy/clip_low + clip_high: {shares[-1]:.0%} of the trained tokens were clipped, and more than "
        f"{CLIPPED_SHARE:.0%} in each of the last {len(recent)} steps; clipped tokens have no gradient: raise "
        "loss.epsilon or lower optim.learning_rate (with loss.kind: gspo the ratio is a mean over the response, "
        "so shorter responses need a larger epsilon; the published 3e-4 is for thousands of tokens)"
    )


def _mismatch(recent: list[dict], config: Mapping) -> Finding | None:
    dtype = config.get("model", {}).get("dtype")
    if dtype is None or any(_values(recent, "strategy/stale")):  # the gap is that of older weights, too
        return None
    half = dtype != "float32"
    key, limit = ("mismatch/mean_abs", BFLOAT16_MISMATCH) if half else ("mismatch/max_abs", FLOAT32_MISMATCH)
    gaps = _values(recent, key)
    if len(gaps) < len(recent) or min(gaps) <= limit:
        return None
    advice = "set model.head_dtype: float32 to lower it, " if half else ""
    return "mismatch", (
        f"{key}: the log-probabilities of engine and actor differ by {gaps[-1]:.2g}, expected below {limit:g} in "
        f"{dtype}, so the two do not compute the same model; {advice}compare with rollout.engine: transformers, "
        "and look up the architecture in docs/running.md#models"
    )


def _nothing_masked(first: dict, recent: list[dict]) -> Finding | None:
    """At the end of a run: the sequence mask, which costs a forward pass, masked no rollout."""
    if recent[-1].get("progress") != 1 or not _always([first, *recent], "mismatch/rollouts_masked", 0.0):
        return None
    return "nothing_masked", (
        "mismatch/rollouts_masked: loss.engine_correction: sequence_mask masked no rollout in the first step and "
        f"the last {len(recent)} steps; lower its cap to mask more, or set "
        "loss.engine_correction: none to save a forward pass"
    )


def _timeouts(recent: list[dict]) -> Finding | None:
    timeouts, decided = sum(_values(recent, "reward/timeouts")), sum(_values(recent, "reward/decided"))
    if not decided or timeouts / decided <= TIMEOUT_SHARE:
        return None
    return "verifier_timeouts", (
        f"reward/timeouts: the verifier timed out on {timeouts:.0f} of the last {decided:.0f} responses "
        f"({timeouts / decided:.1%}), which count as wrong; raise reward.timeout_s or reward.workers, or inspect "
        "those answers"
    )


def _rise(before: list[dict], recent: list[dict], key: str, factor: float) -> tuple[float, float]:
    """The medians of the last steps and of those before, (0, 0) if the first is at most `factor` times the second.

    Steps without an update, whose value is 0, do not count before. Of the OPENING half may be missing.
    """
    values, now = [value for value in _values(before, key) if value > 0], _values(recent, key)
    fewest = OPENING // 2 if len(before) == OPENING else FEWEST
    if len(values) < fewest or len(now) < len(recent) or median(now) <= factor * median(values):
        return 0.0, 0.0
    return median(now), median(values)


def _greatest_share(first: dict, recent: list[dict], key: str) -> float:
    """The greatest value of the last steps, relative to the first step; infinity where one is missing or 0."""
    values = _values(recent, key)
    return max(values) / first[key] if first.get(key) and len(values) == len(recent) else math.inf


def _is_worse(shares: Sequence[float], best: Sequence[float]) -> bool:
    """Whether the accuracies of the same problems are lower by more than WORSE_ERRORS standard errors."""
    losses = [b - share for b, share in zip(best, shares)]
    same = len(shares) == len(best) > 1
    return same and fmean(losses) > WORSE_ERRORS * stdev(losses) / math.sqrt(len(losses))


def _selects_rollouts(config: Mapping) -> bool:
    n, g = config.get("schedule", {}).get("n_init"), config.get("rollout", {}).get("num_generations")
    return n is not None and g is not None and n < g


def _values(lines: list[dict], key: str) -> list[float]:
    return [line[key] for line in lines if isinstance(line.get(key), int | float)]


def _always(lines: list[dict], key: str, value: float) -> bool:
    """Return whether `key` is present in every line and equal to `value` in each."""
    values = _values(lines, key)
    return len(values) == len(lines) and all(math.isclose(v, value, abs_tol=1e-9) for v in values)


def _quote(samples: Sequence[dict]) -> str:
    """Quote the newest response, from its end, where the answer belongs, and its gold answer."""
    if not samples:
        return ""
    record = samples[-1]
    response, answer = record.get("response", ""), record.get("answer", "")
    end = ("…" if len(response) > EXCERPT else "") + response[-EXCERPT:]
    return f"; sample: the gold answer is {answer!r}, the response {'ends in' if end != response else 'is'} {end!r}"
