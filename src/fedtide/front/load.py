"""Reading a run back from its folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fedtide.core.forms import shown
from fedtide.drivers.result import Result
from fedtide.errors import RunFolderError
from fedtide.records import read_run
from fedtide.records.reading import read_checkpoint

_ATTEMPTS = 5  # to read rounds and model of one moment while the run goes on


def load(run: Path | str) -> Result:
    """Read a run from its folder: finished, stopped (`.complete` is False) or still going on. Nothing is changed.

    The rounds are those up to the last checkpoint, which vouches for them; the model is the final one, or the checkpoint's.
    """
    if not isinstance(run, (str, os.PathLike)) or not str(run) or "\0" in str(run):
        raise RunFolderError(
            f"{shown(run)} names no run folder: give the path that `fedtide run` or simulate was given"
        )
    for _ in range(_ATTEMPTS):
        kept = read_run(run)
        saved = read_checkpoint(Path(run), kept.experiment)
        model = np.empty(0, np.float32) if saved is None else saved.model
        if saved is None or saved.state.version - 1 == len(kept.rounds):
            return Result(kept.experiment, kept.rounds, model, {}, kept.complete)
    raise RunFolderError(f"{run} changes faster than it can be read: try again when its run has ended")
