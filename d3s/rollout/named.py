"""The engine that rollout.engine names: built in, imported when it is opened, or a class of the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from d3s.common import UserError
from d3s.groups import Rollout
from d3s.pretrained import read_config
from d3s.rollout.engine import Engine, Key, Report, SamplingParams, rollout_problem
from d3s.rules import ClassContract, Contract, Rule, RuleObject, Value

if TYPE_CHECKING:  # pydantic may be missing
    from d3s.config.schema import RolloutConfig


class OwnEngine(Engine):
    """An engine of the user's own, which is called by name and checked as any rule."""

    def __init__(self, rule: Rule, arguments: dict[str, Any]) -> None:
        super().__init__(**{name: arguments[name] for name in ("model_path", "config", "dtype", "max_model_len")})
        self._vocabulary = read_config(self.path).get_text_config().vocab_size
        known = {"stop_token_ids": self.stop_token_ids, "vocabulary": self._vocabulary}
        self._own = RuleObject(rule, arguments | known)

    def sample(
        self, rollouts: list[Rollout], params: SamplingParams, seeds: list[int], entropies: bool, on_finished: Report
    ) -> None:
        """See Engine.sample. Rollouts that the engine does not report as finished are reported at the end."""
        reported, raised = {}, []
        called = f"{self._own.option}: {self._own.name}.sample called on_finished"

        def report(rollout: Rollout) -> None:
            try:
                complete = replace(rollout, entropies=[])  # which may come later
                problem = rollout_problem(complete, params, False, "in a rollout", self._vocabulary)
                if problem or id(rollout) in reported:
                    raise UserError(f"{called} with {problem or 'a rollout for the second time'}")
                reported[id(rollout)] = list(rollout.response_ids)
                on_finished(rollout)
            except Exception as error:
                raised.append(error)
                raise

        try:
            self._own.sample(rollouts=rollouts, params=params, seeds=seeds, entropies=entropies, on_finished=report)
        except UserError:
            if not raised:
                raise
        if raised:  # by d3s, such as the end of an evaluation, which is no failure of the engine
            raise raised[0]
        for rollout in rollouts:
            if id(rollout) not in reported:
                on_finished(rollout)
            elif reported[id(rollout)] != list(rollout.response_ids):
                raise UserError(f"{called} before the response was complete")

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See Engine.load_weights."""
        self._own.load_weights(weights=weights)

    def checksums(self) -> dict[Key, int]:
        """See Engine.checksums."""
        return self._own.checksums() or {}

    def take_preemptions(self) -> int:
        """See Engine.take_preemptions."""
        return self._own.take_preemptions() or 0

    def sleep(self) -> None:
        """See Engine.sleep."""
        self._own.sleep()

    def close(self) -> None:
        """See Engine.close."""
        self._own.close()

    def wake(self, tag: str) -> None:
        """See Engine.wake."""
        self._own.wake(tag=tag)


def _vllm(model_path: str, config: RolloutConfig, dtype: str, head_dtype: str, max_model_len: int, seed: int) -> Engine:
    from d3s.rollout.vllm_engine import VllmEngine

    return VllmEngine(model_path, config, dtype=dtype, head_dtype=head_dtype, max_model_len=max_model_len, seed=seed)


def _transformers(model_path: str, config: RolloutConfig, dtype: str, head_dtype: str, max_model_len: int) -> Engine:
    from d3s.rollout.transformers_engine import TransformersEngine

    return TransformersEngine(model_path, config, dtype=dtype, head_dtype=head_dtype, max_model_len=max_model_len)


def _sample_problem(
    result: Any, rollouts: list[Rollout], params: SamplingParams, vocabulary: int, **_: Any
) -> str | None:
    if result is not None:
        return f"{type(result).__name__}, expected None, as `sample` fills in the rollouts that it gets"
    problems = (rollout_problem(r, params, False, f"in rollout {i}", vocabulary) for i, r in enumerate(rollouts))
    return next(filter(None, problems), None)


def _checksums_problem(result: Any, **_: Any) -> str | None:
    sums = isinstance(result, dict) and all(isinstance(total, int) for total in result.values())
    return None if sums else f"{type(result).__name__}, expected the dict of weight_checksums"


def _count_problem(result: Any, **_: Any) -> str | None:
    return None if type(result) is int and result >= 0 else f"{result!r:.60}, expected a number of responses"


ENGINE_RULES = ClassContract(
    option="rollout.engine",
    builtin={"vllm": _vllm, "transformers": _transformers},
    arguments=("model_path", "config", "dtype", "head_dtype", "max_model_len", "stop_token_ids", "seed"),
    methods={
        "sample": (("rollouts", "params", "seeds", "entropies", "on_finished"), _sample_problem),
        "load_weights": (("weights",), lambda *_, **__: None),
        "checksums": ((), _checksums_problem),
        "take_preemptions": ((), _count_problem),
        "sleep": ((), lambda *_, **__: None),
        "wake": (("tag",), lambda *_, **__: None),
        "close": ((), lambda *_, **__: None),
    },
    every=("sample", "load_weights"),
)


def open_engine(contract: Contract, value: Value, **arguments: Any) -> Engine:
    """The engine that an option with this contract names. Raises UserError."""
    rule = contract.rule(value)
    return OwnEngine(rule, arguments) if rule.own else rule(**arguments)
