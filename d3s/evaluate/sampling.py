"""Evaluation: n samples per problem from an engine, scored, as Pass@k, avg@n and maj@n with confidence intervals.

`sample` draws the responses to the problems of any number of data sets together. `evaluate` keeps them in memory,
`evaluate_to` in files from which an interrupted evaluation continues.
`python -m d3s.evaluate.compare --compare A.jsonl B.jsonl` compares two such files.
"""

import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from d3s.common import UserError
from d3s.config.checks import LOWEST_TEMPERATURE
from d3s.data.prompts import EncodedPrompts
from d3s.data.synthetic import TASKS
from d3s.evaluate.estimators import per_problem
from d3s.evaluate.files import Sample, SampleFile
from d3s.evaluate.intervals import Estimate, bootstrap_interval
from d3s.rollout.engine import SamplingParams
from d3s.rollout.seeds import rollout_seeds
from d3s.verifier.extraction import extract_answer

Submit = Callable[[str, str], Future[float]]  # response, gold answer -> its score, 1 for right; returns at once
SAMPLES_AT_ONCE = 8192  # of one call of the engine, which holds the responses of a call until its end


@dataclass(frozen=True)
class Sampling:
    """How the n responses to each problem are drawn, and how their answers are found for the majority vote."""

    n: int = 8
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int = 0
    extraction: str = "strict"

    def __post_init__(self) -> None:
        """Raises UserError for a value outside its range."""
        warm = self.temperature == 0 or LOWEST_TEMPERATURE <= self.temperature <= 2
        for name, value, allowed, fine in (
            ("n", self.n, "from 1 to 1,000,000", 1 <= self.n <= 10**6),
            ("temperature", self.temperature, f"0 (greedy), or from {LOWEST_TEMPERATURE} to 2", warm),
            ("top_p", self.top_p, "above 0, at most 1", 0 < self.top_p <= 1),
            ("max_tokens", self.max_tokens, "at least 1", self.max_tokens >= 1),
            ("seed", self.seed, "from 0 to 2**31 - 1", 0 <= self.seed < 2**31),
        ):
            if not fine:
                raise UserError(f"{name} is {value}, must be {allowed}")


@dataclass(frozen=True)
class EvalResult:
    """The figures of one data set: `estimates` has pass@k for each k, avg@n and maj@n."""

    data: str
    n: int
    problems: int
    estimates: dict[str, Estimate]
    mean_length: float  # tokens per response
    truncated: float  # share of responses cut at max_tokens
    no_answer: float  # share of responses in which no answer is found
    right: list[int]  # right samples of each problem, in order

    def record(self) -> dict[str, Any]:
        """One flat line: each metric under its name, its interval under `NAME_ci`."""
        line: dict[str, Any] = {"data": self.data, "n": self.n, "problems": self.problems}
        for name, e in self.estimates.items():
            line |= {name: e.value, f"{name}_ci": [e.low, e.high]}
        line |= {"mean_length": self.mean_length, "truncated": self.truncated, "no_answer": self.no_answer}
        return line | {"right": self.right}


def open_engine(path: str, kind: str, dtype: str, max_model_len: int, seed: int) -> Any:
    """An engine that has the machine to itself."""
    import torch

    from d3s.config.schema import RolloutConfig
    from d3s.rollout import build_engine

    # a GPU with nothing else on it holds the caches of more sequences than training has at once
    at_once = {"max_num_seqs": 1024} if torch.cuda.is_available() else {}
    config = RolloutConfig(engine=kind, gpu_memory_utilization=0.85, sleep=False, **at_once)
    return build_engine(path, config, dtype=dtype, max_model_len=max_model_len, seed=seed)


def submit_for(source: str, default: Submit) -> Submit:
    """What scores a data set: an embedded task's own reward where it has one, else `default`."""
    task = TASKS.get(source.removeprefix("synthetic:"))
    if task is None or task.reward is None:
        return default
    function = pkgutil.resolve_name(task.reward)

    def submit(response: str, answer: str) -> Future[float]:
        outcome: Future[float] = Future()
        outcome.set_result(function(response, answer))
        return outcome

    return submit


@dataclass(frozen=True)
class Question:
    """A problem to be answered n times."""

    data: str  # its data set
    index: int  # its place there, which with the seed decides what is sampled
    ids: list[int]  # its prompt
    answer: str
    submit: Submit


def questions(data: str, prompts: EncodedPrompts, submit: Submit) -> list[Question]:
    """The problems of a data set, in its order."""
    rows = enumerate(zip(prompts.ids, prompts.problems, strict=True))
    return [Question(data, index, ids, problem.answer, submit) for index, (ids, problem) in rows]


def evaluate(
    engine: Any,
    submit: Submit,
    tokenizer: Any,
    prompts: EncodedPrompts,
    sampling: Sampling,
    *,
    ks: Sequence[int] = (1, 8),
    data: str = "",
) -> EvalResult:
    """Evaluates with an engine that exists already, without files. Raises ValueError for a k greater than n."""
    groups: dict[int, list[Sample]] = {}
    sample(
        engine,
        tokenizer,
        questions(data, prompts, submit),
        sampling,
        lambda question, group: groups.update({question.index: group}),
    )
    return summarize([groups[index] for index in sorted(groups)], data, ks)


def evaluate_to(
    directory: Path,
    engine: Any,
    tokenizer: Any,
    tests: Mapping[str, tuple[EncodedPrompts, Submit]],
    sampling: Sampling,
    *,
    ks: Sequence[int] = (1, 8),
    on_progress: Callable[[str, int], None] = lambda data, responses: None,
) -> list[EvalResult]:
    """Evaluates into NAME.jsonl for each data set of `tests`; problems that are complete there are not repeated.

    `on_progress` gets a data set and the number of its new responses. Raises UserError if a file holds samples of
    other problems or cannot be written, ValueError for a k greater than n.
    """
    with ExitStack() as stack:
        files, remaining = {}, []
        for name, (prompts, submit) in tests.items():
            files[name] = stack.enter_context(SampleFile(directory / f"{name}.jsonl", name, prompts, sampling.n))
            on_progress(name, len(files[name].groups) * sampling.n)
            remaining += [q for q in questions(name, prompts, submit) if q.index not in files[name].groups]
        sample(
            engine,
            tokenizer,
            remaining,
            sampling,
            lambda question, group: files[question.data].append(question.index, group),
            lambda question: on_progress(question.data, 1),
        )
        for file in files.values():
            file.sort()
        return [summarize([f.groups[i] for i in sorted(f.groups)], name, ks) for name, f in files.items()]


def sample(
    engine: Any,
    tokenizer: Any,
    questions: Sequence[Question],
    sampling: Sampling,
    on_group: Callable[[Question, list[Sample]], None],
    on_response: Callable[[Question], None] = lambda question: None,
) -> None:
    """Hands the n samples of each question to `on_group` once all n have ended and are scored, in whatever order.

    Responses are scored while others are generated. What is sampled depends on the seed, the data set's name and the
    question's index alone, not on which other questions there are.
    """
    step = max(1, SAMPLES_AT_ONCE // sampling.n)
    for batch in (questions[start : start + step] for start in range(0, len(questions), step)):
        groups = _OpenGroups(tokenizer, batch, sampling, on_group, on_response)
        engine.generate(
            [question.ids for question in batch],
            n=sampling.n,
            params=SamplingParams(
                temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=sampling.max_tokens
            ),
            seeds=[seed for question in batch for seed in _seeds(question, sampling)],
            entropies=False,
            on_finished=groups.add,
        )
        groups.hand_over(wait=True)


def _seeds(question: Question, sampling: Sampling) -> list[int]:
    return rollout_seeds(sampling.seed, f"eval/{question.data}", [question.index], sampling.n)


class _OpenGroups:
    """Puts the responses of one call of the engine, which end in any order, together by question."""

    def __init__(
        self,
        tokenizer: Any,
        questions: Sequence[Question],
        sampling: Sampling,
        on_group: Callable[[Question, list[Sample]], None],
        on_response: Callable[[Question], None],
    ) -> None:
        self._tokenizer, self._questions, self._sampling = tokenizer, questions, sampling
        self._on_group, self._on_response = on_group, on_response
        self._responses: list[dict[int, tuple[Sample, Future[float]]]] = [{} for _ in questions]
        self._unscored: list[int] = []  # questions whose n responses have ended

    def add(self, rollout: Any) -> None:
        """Takes a response that has ended, and starts scoring it."""
        question, group = self._questions[rollout.prompt_index], self._responses[rollout.prompt_index]
        text = self._tokenizer.decode(rollout.response_ids, skip_special_tokens=True)
        extracted = extract_answer(text, self._sampling.extraction)
        unscored = Sample(text, extracted, math.nan, len(rollout.response_ids), rollout.finished)
        group[rollout.sample] = unscored, question.submit(text, question.answer)
        if len(group) == self._sampling.n:
            self._unscored.append(rollout.prompt_index)
        self._on_response(question)
        self.hand_over()

    def hand_over(self, wait: bool = False) -> None:
        """Passes on the groups that are scored; all of them, after a while, with `wait`."""
        ready = [p for p in self._unscored if wait or all(score.done() for _, score in self._responses[p].values())]
        for place in ready:
            self._unscored.remove(place)
            responses, self._responses[place] = self._responses[place], {}
            group = [replace(unscored, score=score.result()) for _, (unscored, score) in sorted(responses.items())]
            self._on_group(self._questions[place], group)


def summarize(groups: Sequence[Sequence[Sample]], data: str, ks: Sequence[int]) -> EvalResult:
    """The figures of samples [problems][n]."""
    samples = [s for group in groups for s in group]
    return EvalResult(
        data=data,
        n=len(groups[0]),
        problems=len(groups),
        estimates=bootstrap_interval(metric_values(groups, ks)),
        mean_length=sum(s.tokens for s in samples) / len(samples),
        truncated=sum(not s.finished for s in samples) / len(samples),
        no_answer=sum(s.extracted is None for s in samples) / len(samples),
        right=[sum(s.score >= 1 for s in group) for group in groups],
    )


def metric_values(
    groups: Sequence[Sequence[Sample]], ks: Sequence[int], voters: int | None = None
) -> dict[str, np.ndarray]:
    scores = np.array([[s.score for s in group] for group in groups])
    return per_problem(scores, [[s.extracted for s in group[:voters]] for group in groups], ks)


def results_table(results: Sequence[EvalResult]) -> Table:
    """A row per data set: percentages over their 95 % intervals; below, what looks wrong with the set-up."""
    columns = ("data", *results[0].estimates, "length", "cut")
    table = Table(*columns, box=box.SIMPLE, padding=(0, 1), title="% and 95 % confidence interval over problems")
    for r in results:
        metrics = (f"{100 * e.value:.1f}\n{100 * e.low:.1f}-{100 * e.high:.1f}" for e in r.estimates.values())
        table.add_row(f"{r.data}\n{r.problems} x {r.n}", *metrics, f"{r.mean_length:.1f}", f"{100 * r.truncated:.1f} %")
    table.caption = "\n".join(remark for r in results for remark in _remarks(r))
    return table


def _remarks(r: EvalResult) -> list[str]:
    remarks = []
    if r.no_answer > 0.5:
        remarks.append(
            f"{r.data}: no answer is found in {r.no_answer:.0%} of the responses; wrong template, or lenient?"
        )
    if r.truncated > 0.5:
        remarks.append(f"{r.data}: {r.truncated:.0%} of the responses are cut at the length limit")
    return remarks


# --- comparison -----------------------------------------------------------------------------------
