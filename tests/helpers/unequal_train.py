"""Run train.py in a directory of each rank: unequal_train.py FOLDER, with FOLDER/RANK, and train.py's arguments."""

import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

folder, sys.argv = sys.argv[1], ["train.py", *sys.argv[2:]]
os.chdir(Path(folder) / os.environ["RANK"])
sys.path[:0] = [str(ROOT), os.getcwd()]
runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
