"""Fit of accuracy against compute by a sigmoid that saturates: where a curve ends, and what a level costs.

Intervals resample the runs of each base model, so they cover new seeds on the same problems, if curves have this form.
An asymptote above the last evaluation is an extrapolation. With 6 to 8 evaluations it is often not identified: its
interval then comes close to the bounds of the fit, the largest measured accuracy and 1. An end at 1 is such a bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d3s.evaluate.intervals import Estimate, t_quantile
from research.records import Record
from research.statistics import curve_at, resample

EXPONENTS = (0.3, 4.0)
MIDPOINTS = (0.01, 100.0)  # in units of the largest compute of a curve
GRID = (24, 60)  # exponents and midpoints, equally spaced in logarithms
REFINEMENTS = 12  # each looks at 5 x 5 points around the best and shrinks their spacing by SHRINK
SHRINK = 0.65
FEWEST = 5  # evaluations: three free parameters, and the curve starts at the measured accuracy
PROFILE = 41  # asymptotes that an interval tries
NORMAL = 1.96  # 97.5 % quantile


@dataclass(frozen=True)
class Saturation:
    """A fitted curve. The fields are arrays of equal shape if several curves were fitted at once."""

    start: np.ndarray | float  # accuracy at no compute, as measured
    asymptote: np.ndarray | float
    midpoint: np.ndarray | float  # compute at which half of the rise is reached
    exponent: np.ndarray | float

    def at(self, compute: np.ndarray | float) -> np.ndarray | float:
        """Accuracy at a compute > 0."""
        return self.start + (self.asymptote - self.start) * _gain(self.exponent, self.midpoint, compute)

    def reach(self, level: float) -> np.ndarray | float:
        """Compute at which the curve reaches an accuracy: 0 if it starts there, infinite if the asymptote is below."""
        with np.errstate(divide="ignore", invalid="ignore"):
            left = (self.asymptote - self.start) / (level - np.asarray(self.start)) - 1
            compute = self.midpoint * np.where(left > 0, left, 0.0) ** (-1 / self.exponent)
        return np.where(np.asarray(self.start) >= level, 0.0, compute)[()]


def common_curves(records: Sequence[Record], axis: str, k: int = 1) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pass@k of runs at the same amounts of compute: compute [E], and base model -> [runs, E].

    Runs spend different compute until an evaluation. The E amounts are equally spaced up to the smallest total.
    """
    points = min(len(record.steps) for record in records)
    compute = np.linspace(0, min(getattr(record, axis)[-1] for record in records), points)
    curves: dict[str, list[np.ndarray]] = {}
    for record in records:
        levels = record.levels(k)
        curves.setdefault(record.base, []).append(np.array([curve_at(record, levels, axis, c) for c in compute]))
    return compute, {base: np.stack(runs) for base, runs in curves.items()}


# R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B)          Khatri et al. 2025 (ScaleRL), arXiv 2510.13786
# Least squares. For given B and C_mid the best A has a closed form (variable projection, Golub & Pereyra 1973), and the
# bounds max R <= A <= 1 only clip it; B and C_mid are searched on a grid, which is then refined around its best point.
def fit(compute: np.ndarray, accuracy: np.ndarray) -> Saturation:
    """The curve of least squared error, through the measured accuracy at no compute.

    Args:
        compute: increasing from 0, [E], in any unit.
        accuracy: in 0 to 1, [..., E], one curve or several.

    Raises:
        ValueError: `compute` does not increase from 0, or there are too few evaluations for three parameters.
    """
    compute, accuracy = np.asarray(compute, float), np.asarray(accuracy, float)
    if compute[0] != 0 or not (np.diff(compute) > 0).all():
        raise ValueError(f"compute: got {compute.tolist()}, expected increasing values from 0")
    if len(compute) < FEWEST:
        raise ValueError(f"compute: got {len(compute)} evaluations, expected at least {FEWEST}")
    curves = accuracy.reshape(-1, len(compute))
    fitted, _ = _search(compute, curves, curves.max(1), np.ones(len(curves)))
    fields = (fitted.start, fitted.asymptote, fitted.midpoint, fitted.exponent)
    return Saturation(*(values.reshape(accuracy.shape[:-1])[()] for values in fields))


def _search(
    compute: np.ndarray, curves: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[Saturation, np.ndarray]:
    """Fits of curves [curves, E] with asymptotes between low and high [curves], and squared errors [curves]."""
    start = curves[:, 0]
    rise, relative, bounds = curves[:, 1:] - curves[:, :1], compute[1:] / compute[-1], (low - start, high - start)
    ends = np.log([EXPONENTS, MIDPOINTS])
    axes = [np.linspace(*limits, points) for limits, points in zip(ends, GRID, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    gains = _gain(*np.exp(grid.T[..., None]), relative)
    _, error = _project(rise @ gains.T, (gains**2).sum(1), bounds)
    place = grid[error.argmin(1)]
    spacing = np.array([axis[1] - axis[0] for axis in axes])
    around = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 2), -1).reshape(-1, 2) / 2
    for _ in range(REFINEMENTS):
        places = (place[:, None] + spacing * around).clip(ends[:, 0], ends[:, 1])  # [curves, 25, 2]
        gains = _gain(*np.exp(np.moveaxis(places, -1, 0)[..., None]), relative)
        scale, error = _project(np.einsum("cge,ce->cg", gains, rise), (gains**2).sum(-1), bounds)
        best = np.arange(len(place)), error.argmin(1)
        place, scale, least = places[best], scale[best], error[best]
        spacing = spacing * SHRINK
    exponent, midpoint = np.exp(place.T)
    return Saturation(start, start + scale, midpoint * compute[-1], exponent), least + (rise**2).sum(1)


# |y - a g|^2 = |y|^2 - 2 a y.g + a^2 g.g, least at a = y.g / g.g
def _project(hits: np.ndarray, norms: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The best scale within its bounds and its squared error up to a constant, both [curves, places]."""
    scale = (hits / norms).clip(bounds[0][:, None], bounds[1][:, None])
    return scale, scale * (scale * norms - 2 * hits)


def _gain(exponent: np.ndarray | float, midpoint: np.ndarray | float, compute: np.ndarray | float) -> np.ndarray:
    """Share of the rise that is reached: 1 / (1 + (C_mid / C)^B)."""
    return 1 / (1 + (midpoint / compute) ** exponent)


# An asymptote at its bound has resamples at the bound too, however flat the error is (Andrews, Econometrica 68, 2000).
# The interval therefore also has every A whose best curve is not worse: error(A) <= least error + 1.96^2 Var(R), the
# profile of the likelihood with the variance of an evaluation of the mean curve.
def fit_interval(compute: np.ndarray, accuracy: dict[str, np.ndarray], level: float) -> tuple[Estimate, Estimate]:
    """Asymptote of the mean curve over base models, and the compute at which it reaches `level`, with 95 % intervals.

    Resampled deviations of the mean curve are widened by Student's over the normal quantile, since runs are few. A
    curve whose asymptote is below the level needs infinite compute. No interval if a base model has one run.

    Args:
        compute: increasing from 0, [E].
        accuracy: base model -> [runs, E] at these amounts of compute, see `common_curves`.
        level: accuracy in 0 to 1.
    """
    mean = np.mean([runs.mean(0) for runs in accuracy.values()], axis=0)
    curve = fit(compute, mean)
    values = float(curve.asymptote), float(curve.reach(level))
    runs = [len(curves) for curves in accuracy.values()]
    if min(runs) < 2:
        return Estimate(values[0]), Estimate(values[1])
    resampled = np.mean([resample(len(c), f"runs of {base}") @ c for base, c in accuracy.items()], axis=0)
    widened = mean + (resampled - mean) * t_quantile(sum(runs) - len(runs)) / NORMAL
    curves = fit(compute, widened.clip(0, 1))
    asymptotes = np.append(np.linspace(mean.max(), 1, PROFILE), curve.asymptote)
    profile, error = _search(compute, np.tile(mean, (len(asymptotes), 1)), asymptotes, asymptotes)
    likely = error <= error.min() + NORMAL**2 * widened.var(axis=0)[1:].mean()
    return (
        _estimate(values[0], curves.asymptote, profile.asymptote[likely]),
        _estimate(values[1], curves.reach(level), profile.reach(level)[likely]),
    )


def _estimate(value: float, resampled: np.ndarray, likely: np.ndarray) -> Estimate:
    # percentiles are observed values, since infinite values cannot be interpolated
    low, high = np.quantile(resampled, [0.025, 0.975], method="inverted_cdf")
    return Estimate(value, float(min(low, value, *likely)), float(max(high, value, *likely)))
