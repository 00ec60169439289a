"""Run train.py with one fault: faulty_train.py FAULT:PHASE:STEP:RANK and train.py's arguments.

In that phase of that step, the process of that rank
    kill       is killed,
    interrupt  receives SIGINT,
    sleep      sleeps until it is ended,
    pause      creates the file $D3S_TEST/paused and sleeps for a moment,
    full       can no longer write files beyond 4 KB, as on a full disk,
    server     kills the process $D3S_SERVER, which leads to a vLLM server.
"""

import os
import pkgutil
import resource
import runpy
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.helpers.command_line import ROOT

# A public function that runs in the middle of each phase, and whether the fault comes before or after its first call.
SEAMS = {
    "generate": ("d3s.reward:RewardFunction", "submit", "before"),  # other responses are still being generated
    "update": ("torch:Tensor", "backward", "before"),
    "checkpoint": ("d3s.actor:Actor", "save", "after"),  # the directory holds this rank's weights and no manifest
    "rename": ("os", "rename", "before"),  # the checkpoint is complete under its temporary name
}


def sleep() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun waits half a minute for a rank that ignores SIGTERM
    time.sleep(600)


def pause() -> None:
    (Path(os.environ["D3S_TEST"]) / "paused").touch()
    time.sleep(3)


FAULTS = {
    "kill": lambda: signal.raise_signal(signal.SIGKILL),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "server": lambda: os.kill(int(os.environ["D3S_SERVER"]), signal.SIGKILL),
    "sleep": sleep,
    "pause": pause,
    "full": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),  # a larger write raises OSError
}


def install(fault: str, phase: str, step: int, rank: int) -> None:
    """Replace the function of the phase's seam by one that causes the fault once, in this step and on this rank."""
    from d3s.trainer import Trainer

    if int(os.environ.get("RANK", "0")) != rank:
        return
    owner_name, attribute, moment = SEAMS[phase]
    owner = pkgutil.resolve_name(owner_name)
    function, train_step = getattr(owner, attribute), Trainer.step
    current_step, done = 0, False

    def counted_step(trainer):
        nonlocal current_step
        current_step = trainer.state.step + 1
        return train_step(trainer)

    def faulty(*arguments, **options):
        nonlocal done
        due = current_step == step and not done
        done = done or due
        if due and moment == "before":
            FAULTS[fault]()
        result = function(*arguments, **options)
        if due and moment == "after":
            FAULTS[fault]()
        return result

    Trainer.step = counted_step
    setattr(owner, attribute, faulty)


if __name__ == "__main__":
    fault, phase, step, rank = sys.argv.pop(1).split(":")
    sys.argv[0] = str(ROOT / "train.py")
    install(fault, phase, int(step), int(rank))
    runpy.run_path(sys.argv[0], run_name="__main__")
