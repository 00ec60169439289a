"""Record training steps with torch's profiler: a trace and a table of the slowest operators per step and rank."""

import os
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.profiler import ProfilerActivity

from d3s.common import UserError, make_directory, write_atomically
from d3s.config.schema import Config
from d3s.distributed import all_gather_objects, phase

FOLDER = "profile"
TABLE_ROWS = 40


# Generation is not recorded: in vLLM on a CPU a decode step of two layers has 3,000 events, which take about 1 kB of
# memory each, and a response has thousands of decode steps.
class StepProfiler:
    """Profiles what follows generation in the steps that train.profile_steps lists; in other steps it does nothing."""

    def __init__(self, config: Config, accelerator: Accelerator) -> None:
        self._steps, self._folder = set(config.train.profile_steps), config.train.output_dir / FOLDER
        self._accelerator = accelerator
        self._profile: torch.profiler.profile | None = None

    def start(self, step: int) -> None:
        """Start to profile if `step`, counted from 1, is listed."""
        if step not in self._steps:
            return
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # by default it prints a line at every start and stop
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        self._profile = torch.profiler.profile(activities=activities, profile_memory=True)
        self._profile.start()

    def finish(self, step: int) -> list[str]:
        """Write profile/step_XXXXXX_rankR.json.gz and .txt of every rank if `step` was profiled. Collective.

        Returns: the problems of the ranks that could not write their files, which does not end a run.
        """
        if self._profile is None:
            return []
        self._profile.stop()
        name = f"step_{step:06d}_rank{self._accelerator.process_index}"
        with phase("profile"):
            problems = all_gather_objects(write_profile(self._profile, self._folder / name), self._accelerator)
        self._profile = None
        return problems


def write_profile(profile: torch.profiler.profile, path: Path) -> list[str]:
    """Write the trace `path`.json.gz and the table `path`.txt. Return the problem if that fails."""
    trace = path.with_name(f"{path.name}.json.gz")
    order = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    try:
        make_directory(path.parent)
        profile.export_chrome_trace(str(trace))
        table = profile.key_averages().table(sort_by=order, row_limit=TABLE_ROWS, max_name_column_width=60)
        write_atomically(path.with_name(f"{path.name}.txt"), table.encode())
    except (OSError, RuntimeError, UserError) as error:
        reason = str(error).partition("; ")[0]
        return [f"{trace}: incomplete ({reason}); free some space and profile a later step"]
    return []
