"""Record the entropy of every sampled token inside vLLM, as one of its logits processors.

The only file that depends on which of vLLM's two model runners is in use: the recorder is a logits processor of the
first, which vLLM deprecates. docs/hacking.md has what one of the second would need.
"""

import os
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from d3s.common import UserError
from d3s.groups import Rollout
from d3s.rollout.engine import OTHER_ENGINE, token_entropies

RUNNER_ENVIRONMENT = {"VLLM_USE_V2_MODEL_RUNNER": "0"}  # read by vLLM when it loads a model


def runner_problem(reason: str) -> str:
    """Say that this vLLM does not have the runner that the recorder needs, and why that shows."""
    import vllm

    return (
        f"rollout.engine: vLLM {vllm.__version__} does not load the logits processor that records entropies, which "
        f"needs its first model runner ({reason}); install the version of requirements.txt, or {OTHER_ENGINE}"
    )


def entropy_recorder() -> type:
    """Return a vLLM logits processor that records entropies and changes nothing; a class, as vLLM instantiates it.

    vLLM calls it once per engine step with the float32 logits [requests, V] after temperature, from which the next
    tokens are sampled, so the entropies are exact and cost one softmax. Its class attributes hold the records.

    Raises: UserError if the environment selects vLLM's second model runner, or vLLM does not have the first.
    """
    for name, value in RUNNER_ENVIRONMENT.items():
        if os.environ.get(name, value) != value:
            needs = "as the recorder of entropies needs the first model runner"
            raise UserError(f"{name}: got {os.environ[name]}, expected {value} or unset, {needs}")
    try:
        from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality
    except ImportError as error:
        if error.name == "vllm":
            raise UserError(f"rollout.engine: vLLM is not installed; install it, or {OTHER_ENGINE}") from error
        raise UserError(runner_problem(f"{type(error).__name__}: {error}")) from error

    class EntropyRecorder(LogitsProcessor):
        loaded: ClassVar[bool] = False  # whether vLLM has made an instance
        steps: ClassVar[list[tuple[list[tuple[int, int]], Tensor]]] = []  # (request, position) of each row, entropies
        preemptions: ClassVar[int] = 0

        def __init__(self, vllm_config, device, is_pin_memory) -> None:
            type(self).loaded = True
            # batch row -> request, position of its first own token in the response, its live list of output tokens
            self.rows: dict[int, tuple[int, int, list[int]]] = {}

        def is_argmax_invariant(self) -> bool:
            return True  # such processors run after temperature

        def update_state(self, batch_update) -> None:
            if batch_update is None:
                return
            for row in batch_update.removed:
                self.rows.pop(row, None)
            for row, params, _, output_ids in batch_update.added:
                self.rows.pop(row, None)
                type(self).preemptions += bool(output_ids)  # a request that is added with output has been evicted
                if params.extra_args:
                    self.rows[row] = (params.extra_args["request"], params.extra_args["start"], output_ids)
            for source, target, direction in batch_update.moved:
                moving, displaced = self.rows.pop(source, None), self.rows.pop(target, None)
                if moving is not None:
                    self.rows[target] = moving
                if direction == MoveDirectionality.SWAP and displaced is not None:
                    self.rows[source] = displaced

        def apply(self, logits: Tensor) -> Tensor:
            if self.rows:
                index = sorted(self.rows)  # a new request may take any free row
                rows = logits if len(index) == len(logits) else logits[index]  # copies, and on a GPU waits
                keys = [(request, start + len(ids)) for request, start, ids in map(self.rows.get, index)]
                type(self).steps.append((keys, token_entropies(rows)))
            return logits

        @classmethod
        def write_to(cls, rollouts: Mapping[int, Rollout]) -> None:
            """Fill in the recorded entropies of the rollouts by request, NaN elsewhere, and clear the records."""
            for rollout in rollouts.values():
                rollout.entropies = [float("nan")] * len(rollout.response_ids)
            for keys, values in cls.steps:
                for (request, position), value in zip(keys, values.tolist()):
                    if request in rollouts and position < len(rollouts[request].entropies):
                        rollouts[request].entropies[position] = value
            cls.steps.clear()

    return EntropyRecorder
