"""A run that takes its time, to be killed: python slow_run.py FOLDER key=value ..."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import fedtide
from fedtide import config
from fedtide.runs import folder as run_folder

if __name__ == "__main__":
    run_folder.CHECKPOINT_SECONDS = 0.0
    tree = config.read_words(sys.argv[2:])
    fedtide.simulate(config.experiment(tree), sys.argv[1], on_round=lambda *_: time.sleep(0.1))
