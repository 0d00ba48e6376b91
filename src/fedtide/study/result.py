"""The small, lasting result of one run: its experiment, its curves, what made it. This is what is stored and compared."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import RunFolderError
from fedtide.records import UNKNOWN, RoundRecord, provenance, write_atomically
from fedtide.report.summary import evaluated
from fedtide.types import Floats

FORMAT = 2
READABLE = (1, FORMAT)  # 1 says nothing of where it comes from
# One value per evaluation.
COLUMNS = (
    "index",
    "time",
    "test_accuracy",
    "test_loss",
    "train_loss",
    "symbols",
    "bits",
    "samples_used",
    "samples_trained",
)


class RunResult(NamedTuple):
    """Curves of a finished run, by column, a few totals, and what made it."""

    experiment: dict[str, Any]
    columns: dict[str, list[float | None]]
    totals: dict[str, float | None]
    provenance: dict[str, Any] | None = None  # None: not known

    def column(self, name: str) -> Floats:
        """Return one curve; missing values are NaN."""
        return np.array([np.nan if value is None else value for value in self.columns[name]])

    @property
    def path(self) -> str:
        """The instruction path on which it was made, or the package that trained; other paths give other bits."""
        known, trainer = self.provenance or {}, self.experiment.get("learning", {}).get("trainer", "native")
        if trainer == "native":
            return str(known.get("isa", UNKNOWN))
        return f"{trainer} {known.get(trainer, UNKNOWN)}"


def from_rounds(
    experiment: Experiment, rounds: Sequence[RoundRecord], num_parameters: int, seconds: float | None
) -> RunResult:
    """Condense the rounds of a run."""
    scored = evaluated(rounds)
    rows = [
        (each.index, each.time, each.test_accuracy, each.test_loss, each.train_loss, *each.ledger) for each in scored
    ]
    kept = [kept / num_parameters for each in rounds for kept in each.num_kept]
    sent = [each for each in rounds if each.picked]
    proved = [each.proved_minimal for each in rounds if each.proved_minimal is not None]
    totals: dict[str, float | None] = {
        "aggregations": len(rounds),
        "uploads": len(kept),
        "mean_kept_share": float(np.mean(kept)) if kept else None,
        "mean_age": float(np.mean([age for each in sent for age in each.age])) if sent else None,
        "mean_label_variance": float(np.mean([each.label_variance for each in sent])) if sent else None,
        "proved_minimal_share": float(np.mean(proved)) if proved else None,
        "overhead_bits": sum(bits for each in rounds for bits in each.overhead_bits),
        # Wall time, None if not done in one go; the one number that may differ between repetitions.
        "seconds": None if seconds is None else round(seconds, 1),
    }
    columns = {name: [row[position] for row in rows] for position, name in enumerate(COLUMNS)}
    return RunResult(config.dump(experiment), columns, totals, provenance(experiment))


def same(one: RunResult, other: RunResult) -> bool:
    """Say whether two results are equal in everything but wall time and provenance."""
    a, b = ({**each.totals, "seconds": None} for each in (one, other))
    return (one.columns, a) == (other.columns, b)


def _whole(result: RunResult) -> RunResult:
    """Raise ValueError if something is missing from a result that was read."""
    lengths = {len(result.columns[name]) for name in COLUMNS}
    if len(lengths) != 1 or lengths == {0} or not float(result.experiment["timeline"]["horizon"]) > 0:
        raise ValueError("its columns do not fit together")
    if not isinstance(result.totals, dict):
        raise ValueError("it has no totals")
    return result


class Store:
    """A folder of results, one small gzipped file per run, named by the run's hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"{self.folder} cannot be made ({error.strerror}): choose a folder that you may write to"
            ) from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json.gz"

    def has(self, name: str) -> bool:
        """Say whether a run is finished."""
        return self._path(name).exists()

    def save(self, name: str, result: RunResult) -> None:
        """Keep a finished run."""
        self.prepare()
        text = json.dumps({"format": FORMAT, **result._asdict()}, separators=(",", ":"))
        write_atomically(self._path(name), gzip.compress(text.encode(), 9, mtime=0))

    def load(self, name: str) -> RunResult:
        """Read a finished run."""
        path = self._path(name)
        try:
            tree = json.loads(gzip.decompress(path.read_bytes()))
            if tree.pop("format") not in READABLE:
                raise RunFolderError(f"{path} is of another format; remove it and run the study again")
            return _whole(RunResult(**tree))
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise RunFolderError(f"{path} is damaged ({error}); remove it and run the study again") from error
