"""Where a run goes if nobody says: runs/<framework>-<scheduler>-<data>-s<seed>-<hash>."""

from __future__ import annotations

import re
from pathlib import Path

from fedtide import config
from fedtide.config import Experiment

RUNS = Path("runs")
LONGEST = 40  # characters of a part's name: the folder's stays below the 255 that file systems allow


def folder_name(experiment: Experiment) -> str:
    """Return what a person would look for: framework, scheduler, data set, seed, and a hash that tells the rest."""
    framework = experiment.framework or experiment.timeline.name
    words = [_plain(name) for name in (framework, experiment.policy.scheduler, experiment.data.name)]
    return "-".join([*words, f"s{experiment.seed}", _hash(experiment)])


def default_folder(experiment: Experiment, runs: Path = RUNS) -> Path:
    """Return the folder of an experiment: the one that is there under whatever name with its hash, else a new one.

    The same experiment may be written in several ways (a framework, or its keys one by one), and earlier versions named
    their folders otherwise.
    """
    wanted = runs / folder_name(experiment)
    there = [] if wanted.exists() else sorted(runs.glob(f"*-{_hash(experiment)}"))
    return next((each for each in there if (each / "experiment.yaml").is_file()), wanted)


def _hash(experiment: Experiment) -> str:
    return config.digest(experiment)[:8]


def _plain(name: str) -> str:
    """Return a part's name as a word that any file system takes; of `path/file.py:name` only the name."""
    own = name.rpartition(":")[2].replace("\\", "/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._]+", "_", own).strip("._")[:LONGEST] or "own"
