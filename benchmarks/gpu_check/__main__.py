"""Check d3s on one GPU within ten minutes: kernels, precision, memory, the engine, training, seconds.

    python3 -m benchmarks.gpu_check [--stages attention,engine] [--seconds 570]                   (make gpu-check)
    python3 -m benchmarks.gpu_check --several                                               (make gpu-check-multi)

With --several it checks what takes at least two GPUs: exchange, DDP, ZeRO-3, resume, tensor parallelism.

Installs nothing and needs no network. Torch, transformers and accelerate suffice for the first stages; a stage whose
library is missing is not run. Each stage is a process with a time limit of its own. The table (gpu-check.md) and the
record (gpu-check.json) are written again after every stage, and gpu-check/ has a log of each; with --several their name
is gpu-check-multi. The exit code is 1 if a limit did not hold or a stage failed. With --cpu the same stages run on the
CPU at tiny shapes.
"""

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from benchmarks import harness
from benchmarks.gpu_check.runner import Outcome, Stage, run_stage
from d3s.common import UserError, exit_code, gpu_problem

# In the order of their importance: what is right first, what is fast last. No stage reads another's result.
STAGES = [
    Stage("device", "benchmarks.gpu_check.device:run", 60),
    Stage("attention", "benchmarks.gpu_check.attention:run", 90),
    Stage("head", "benchmarks.gpu_check.head:run", 60),
    Stage("chunks", "benchmarks.gpu_check.chunks:run", 60),
    Stage("sampler", "benchmarks.gpu_check.sampler:run", 60),
    Stage("memory", "benchmarks.gpu_check.memory:run", 120),
    Stage("tests", "benchmarks.gpu_check.suite:run", 120),
    Stage("engine", "benchmarks.gpu_check.engine:run", 150),
    Stage("recorder", "benchmarks.gpu_check.recorder:run", 120),
    Stage("training", "benchmarks.gpu_check.training:run", 150),
    Stage("update", "benchmarks.gpu_check.update:run", 180),
]
SEVERAL = [
    Stage("device", "benchmarks.gpu_check.device:run", 60, every_card=True),
    Stage("update", "benchmarks.gpu_check.several:update", 270, every_card=True),
    Stage("training", "benchmarks.gpu_check.several:training", 240, every_card=True),
]
COLUMNS = ["stage", "what", "measured", "limit", "held"]
ON_CPU = "GPU check at tiny shapes on the CPU: no statement about a GPU"


def title_of(device: str, outcomes: list[Outcome]) -> str:
    """The first line of the results."""
    if device == "cpu":
        return ON_CPU
    names = [row.measured for outcome in outcomes for row in outcome.rows if row.what == "device"]
    return f"GPU check on {names[0] if names else 'a CUDA device'}"


def rows_of(outcome: Outcome) -> list[list[str]]:
    """The table rows of a stage; the last one tells how a stage ended that did not hold."""
    rows = [
        [outcome.name, row.what, row.measured, row.limit, ("yes" if row.held else "NO") if row.limit else ""]
        for row in outcome.rows
    ]
    if outcome.status in ("held", "did not hold"):
        return rows
    text = f"{outcome.status}: {outcome.reason}" if outcome.reason else outcome.status
    return [*rows, [outcome.name, "stage", text, "", "NO" if outcome.broken else ""]]


def summary(outcomes: list[Outcome]) -> list[str]:
    """One line for each kind of stage that did not hold or did not run."""
    lines = []
    for status in ("failed", "did not hold", "not run", "no time left"):
        ended = [f"{o.name} ({o.reason})" if o.reason else o.name for o in outcomes if o.status == status]
        if ended:
            lines.append(f"{status}: {'; '.join(ended)}")
    held = [outcome.name for outcome in outcomes if outcome.status == "held"]
    return [*lines, f"held: {', '.join(held) or 'none'}"]


def write(folder: Path, device: str, outcomes: list[Outcome]) -> None:
    """Write the table and the record of the stages so far, beside the folder of their logs."""
    table = [[cell.replace("|", "/") for cell in row] for outcome in outcomes for row in rows_of(outcome)]
    lines = [f"**{title_of(device, outcomes)}**", "", harness.markdown(COLUMNS, table), ""]
    text = "\n".join([*lines, *(f"- {line}" for line in summary(outcomes)), ""])
    folder.with_suffix(".md").write_text(text)
    record = {"device": device, "stages": [asdict(outcome) for outcome in outcomes]}
    folder.with_suffix(".json").write_text(json.dumps(record, indent=1))


def check(stages: list[Stage], device: str, seconds: float, name: str = "gpu-check") -> int:
    """Run the stages in order within `seconds`, and return the exit code."""
    folder = harness.RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    started, outcomes = time.monotonic(), []
    for stage in stages:
        outcome = run_stage(stage, device, seconds - (time.monotonic() - started), folder)
        outcomes.append(outcome)
        write(folder, device, outcomes)
        print(f"\n{stage.name}: {outcome.status} ({outcome.seconds:.0f} s)", flush=True)
        for _, what, measured, limit, held in rows_of(outcome):
            judged = f"   [{limit}] {held}" if limit else ""
            print(f"  {what}: {measured}{judged}", flush=True)
    print("", *summary(outcomes), f"written: {folder}.md and .json", sep="\n", flush=True)
    return int(any(outcome.broken for outcome in outcomes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", help="default: all, in this order")
    parser.add_argument("--seconds", type=float, default=570, help="time for all stages")
    parser.add_argument("--several", action="store_true", help="the stages that take several GPUs")
    parser.add_argument("--cpu", action="store_true", help="run the stages on the CPU, to try a change of this check")
    args = parser.parse_args()
    stages = SEVERAL if args.several else STAGES
    names = [stage.name for stage in stages]
    chosen = args.stages.split(",") if args.stages else names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"--stages: got {unknown[0]}, expected some of {','.join(names)}")
    if find_spec("torch") is None:
        parser.error(f"{sys.executable}: torch is not installed; name another: make gpu-check CHECK_PYTHON=…")
    if not args.cpu and (problem := gpu_problem()):
        raise UserError(f"{sys.executable}: {problem}")
    if args.several and not args.cpu:
        import torch

        if (found := torch.cuda.device_count()) < 2:
            raise UserError(f"--several: got {found} usable GPU, expected at least 2; make gpu-check checks one")
    device = "cpu" if args.cpu else "cuda"
    print(title_of(device, []), flush=True)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # run_stage then ends its child
    name = "gpu-check-multi" if args.several else "gpu-check"
    return check([stage for stage in stages if stage.name in chosen], device, args.seconds, name)


if __name__ == "__main__":
    sys.exit(exit_code(main))
