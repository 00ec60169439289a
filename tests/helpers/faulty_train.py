"""ACTION:PHASE:STEP:RANK …: train.py with the rest of the arguments, and with one accident.

In that phase of that step that rank is killed (kill), gets a Ctrl-C (interrupt), falls asleep (sleep), rests for a
moment and says so in a file (pause), finds the disk full (full), loses its verifier worker (worker), or kills the vLLM
server whose process id the environment has in D3S_SERVER (server).
"""

import os
import resource
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
# where each phase can be hit in its middle: rewards are asked for while others still generate, …
PLACES = {
    "generate": "d3s.reward:RewardFunction.submit",
    "logprobs": "d3s.policy:Policy.forward",
    "update": "d3s.actor:Actor._backward",
    "sync": "d3s.actor:Actor._gathered",
    "checkpoint": "d3s.checkpoint:_random_states",
    "rename": "d3s.checkpoint:_flush_to_disk",
}


def strike(action: str) -> None:
    """The accident itself."""
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "interrupt":
        signal.raise_signal(signal.SIGINT)
    elif action == "server":
        os.kill(int(os.environ["D3S_SERVER"]), signal.SIGKILL)
    elif action == "sleep":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun gives a rank that ignores it half a minute
        time.sleep(600)
    elif action == "pause":
        (Path(os.environ["D3S_TEST"]) / "struck").touch()
        time.sleep(3)
    elif action == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # writing beyond is an OSError, as on a full disk


def children(word: str) -> list[int]:
    """Process ids of this process's children whose command line contains the word."""
    own = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and word.encode() in (folder / "cmdline").read_bytes():
                own.append(int(folder.name))
        except OSError:  # ended meanwhile
            continue
    return own


def install(action: str, phase: str, step: int, rank: int) -> None:
    """Puts the accident into its place."""
    import pkgutil

    from d3s.trainer import Trainer

    now = []
    real_step = Trainer.step

    def counted(trainer):
        now[:] = [trainer.state.step + 1]
        return real_step(trainer)

    Trainer.step = counted
    if int(os.environ.get("RANK", "0")) != rank:
        return
    module, _, path = PLACES[phase].partition(":")
    *owner, name = path.split(".")
    holder = pkgutil.resolve_name(f"{module}:{'.'.join(owner)}") if owner else pkgutil.resolve_name(module)
    real = getattr(holder, name)

    def struck(*arguments, **named):
        if now == [step]:
            now.append(step)  # once
            lose_a_worker(arguments[0]) if action == "worker" else strike(action)
        return real(*arguments, **named)

    setattr(holder, name, struck)


def lose_a_worker(scorer) -> None:
    """A verifier's only worker is killed just before it is asked again."""
    ask = scorer._verifier.submit
    assert ask(r"\boxed{(x+1)^2}", "x^2+2x+1").result() == 1.0
    (worker,) = children("verifier.worker")
    os.kill(worker, signal.SIGKILL)
    assert ask(r"\boxed{(y+2)^2}", "y^2+4y+4").result() == 0.0


if __name__ == "__main__":
    action, phase, step, rank = sys.argv.pop(1).split(":")
    import runpy

    sys.argv[0] = str(ROOT / "train.py")
    install(action, phase, int(step), int(rank))
    runpy.run_path(sys.argv[0], run_name="__main__")
