"""Set the steps of a section of research/beyond_rows.py so that its rows take equal CPU seconds.

    python -m research.equal_seconds --section small-groups

All rows take turns in one process, one training step each, so that other load on the machine slows them alike. One run
per row on the first base model of the section, without evaluations, with the steps that the row has. Prints the CPU
seconds of all steps, and the steps that take those of the first row.
"""

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import ROOT, markdown
from d3s.config.load import load_config
from d3s.metrics import cpu_seconds
from d3s.trainer import Trainer
from research.beyond import FIRST_SEEDS, on_base
from research.beyond_rows import SECTIONS, Section


def trainers_of(section: Section, folder: Path) -> dict[str, Trainer]:
    """A trainer of each row by its label."""
    common = (f"train.seed={FIRST_SEEDS[section.split]}", "eval.data=[]", "checkpoint.every=0")
    trainers = {}
    for i, row in enumerate(section.rows):
        cell = on_base(row, section.bases[0], section.split).extended(*common, f"train.output_dir={folder / str(i)}")
        trainers[row.name] = Trainer(load_config(*cell.sources()))
    return trainers


def take_turns(trainers: dict[str, Trainer]) -> dict[str, float]:
    """CPU seconds of all training steps of each trainer; they take turns until all have ended."""
    seconds = dict.fromkeys(trainers, 0.0)
    while going := {name: t for name, t in trainers.items() if t.state.step < t.config.train.steps}:
        for name, trainer in going.items():
            started = cpu_seconds()
            trainer.step()
            seconds[name] += cpu_seconds() - started
            trainer.state.step += 1
    return seconds


def steps_table(steps: dict[str, int], seconds: dict[str, float]) -> str:
    """Steps and CPU seconds of each row, and the steps in which it would take the seconds of the first row."""
    target = next(iter(seconds.values()))
    rows = [
        [name, f"{steps[name]}", f"{spent:.1f}", f"{steps[name] * target / spent:.0f}"]
        for name, spent in seconds.items()
    ]
    return markdown(["", "steps", "CPU seconds", "steps in the seconds of the first row"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = {section.name: section for section in SECTIONS}
    parser.add_argument("--section", choices=sections, required=True)
    section = sections[parser.parse_args().section]
    os.chdir(ROOT)
    with TemporaryDirectory() as folder:
        trainers = trainers_of(section, Path(folder))
        seconds = take_turns(trainers)
        for trainer in trainers.values():
            trainer.close()
    print(steps_table({name: trainer.config.train.steps for name, trainer in trainers.items()}, seconds))


if __name__ == "__main__":
    main()
