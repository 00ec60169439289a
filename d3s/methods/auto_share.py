"""AutoShare: the share across the batch follows the gradient norm, between D3S-I and D3S (arXiv 2509.22115).

    schedule: {follow: "d3s.methods.auto_share:AutoShare"}     # configs/method/d3s_auto.yaml

A rule of schedule.follow, our own. The share starts at 0, climbs while the gradient norm stays near its average, and
falls in the step that exceeds it. Worth using? No run tells yes; it does not prevent a collapse, see docs/beyond.md.
"""

import math
from collections.abc import Mapping
from typing import Any

from d3s.common import UserError
from d3s.rules import rule_name

DECAY = 0.9  # of the exponential moving averages
ALARM, CALM = math.log(3), math.log(1.5)  # thresholds of the deviation; between them nothing moves
CLIP, LEAST_SPREAD = 3, 0.1  # a value changes the averages by at most CLIP mean deviations of at least LEAST_SPREAD
FIRST_STEPS = 5  # steps without a decision, until the averages mean something
DWELL = 5  # calm steps before a climb
CLIMB = 0.25  # a share up to this value falls to 0
KL_RISE = 2  # a rise of the KL divergence above this multiple of its average is not calm


# x = ln( grad_norm / sqrt(Var A_selected) )     the root removes what the share itself adds to the gradient
# m, d: moving averages of x and |x - m|, fed with x clipped to m +- 3 max(d, 0.1)
#   alarm: x - m > ln 3, or a loss that is not finite          share <- 0 if share <= 1/4 else share / 2
#   calm:  x - m < ln 1.5, at least B/4 effective groups, and  share <- min(1, share + 1/4) after 5 calm steps
#          no rise of the KL divergence to the initial policy above twice the average rise
# D3S (arXiv 2509.22115, appendix D.1) observes that neither end is best for every model; the rule is our own.
class AutoShare:
    """The share of N across the batch climbs from 0 (D3S-I) to 1 (D3S) while the gradient norm is calm.

    A step without a gradient, or whose kept rollouts all have the same advantage, defines no x and changes nothing.
    With several optimizer steps per training step, x has the mean of their gradient norms.

    Args:
        share: the share of the first step; 0 is D3S-I, 1 is D3S.

    Raises: UserError for options under which there is no share.
    """

    def __init__(self, config: Any, share: float = 0.0) -> None:
        if config.selector.normalize == "after" or rule_name(config.selector.rollouts) == "random":
            raise UserError(
                "schedule.follow: an automatic share requires selector.normalize: before and selector.rollouts: "
                "max_variance or a rule of your own"
            )
        self.groups, self.share = config.train.prompts_per_step, share
        self.before = share  # the share of the last step
        self.steps = 0  # steps that defined x
        self.mean, self.spread = 0.0, 0.0  # m and d
        self.dwell = 0  # calm steps since the last change or alarm
        self.kl, self.kl_rise = 0.0, 0.0  # the last KL divergence to the initial policy, and its average rise
        self.deviation = 0.0  # x - m of the last step

    def cross_share(self) -> float:
        """The share of the next step."""
        return self.share

    def metrics(self) -> dict[str, float]:
        """The share of the last step, its deviation, and the direction of the change after it."""
        change = (self.share > self.before) - (self.share < self.before)
        return {"selection/cross_share": self.before, "control/deviation": self.deviation, "control/change": change}

    def observe(self, metrics: Mapping[str, float]) -> str | None:
        """Adapt the share to the metrics of one training step. Returns: the reason of a change."""
        self.before = self.share
        norm, variance = metrics["grad_norm"], metrics["advantage/var_selected"]
        finite = math.isfinite(norm) and math.isfinite(metrics["loss"])
        early, rising = self.steps < FIRST_STEPS, self._kl_rises(metrics.get("policy/kl_ref"))
        self.deviation = 0.0
        if finite:
            if norm <= 0 or variance <= 0:
                return None
            self._average(math.log(norm) - math.log(variance) / 2)
        if early:
            return None
        if not finite or self.deviation > ALARM:
            times = f"gradient norm was {math.exp(self.deviation):.1f} times its average"
            cause = times if finite else "loss or the gradient was not finite"
            return self._move(0.0 if self.share <= CLIMB else self.share / 2, f"the {cause}")
        if self.deviation < CALM and metrics["selection/effective_groups"] >= self.groups / 4 and not rising:
            self.dwell += 1
            if self.dwell == DWELL:
                return self._move(min(1.0, self.share + CLIMB), f"the gradient norm was calm for {DWELL} steps")
        return None

    def _average(self, x: float) -> None:
        """Compute the deviation of x from its average, then let x change the averages."""
        if self.steps == 0:
            self.mean = x
        self.steps += 1
        self.deviation = x - self.mean
        limit = CLIP * max(self.spread, LEAST_SPREAD)
        clipped = min(max(self.deviation, -limit), limit)
        self.mean += (1 - DECAY) * clipped
        self.spread += (1 - DECAY) * (abs(clipped) - self.spread)

    def _kl_rises(self, kl: float | None) -> bool:
        """Whether the KL divergence, known with loss.beta > 0, rose by more than KL_RISE times its average rise."""
        if kl is None or not math.isfinite(kl):
            return False
        rise = max(0.0, kl - self.kl)
        rises = rise > KL_RISE * self.kl_rise
        self.kl, self.kl_rise = kl, DECAY * self.kl_rise + (1 - DECAY) * rise
        return rises

    def _move(self, share: float, reason: str) -> str | None:
        self.dwell, before = 0, self.share
        self.share = share
        return None if share == before else f"share {before:g} to {share:g}; {reason}"

    def state_dict(self) -> dict[str, float]:
        """The state as plain numbers."""
        return {name: value for name, value in vars(self).items() if name != "groups"}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore what state_dict returned."""
        vars(self).update(state)
