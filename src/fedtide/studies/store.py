"""Stored results: the experiment of a run, its curves, its uploads, what made it."""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtide import config
from fedtide.config import Experiment, Part
from fedtide.errors import FedtideError, RunFolderError
from fedtide.learning.trainer import backend_of
from fedtide.report.summary import evaluated
from fedtide.runs import (
    UNKNOWN_PATH,
    Ledger,
    RoundRecord,
    machine_fault,
    provenance,
    remove_temporary,
    write_atomically,
    write_new,
)
from fedtide.runs.record import unpack_column
from fedtide.studies import stored_format
from fedtide.studies.stored_format import MOST_RESULT_BYTES, OtherFormatError, check_result, pack_result, unpack_result
from fedtide.types import Floats, Ints

FORMAT, COLUMNS, ZERO, LATER = (
    stored_format.RESULT_FORMAT,
    stored_format.RESULT_COLUMNS,
    stored_format.ZERO,
    stored_format.UNKNOWN_COLUMNS,
)
_ENDING = ".json.gz"
SUMS = "SHA256SUMS"  # in every store: what its files hold, a line each as `sha256sum` writes it
_USUAL_LABELS = 10  # of MNIST and most others; a result says how many there are if they are not as many
_STORED = ("experiment", "columns", "totals", "provenance", "rounds")


class RunResult(NamedTuple):
    """Curves of a finished run, by column, a few totals, and what made it."""

    experiment: dict[str, Any]
    columns: dict[str, list[float | None]]
    totals: dict[str, float | None]
    provenance: dict[str, Any] | None = None  # None: not known
    elsewhere: tuple[RunResult, ...] = ()  # the same run on other instruction paths, as the store has it
    rounds: dict[str, str] | None = None  # columns over all aggregations and uploads, packed; None: older, or too long

    def stored(self) -> dict[str, Any]:
        """Return what is kept of it, as plain data."""
        return {part: getattr(self, part) for part in _STORED if part != "rounds" or self.rounds is not None}

    def column(self, name: str) -> Floats:
        """Return one curve, an entry per evaluation; missing values are NaN."""
        if name in ZERO and name not in self.columns:
            return np.zeros(len(self.columns["time"]))
        if name in LATER and name not in self.columns:
            return np.full(len(self.columns["time"]), np.nan)
        return np.array([np.nan if value is None else value for value in self.columns[name]])

    def ragged(self, name: str) -> tuple[npt.NDArray[Any], Ints]:
        """Return picked, age, capacity (bit/symbol) or lost (1: did not arrive) of all uploads [u], and offsets [n + 1].

        Aggregation t = 1, 2, ..., n has the entries from offsets[t - 1] up to offsets[t].
        """
        return self._round_column(name, stored_format.FLAT), stored_format.offsets(self.rounds or {})

    def each_round(self, name: str) -> npt.NDArray[Any]:
        """Return time, num_ready or counts (of uploads) of all aggregations [n], evaluated or not."""
        return self._round_column(name, stored_format.EACH)

    def _round_column(self, name: str, known: Mapping[str, str]) -> npt.NDArray[Any]:
        if name not in known:
            raise FedtideError(f"{name!r} is no such column; use one of {', '.join(known)}")
        if self.rounds is None:
            raise FedtideError(
                f"this result was stored without its {name} (by an older fedtide); run it again to have it"
            )
        return unpack_column(self.rounds[name])

    @property
    def diverged(self) -> float | None:
        """When its numbers did not stay finite; from then on it counts as a guess. None: they did."""
        return self.totals.get("diverged")

    @property
    def chance(self) -> float:
        """The accuracy of a guess."""
        return 1 / (self.totals.get("num_labels") or _USUAL_LABELS)

    @property
    def engine(self) -> str:
        """Who did the steps of the training."""
        trainer = Part.of(self.experiment.get("learning", {}).get("trainer", "native"))
        return backend_of(trainer.name, trainer.args)

    @property
    def path(self) -> str:
        """The instruction path on which it was made, or the package that trained; other paths give other bits."""
        known, trainer = self.provenance or {}, self.engine
        if trainer == "native":
            return str(known.get("isa") or UNKNOWN_PATH)
        return f"{trainer} {known.get(trainer) or UNKNOWN_PATH}"

    @property
    def paths(self) -> list[str]:
        """The instruction paths on which the store has it, its own first."""
        return [self.path, *(each.path for each in self.elsewhere)]


def from_rounds(
    experiment: Experiment,
    rounds: Sequence[RoundRecord],
    num_parameters: int,
    seconds: float | None,
    num_labels: int = _USUAL_LABELS,
    left: Sequence[tuple[int, float]] = (),
) -> RunResult:
    """Condense the rounds of a run.

    left: the evaluations (index, time) of a run that diverged, from that moment on. It counts as a guess there, with
    accuracy 1/num_labels and loss log(num_labels), and spends no more.
    """
    scored = evaluated(rounds)
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
    if num_labels != _USUAL_LABELS:
        totals["num_labels"] = num_labels
    rows = [{**each._asdict(), **each.ledger._asdict()} for each in scored]
    spent, loss = rounds[-1].ledger if rounds else Ledger(), math.log(num_labels)
    guess = {"test_accuracy": 1 / num_labels, "test_loss": loss, **spent._asdict()}
    guess["train_loss"] = loss if experiment.learning.training_loss else None
    rows += [{"index": index, "time": when, **guess} for index, when in left]
    if left:
        totals["diverged"] = left[0][1]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    columns = {name: values for name, values in columns.items() if name not in (*ZERO, *LATER) or any(values)}
    return RunResult(
        config.dump(experiment), columns, totals, provenance(experiment), rounds=stored_format.condensed(rounds)
    )


def same(one: RunResult, other: RunResult) -> bool:
    """Say whether two results are equal in everything but wall time and provenance.

    Single uploads, and columns that older results lack, are compared if both have them; uploads not as text: another zlib
    packs otherwise.
    """
    a, b = ({**each.totals, "seconds": None} for each in (one, other))
    lacking = {name for name in LATER if name not in one.columns or name not in other.columns}
    first, second = ({k: v for k, v in each.columns.items() if k not in lacking} for each in (one, other))
    if (first, a) != (second, b):
        return False
    if one.rounds is None or other.rounds is None:
        return True
    packed, other_packed = (
        {name: unpack_column(each).tobytes() for name, each in rounds.items()} for rounds in (one.rounds, other.rounds)
    )
    return packed == other_packed


class Store:
    """A folder of results, one small gzipped file per run, named by the run's hash.

    A run is kept once per instruction path: what is there first is NAME.json.gz, and the same run on another path lies
    beside it as NAME.PATH.json.gz, so that every comparison can be read on one path.

    SHA256SUMS has the checksum of every file, written before the file itself. Lines are only added, so that several
    processes may write; any of a file's lines will do. A file without a line (of an older store) is believed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sums: dict[str, set[str]] = {}

    def prepare(self) -> None:
        """Make the folder; clear away what writers that were killed left in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise machine_fault(self.folder, "made", error) from error
        remove_temporary(self.folder)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"

    def _beside(self, name: str, path: str) -> Path:
        return self.folder / f"{name}.{_word(path)}{_ENDING}"

    def all_files(self) -> dict[str, list[Path]]:
        """Return the files of every run by its name, the first one first; by one look at the folder."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise machine_fault(self.folder, "read", error) from error
        found: dict[str, list[Path]] = {}
        for file in names:
            if file.endswith(_ENDING) and not file.startswith("."):
                name, _, path = file.removesuffix(_ENDING).partition(".")
                found.setdefault(name, []).insert(0 if not path else len(found[name]), self.folder / file)
        return found

    def has(self, name: str, path: str | None = None) -> bool:
        """Say whether a run is finished, on a certain instruction path or on any."""
        if path is not None:
            return self.has(name) and path in self.load(name).paths
        return self._path(name).exists() or name in self.all_files()

    def save(self, name: str, result: RunResult) -> None:
        """Keep a finished run: beside the one that is there, if that was made on another instruction path."""
        self.prepare()
        content = pack_result({"format": FORMAT, **result.stored()})
        if not os.path.lexists(self._path(name)):
            self._add_sum(self._path(name), content)
            if write_new(self._path(name), content):
                return
        try:
            other = self.read(self._path(name)).path != result.path
        except RunFolderError:  # whatever it is, it stays, and so does the new one
            other = True
        self.write(self._beside(name, result.path) if other else self._path(name), content)

    def write(self, file: Path, content: bytes) -> None:
        """Put a file of the store in place, and its checksum before it."""
        self._add_sum(file, content)
        write_atomically(file, content)

    def _add_sum(self, file: Path, content: bytes) -> None:
        line = f"{hashlib.sha256(content).hexdigest()}  {file.name}\n"
        try:
            with open(self.folder / SUMS, "ab", buffering=0) as sums:  # one write, which no other writer divides
                sums.write(line.encode())
        except OSError as error:
            raise machine_fault(self.folder / SUMS, "written", error) from error

    def _check_sum(self, file: Path, content: bytes) -> None:
        """Raise if a file is not what was stored; the list is read again if another process may have added to it."""
        digest = hashlib.sha256(content).hexdigest()
        known = self._sums.get(file.name, set())
        if digest not in known:
            known = self._read_sums().get(file.name, {digest})
        if digest not in known:
            raise _damaged(file, f"it is not what {SUMS} says was stored: edited, or not copied whole")

    def _read_sums(self) -> dict[str, set[str]]:
        try:
            text = (self.folder / SUMS).read_text(errors="replace")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise machine_fault(self.folder / SUMS, "read", error) from error
        self._sums = {}
        for digest, name in re.findall(r"^([0-9a-f]{64}) [ *](\S+)$", text, re.M):
            self._sums.setdefault(name, set()).add(digest)
        return self._sums

    def load(self, name: str, kept: Mapping[str, Sequence[Path]] | None = None) -> RunResult:
        """Read a finished run, with its results on other instruction paths.

        kept: all files, if the caller has looked already; one look is enough for many runs.
        """
        files = (self.all_files() if kept is None else kept).get(name, [])
        if not files:
            raise RunFolderError(f"{self._path(name)} is not there (any more); run the study again")
        found: dict[str, RunResult] = {}
        for result in map(self.read, files):
            found.setdefault(result.path, result)
        first, *others = found.values()
        return first._replace(elsewhere=tuple(others))

    def read(self, file: Path) -> RunResult:
        """Read one file of the store; raise if it is not a result, or not the one that its name says."""
        name, _, path = file.name.removesuffix(_ENDING).partition(".")
        content = _content(file)
        tree = _tree(file, content)
        try:
            check_result(tree, name)
            found: dict[str, Any] = {part: tree.get(part) for part in _STORED}
            result = RunResult(**found)
            if path and path != _word(result.path):
                raise ValueError(f"it was made on {result.path}, not on the path that its name says")
        except ValueError as error:
            raise _damaged(file, error) from error
        self._check_sum(file, content)
        return result


def read_tree(file: Path) -> dict[str, Any]:
    """Return what a file of a store holds, unchecked but for its format."""
    return _tree(file, _content(file))


def _content(file: Path) -> bytes:
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise _damaged(file, "it is no regular file")
            return opened.read(MOST_RESULT_BYTES + 1)
    except IsADirectoryError as error:
        raise _damaged(file, "it is a folder") from error
    except OSError as error:
        raise machine_fault(file, "read", error) from error


def _tree(file: Path, content: bytes) -> dict[str, Any]:
    try:
        return unpack_result(content)
    except OtherFormatError as error:
        raise RunFolderError(f"{file} {error}: use the fedtide that made it, or another --store") from error
    except ValueError as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, why: object) -> RunFolderError:
    return RunFolderError(f"{file} is damaged ({why}); restore it, or remove it and run the study again")


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe in its place is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _word(path: str) -> str:
    """Write an instruction path, or a package with its version, as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", path)
