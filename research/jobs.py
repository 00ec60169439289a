"""From rows to runs: the configuration of every run, and the search of learning rates on validation problems."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from d3s.tiny import WARMUP, ensure_base, parse_name
from research import fresh_problems, padded_base
from research.methods import BASES
from research.records import SAMPLES, Record
from research.rows import BY_NAME, COMMON, HALF_WARMUP, TASKS, Row
from research.runs import Cell

SWEEP_BASES = TASKS
SWEEP_SEED = 1000  # the compared seeds are below 100
SEEDS_PER_BASE = 10  # no two base models of a row share a seed, so their runs are independent
RATES, RATE_FACTOR = (5e-5, 1e-4, 2e-4), 2
CLIPS, CLIP_FACTOR = (0.01, 0.03, 0.09), 3  # GSPO's 3e-4 and 4e-4 are for thousands of tokens, not for 35
CLIPPED = 0.2  # largest share of clipped tokens that a chosen setting may have
CLOSE, CLOSE_RUNS = 0.02, 3  # two best rates that differ by less than this get as many runs on each task


@dataclass(frozen=True)
class Setting:
    """What is searched for a row: the learning rate, and the lower clip of a sequence ratio."""

    rate: float
    clip: float | None = None

    def overrides(self) -> tuple[str, ...]:
        """As overrides of the configuration; the upper clip is 4/3 of the lower one, as in GSPO's paper."""
        clips = (
            () if self.clip is None else (f"loss.epsilon={self.clip:g}", f"loss.epsilon_high={self.clip * 4 / 3:.4g}")
        )
        return (f"optim.learning_rate={self.rate:g}", *clips)


@dataclass(frozen=True)
class Job:
    """One run to train."""

    part: str  # see Record
    row: Row
    base: str
    seed: int
    setting: Setting

    def cell(self) -> Cell:
        """The configuration; creates the base model and the problems if they are missing."""
        task, _ = parse_name(plain_name(self.base))
        files = () if task == "precedence" else (f"configs/{task}.yaml",)
        cell = Cell(self.row.name, (*files, *COMMON, *self.row.arguments, *self.setting.overrides()))
        searched = self.part == "sweep" and self.row.search_steps
        steps = f"train.steps={searched or self.row.steps}"
        cell = cell.extended(f"model.name={model_of(self.base)}", steps, f"eval.n={SAMPLES}")
        if self.part == "sweep":
            return cell.extended("eval.split=validation", "eval.limit=256")
        limits = (f"eval.limit={self.row.problems}", f"eval.every={self.row.every}")
        return cell.extended(*fresh_problems.overrides(task), *limits)

    def identity(self) -> tuple[str, str, str, int]:
        """What a record of this run has as part, key, base and seed."""
        return self.part, self.cell().key(), self.base, self.seed


Known = Mapping[tuple[str, str, str, int], Record]  # by Job.identity()


def plain_name(base: str) -> str:
    """The built-in base model that a base model is made from."""
    return BASES[0] if base == HALF_WARMUP else base.removesuffix(padded_base.SUFFIX)


@lru_cache(None)
def model_of(base: str) -> str:
    """What model.name is for a base model, which is created if missing."""
    if base == HALF_WARMUP:
        return str(ensure_base(plain_name(base), steps=WARMUP["steps"] // 2))
    if base.endswith(padded_base.SUFFIX):
        return str(padded_base.ensure(base))
    ensure_base(base)
    return base


# --- the search ------------------------------------------------------------------------------------------------------


def frontier(scores: Mapping[float, float], start: tuple[float, ...], factor: float) -> list[float]:
    """Values to try next: those of `start`, then one beyond the end at which the best score lies; [] if none."""
    if missing := [value for value in start if value not in scores]:
        return missing
    if len(set(scores.values())) == 1:
        return []  # such as settings that all clip too much
    best = max(sorted(scores), key=scores.__getitem__)  # the smallest of equal ones, whatever was tried first
    if best == min(scores):
        return [best / factor]
    return [best * factor] if best == max(scores) else []


class Search:
    """The search of one row: its scores so far, and what to run next.

    The clip is searched first, then the rate; the two best rates get further runs if they are CLOSE.
    """

    def __init__(self, row: Row, known: Known) -> None:
        self.row, self.known = row, known

    def jobs(self, setting: Setting, runs: int | None = None) -> list[Job]:
        """The runs that score a setting: `searches` on each task, or as many as given."""
        return [
            Job("sweep", self.row, base, SWEEP_SEED + SEEDS_PER_BASE * i + run, setting)
            for i, base in enumerate(SWEEP_BASES)
            for run in range(runs or self.row.searches)
        ]

    def score(self, setting: Setting, runs: int | None = None) -> float | None:
        """Mean Pass@1 on validation problems after the last step; None if a run is missing.

        A setting that clips more than CLIPPED of the tokens scores 0.
        """
        records = [self.known.get(job.identity()) for job in self.jobs(setting, runs)]
        if any(record is None for record in records):
            return None
        clipped = max(float(record.logged["clipped"].max()) for record in records)
        return 0.0 if clipped > CLIPPED else sum(record.levels(1)[-1] for record in records) / len(records)

    def wanted(self) -> list[Job]:
        """Runs to try next, some of which may exist; [] when the search has ended.

        Both searches then have their best value inside the tried range.
        """
        if self.row.clips and (clips := frontier(self.clips(), CLIPS, CLIP_FACTOR)):
            return [job for clip in clips for job in self.jobs(Setting(RATES[1], clip))]
        clip = self.best_clip()
        if rates := frontier(self.rates(), RATES, RATE_FACTOR):
            return [job for rate in rates for job in self.jobs(Setting(rate, clip))]
        missing = [rate for rate in self.close_rates() if self.score(Setting(rate, clip), CLOSE_RUNS) is None]
        if missing:
            return [job for rate in missing for job in self.jobs(Setting(rate, clip), CLOSE_RUNS)]
        beyond = frontier(self.final_rates(), RATES, RATE_FACTOR)
        return [job for rate in beyond for job in self.jobs(Setting(rate, clip))]

    def clips(self) -> dict[float, float]:
        """Scores by clip at the middle rate."""
        return self._walk(CLIPS, CLIP_FACTOR, lambda clip: Setting(RATES[1], clip))

    def rates(self) -> dict[float, float]:
        """Scores by learning rate at the best clip."""
        clip = self.best_clip()
        return self._walk(RATES, RATE_FACTOR, lambda rate: Setting(rate, clip))

    def best_clip(self) -> float | None:
        """The clip of the best score; None for a row without a clip to search."""
        clips = self.clips() if self.row.clips else {}
        return max(clips, key=clips.__getitem__) if clips else None

    def close_rates(self) -> list[float]:
        """The best two rates, if their scores are CLOSE; else none."""
        rates = self.rates()
        best = sorted(rates, key=rates.__getitem__, reverse=True)[:2]
        return best if len(best) == 2 and rates[best[0]] - rates[best[1]] < CLOSE else []

    def final_rates(self) -> dict[float, float]:
        """Scores by learning rate, of close ones with all their runs; {} before the first score.

        The search goes on where these put the best rate at an end.
        """
        clip, scores = self.best_clip(), self.rates()
        again = {rate: self.score(Setting(rate, clip), CLOSE_RUNS) for rate in self.close_rates()}
        if not again or None in again.values():
            return scores
        return self._walk(RATES, RATE_FACTOR, lambda rate: Setting(rate, clip), scores | again)

    def chosen(self) -> Setting:
        """The best setting so far, of close ones that with more runs. Raises ValueError before the first score."""
        scores = self.final_rates()
        if not scores:
            raise ValueError(f"{self.row.name}: no run on validation problems yet")
        worse = self.rates().keys() - self.close_rates() if self.close_rates() else set()
        return Setting(max(scores.keys() - worse, key=lambda rate: (scores[rate], -rate)), self.best_clip())

    def jobs_so_far(self) -> list[Job]:
        """The runs that the scores so far are made of."""
        clips = [Setting(RATES[1], clip) for clip in self.clips()] if self.row.clips else []
        clip, close = self.best_clip(), self.close_rates()
        jobs = [job for setting in clips for job in self.jobs(setting)]
        for rate in self.final_rates():
            jobs += self.jobs(Setting(rate, clip), max(self.row.searches, CLOSE_RUNS) if rate in close else None)
        return list(dict.fromkeys(jobs))

    def _walk(
        self,
        start: tuple[float, ...],
        factor: float,
        setting: Callable[[float], Setting],
        scores: Mapping[float, float] = MappingProxyType({}),
    ) -> dict[float, float]:
        """The given scores, and those of `start` and of what the search tried beyond its ends, by value."""
        scores = dict(scores)
        while values := frontier(scores, start, factor):
            found = {value: score for value in values if (score := self.score(setting(value))) is not None}
            scores |= found
            if len(found) < len(values):
                break
        return dict(sorted(scores.items()))


def searched_row(row: Row) -> Row:
    """The row whose search gives this row its setting."""
    return row if row.rate_of is None else BY_NAME[row.rate_of]


def compared_jobs(row: Row, known: Known) -> list[Job]:
    """The runs of a row on test problems, by seed and then by base model, at its chosen setting."""
    setting = Search(searched_row(row), known).chosen()
    return [
        Job("compare", row, base, row.first_seed + SEEDS_PER_BASE * i + seed, setting)
        for seed in range(row.seeds)
        for i, base in enumerate(row.bases)
    ]
