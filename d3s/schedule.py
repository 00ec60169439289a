"""Schedules of N, K and the learning rate: pure functions of training progress.

A rule of schedule.n_shape or schedule.k_shape takes `progress`, from 0 in the first to 1 in the last step, and returns
the share of the change from the initial to the final value that is made by then, from 0 to 1.

A rule of schedule.follow lets the training move N, K or the share across the batch. It is a class (see d3s/rules.py)
whose constructor takes, by name, what it needs of

    config  all options, see d3s/config/schema.py
    curve   progress -> (N, K), the planned schedule
    bounds  ((lowest N, highest N), (lowest K, highest K)) of it, which no decision may leave

and which has at least one of the first four methods, each with those arguments that it needs:

    at(step)                     (N, K) of a step, 0-based, before it samples; without it, those of the planned schedule
    n_of(advantages, choose)     N, by the advantages [B, G]; choose(N) -> bool [B, G] is what N would keep. With
                                 selector.normalize: after, the advantages are those of the highest N
    k_of(advantages, entropies)  K, by the trainable tokens of the kept rollouts, [T] each
    cross_share()                selector.cross_share of a step
    observe(metrics)             follow a step by its metrics; the reason of a change, or None
    observe_eval(accuracies)     follow an evaluation by the share of right samples of each problem; likewise
    metrics()                    finite numbers by name, logged with a step after `observe`

Metrics and evaluations are equal on all ranks, so every rank decides alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from d3s.common import UserError
from d3s.rules import ClassContract, Contract, RuleObject, metrics_problem, rule_name

if TYPE_CHECKING:  # pydantic and torch may be missing
    import torch

    from d3s.config.schema import Config, OptimConfig
    from d3s.packing import Batch


# s(p): [0, 1] -> [0, 1], the fraction of the change from the initial to the final value made at progress p.
# D3S is linear (arXiv 2509.22115, section on the dynamic schedule), which leaves other shapes open.
SHAPES = {
    "linear": lambda progress: progress,
    "constant": lambda progress: 0.0,
    "cosine": lambda progress: (1 - math.cos(math.pi * progress)) / 2,
    "exponential": lambda progress: (1 - math.exp(-3 * progress)) / (1 - math.exp(-3)),
    "step": lambda progress: 0.0 if progress < 0.5 else 1.0,
}


def _range_problem(result: Any, low: float = 0, high: float = 1, of: str = "", whole: bool = False) -> str | None:
    """What is wrong with a number that a rule returned."""
    kind = int if whole else int | float  # a float of NumPy is one of these, a bool is refused
    if isinstance(result, kind) and not isinstance(result, bool) and low <= result <= high:
        return None
    return f"{result!r:.60}{of}, expected {'an integer' if whole else 'a number'} from {low:g} to {high:g}"


def _problem(result: Any, progress: float) -> str | None:
    return _range_problem(result, of=f" at progress {progress:g}")


def _examples() -> Iterable[dict[str, Any]]:
    return ({"progress": i / 20} for i in range(21))


N_SHAPE_RULES = Contract("schedule.n_shape", SHAPES, ("progress",), _problem, examples=_examples)
K_SHAPE_RULES = Contract("schedule.k_shape", SHAPES, ("progress",), _problem, examples=_examples)


def training_progress(step: int, total_steps: int) -> float:
    """Fraction of training done at the start of `step` (0-based): 0 in the first step, 1 in the last."""
    return step / (total_steps - 1) if total_steps > 1 else 1.0


# [N(p), K(p)] = (1 - s(p)) [N_init, K_init] + s(p) [N_final, K_final],  s(p) = p      D3S, arXiv 2509.22115
def downsampling_schedule(
    progress: float,
    n_init: int,
    n_final: int,
    k_init: float,
    k_final: float,
    n_shape: Callable[..., float],
    k_shape: Callable[..., float],
) -> tuple[int, float]:
    """N, the rollouts kept per prompt, and K, the fraction of their tokens that is trained, at this progress.

    N is exactly n_init where s(p) = 0 and n_final where s(p) = 1. In between it is the nearest even number: with
    right/wrong rewards the subset of largest variance is half right and half wrong, and an odd N would tilt it to one
    side.

    Args:
        progress: fraction of training done; values outside [0, 1] are clipped.
        k_init, k_final: in (0, 1].
        n_shape, k_shape: s(p), one of SHAPES or a rule of your own.
    """
    p = min(max(progress, 0.0), 1.0)
    change = n_shape(progress=p)
    n = n_init + change * (n_final - n_init)
    n = n_init if n_init == n_final else {0.0: n_init, 1.0: n_final}.get(change, 2 * math.floor(n / 2 + 0.5))
    k = k_init + k_shape(progress=p) * (k_final - k_init)
    k_low, k_high = sorted((k_init, k_final))
    return n, min(max(k, k_low), k_high)


# --- of a configuration ----------------------------------------------------------------------------------------------


def planned_curve(config: Config) -> Callable[[float], tuple[int, float]]:
    """The planned schedule, progress -> (N, K)."""
    s, g = config.schedule, config.rollout.num_generations
    shapes = {"n_shape": N_SHAPE_RULES.rule(s.n_shape), "k_shape": K_SHAPE_RULES.rule(s.k_shape)}
    ends = {"n_init": s.n_init or g, "n_final": s.n_final or g, "k_init": s.k_init, "k_final": s.k_final}
    return partial(downsampling_schedule, **ends, **shapes)


def schedule_bounds(config: Config) -> tuple[tuple[int, int], tuple[float, float]]:
    """The smallest and the largest N, and the smallest and the largest K, of the run."""
    ns, ks = zip(*map(planned_curve(config), (i / 64 for i in range(65))))  # a shape of one's own may turn in between
    return (min(ns), max(ns)), (min(ks), max(ks))


def planned_steps(config: Config) -> Callable[[int], tuple[int, float]]:
    """Step (0-based) -> N and K as planned for it: their upper bounds where schedule.follow moves them."""
    if follow_has(config, *MOVES):
        (_, n), (_, k) = schedule_bounds(config)
        return lambda step: (n, k)
    curve = planned_curve(config)
    return lambda step: curve(training_progress(step, config.train.steps))


def schedule_at(config: Config, step: int) -> tuple[int, float]:
    """N and K as planned for `step` (0-based); see planned_steps."""
    return planned_steps(config)(step)


def follow_has(config: Config, *methods: str) -> bool:
    """Whether the class that schedule.follow names has one of these methods."""
    function = FOLLOW_RULES.rule(config.schedule.follow).function
    return any(hasattr(function, name) for name in methods)


def evaluation_problem(config: Config) -> str | None:
    """What is missing if schedule.follow needs evaluations and the run has none."""
    data, every, name = config.eval.data, config.eval.every, rule_name(config.schedule.follow)
    if not follow_has(config, "observe_eval") or (data and every):
        return None
    needs = "needs evaluations during training, but eval.data is"
    return f"schedule.follow: {name} {needs} {data} and eval.every {every}"


def follow_arguments(config: Config) -> dict[str, Any]:
    """What the constructor of a rule of schedule.follow may take. Raises UserError if there is nothing to move."""
    bounds, name = schedule_bounds(config), rule_name(config.schedule.follow)
    if follow_has(config, *MOVES) and all(low == high for low, high in bounds):
        raise UserError(f"schedule.follow: {name} requires schedule ends that differ, of N or of K")
    return {"config": config, "curve": planned_curve(config), "bounds": bounds}


class Planned:
    """N and K by the steps alone."""


MOVES = ("at", "n_of", "k_of")  # methods that decide N or K


def _n_problem(result: Any, bounds: tuple, **_: Any) -> str | None:
    return _range_problem(result, *bounds[0], " as N", whole=True)


def _k_problem(result: Any, bounds: tuple, **_: Any) -> str | None:
    return _range_problem(result, *bounds[1], " as K")


def _at_problem(result: Any, **arguments: Any) -> str | None:
    if not (isinstance(result, tuple) and len(result) == 2):
        return f"{result!r:.60}, expected (N, K)"
    return _n_problem(result[0], **arguments) or _k_problem(result[1], **arguments)


def _reason_problem(result: Any, **_: Any) -> str | None:
    return None if result is None or isinstance(result, str) else f"{result!r:.60}, expected a text or None"


def _try_follow(follow: RuleObject, config: Config) -> list[Any]:
    """Two steps and an evaluation after each."""
    import torch

    g, results, tokens = config.rollout.num_generations, [], torch.linspace(0.0, 1.0, 8)
    advantages = torch.linspace(-1.0, 1.0, g).repeat(2, 1)
    for step in range(2):
        results += [follow.at(step=step), follow.cross_share()]
        results.append(follow.n_of(advantages=advantages, choose=lambda n: (torch.arange(g) < n).repeat(2, 1)))
        results += [follow.k_of(advantages=tokens, entropies=tokens), follow.observe(metrics=defaultdict(lambda: 0.5))]
        results += [follow.metrics(), follow.observe_eval(accuracies=[0.25, 0.5])]
    return results


FOLLOW_RULES = ClassContract(
    option="schedule.follow",
    builtin={"none": Planned},
    arguments=("config", "curve", "bounds"),
    methods={
        "at": (("step",), _at_problem),
        "n_of": (("advantages", "choose"), _n_problem),
        "k_of": (("advantages", "entropies"), _k_problem),
        "cross_share": ((), lambda result, **_: _range_problem(result)),
        "observe": (("metrics",), _reason_problem),
        "observe_eval": (("accuracies",), _reason_problem),
        "metrics": ((), metrics_problem),
    },
    required=(*MOVES, "cross_share"),
    constructs=follow_arguments,
    trial=_try_follow,
)


class Schedule:
    """N, K and the share across the batch of a run: as planned, unless schedule.follow decides.

    It observes metrics that are equal on all ranks, so every rank decides alike.
    """

    def __init__(self, config: Config, agree: Callable[[list], None] = lambda decided: None) -> None:
        """`agree` raises UserError unless all ranks call it with the same. Collective."""
        self._agree = agree
        self.steps, self.curve, self.share = config.train.steps, planned_curve(config), config.selector.cross_share
        self.follow = FOLLOW_RULES.build(config.schedule.follow, **follow_arguments(config))
        bounds = schedule_bounds(config)
        self.highest_n = bounds[0][1]
        self.moves_n, self.moves_k = (low < high for low, high in bounds)

    def at(self, step: int) -> tuple[int, float]:
        """N and K of `step` (0-based), which n_of and k_of may still change."""
        return self._decided("at", step=step) or self.curve(training_progress(step, self.steps))

    def cross_share(self) -> float:
        """The share of N selected across the batch in the next step."""
        share = self._decided("cross_share")
        return self.share if share is None else share

    def n_of(self, planned: int, choose: Callable[..., Any], generator: torch.Generator) -> int:
        """N of a step: what schedule.follow decides by the rewards, otherwise `planned`.

        choose: (N, generator) -> the Selection of N; the generator itself remains as it is.
        """
        if not (self.moves_n and self.follow.has("n_of")):
            return planned
        advantages = choose(self.highest_n, generator.clone_state()).advantages
        return self._decided("n_of", advantages=advantages, choose=lambda n: choose(n, generator.clone_state()).kept)

    def k_of(self, planned: float, batch: Batch) -> float:
        """K of a step: what schedule.follow decides by the tokens of the kept rollouts, otherwise `planned`."""
        if not (self.moves_k and self.follow.has("k_of")):
            return planned
        trainable = batch.trainable
        tokens = {"advantages": batch.advantages[trainable], "entropies": batch.entropies[trainable]}
        return self._decided("k_of", **tokens)

    def observe(self, metrics: Mapping[str, float]) -> str | None:
        """Follow a finished step. Returns: the reason of a change."""
        return self._reason(self.follow.observe(metrics=metrics))

    def observe_eval(self, accuracies: Sequence[float]) -> str | None:
        """Follow an evaluation by the share of right samples of each problem. Returns: the reason of a change."""
        return self._reason(self.follow.observe_eval(accuracies=accuracies) if accuracies else None)

    def _decided(self, method: str, **arguments: Any) -> Any:
        """What a method of schedule.follow decides, which is the same on all ranks but for rounding."""
        decided = getattr(self.follow, method)(**arguments)
        if self.follow.has(method):
            values = decided if isinstance(decided, tuple) else (decided,)
            self._agree([value and f"{value:.6g}" for value in values])
        return decided

    def _reason(self, reason: str | None) -> str | None:
        return reason and f"schedule.follow: {self.follow.name}: {reason}"


def learning_rate(step: int, steps: int, optim: OptimConfig) -> float:
    """The learning rate at `step` (0-based): linear to its peak over warmup_steps, then constant, linear or cosine."""
    peak, warmup = optim.learning_rate, optim.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    left = 1 - (step - warmup) / (steps - warmup)  # 1 after the warm-up, above 0 in the last step
    return peak * {"constant": 1.0, "linear": left, "cosine": (1 - math.cos(math.pi * left)) / 2}[optim.lr_schedule]
