"""Run folders: complete at every moment, and resumable to the same bytes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core import yaml12
from fedtide.core.files import file_fault, file_is_there, is_own_file, leftover_files, read_bytes, write_atomically
from fedtide.engine.step import ServerState
from fedtide.errors import FedtideError, RunFolderError
from fedtide.parts import user_code
from fedtide.runs.checkpoint import (
    Checkpoint,
    check_saved_model,
    checkpoint_bytes,
    read_checkpoint,
    unreadable_checkpoint,
)
from fedtide.runs.manifest import Manifest, Versions, manifest_instruction_path, manifest_versions, policy_files
from fedtide.runs.record import MOST_COLUMN_ENTRIES, Ledger, RoundRecord
from fedtide.types import Vector

_FILES = ("experiment.yaml", "versions.json", "rounds.jsonl", "checkpoint.npz", "model.npy", "trace.jsonl")
# After a SIGKILL whole aggregations of at most this long are repeated, and the one that was under way, however long it took.
CHECKPOINT_SECONDS = 2.0
# Large checkpoints come further apart: so many times as long as the last one took to write, which keeps them at 2 % of a run.
_LARGE_BYTES = 20_000_000
_CHECKPOINT_TIMES = 50


class InUseError(RunFolderError):
    """Another process is at work in the folder."""


# Reading: every file once, checked against the others, and nothing is changed.


@dataclass(frozen=True)
class RunHeader:
    """What a run was begun with: experiment.yaml and versions.json, which never change."""

    path: Path
    experiment: Experiment
    versions: Versions

    @functools.cached_property
    def digest(self) -> str:
        """The experiment's."""
        return config.digest(self.experiment)

    @property
    def isa(self) -> str | None:
        """The instruction path on which a simulation was made; None without one (torch), or if devices trained."""
        return None if file_is_there(self.path / "trace.jsonl") else self.versions.isa

    def check(self, experiment: Experiment, identity: Mapping[str, str] | None = None) -> None:
        """Raise if this is another experiment, or was begun with other files, data, parts or another instruction path.

        identity: what the run would be made of here; None: not asked.
        """
        if self.digest != config.digest(experiment):
            there, here = (config.nested_to_dotted(config.dump(each)) for each in (self.experiment, experiment))
            raise RunFolderError(
                f"{self.path} holds another experiment ({_difference(there, here)}); choose another folder or remove it"
            )
        files, now = self.versions.files, policy_files(experiment)
        if changed := {name for name in {*files, *now} if files.get(name) != now.get(name)}:
            raise RunFolderError(
                f"{self.path} was begun with another version of {', '.join(sorted(changed))}; "
                "restore the file or start in a new folder"
            )
        isa = self.versions.isa
        if isa is not None and not is_complete(self.path) and isa != manifest_instruction_path(experiment):
            raise RunFolderError(
                f"{self.path} was begun on the instruction path {isa}, and another gives other bits: set FEDTIDE_ISA={isa}, "
                "continue on such a machine, or start in a new folder"
            )
        before = self.versions.identity
        if before is not None and identity is not None and (difference := _difference(before, identity)):
            raise RunFolderError(
                f"{self.path} was begun with something else ({difference}): continue it from Python with the same dataset, "
                "system and trainer, fedtide.simulate(experiment, folder, dataset=...), or start in a new folder"
            )

    def read(self) -> Run:
        """Read the rest up to the last checkpoint; raise if the files do not fit together."""
        # In the reverse order of writing, so that a run that is going on fits together too.
        complete = is_complete(self.path)
        saved = read_checkpoint(self.path, self.experiment)
        if saved is None:
            return Run(self.path, self.experiment, self.versions, None, [], complete)
        if difference := _difference(saved.manifest.versions.model_dump(), self.versions.model_dump()):
            raise RunFolderError(
                f"{self.path / 'checkpoint.npz'} and {self.path / 'versions.json'} are not of the same run ({difference}); "
                "restore the one that was changed or start in a new folder"
            )
        content, length = _rounds_bytes(self.path), saved.manifest.rounds_bytes
        sha256 = hashlib.sha256(content[:length])
        if sha256.hexdigest() != saved.manifest.rounds_sha256 or (complete and len(content) > length):
            raise RunFolderError(
                f"{self.path / 'rounds.jsonl'} is damaged or was edited: the {len(content):,} bytes are not the {length:,} "
                "whose checksum is in the checkpoint; restore it or start in a new folder"
            )
        rounds = _parsed(self.path, content[:length], len(saved.state.held))
        if complete:
            check_saved_model(self.path, saved)
        return Run(self.path, self.experiment, self.versions, saved, rounds, complete, sha256)


@dataclass(frozen=True)
class Run(RunHeader):
    """A run as its folder holds it, each file read once and checked against the others."""

    checkpoint: Checkpoint | None = field(compare=False, repr=False)  # None before the first
    rounds: list[RoundRecord]  # up to the checkpoint
    complete: bool
    rounds_sha256: Any = field(default=None, compare=False, repr=False)  # hashlib's, of the rounds' bytes

    @property
    def num_parameters(self) -> int | None:
        """Number of parameters d; None before the first checkpoint."""
        return None if self.checkpoint is None else len(self.checkpoint.model)


def read_run_header(folder: Path | str) -> RunHeader:
    """Read what a run was begun with."""
    folder = Path(folder)
    path = folder / "experiment.yaml"
    if not file_is_there(path):
        raise RunFolderError(f"{folder} is not a run folder: it has no experiment.yaml; `fedtide run` makes one")
    for name in _FILES:  # reading a pipe might never end
        if (folder / name).exists() and not (folder / name).is_file() and not (folder / name).is_dir():
            raise RunFolderError(
                f"{folder / name} is not a file but a pipe or a device: restore it or name another folder"
            )
    begun = _read_versions(folder / "versions.json")
    try:
        tree = yaml12.parse_yaml(read_bytes(path).decode("utf-8"))
        with user_code.search_user_folder(begun.files_folder):
            experiment = config.experiment({} if tree is None else tree)
    except OSError as error:
        raise file_fault(path, "read", error) from error
    except (FedtideError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged or of another version: {error}; restore it") from error
    return RunHeader(folder, experiment, begun)


def _read_versions(path: Path) -> Versions:
    beside = path.parent
    if (
        not file_is_there(path)
        and file_is_there(beside / "trace.jsonl")
        and not file_is_there(beside / "checkpoint.npz")
    ):
        return Versions(isa=None, files={})  # a trace that was copied with its experiment alone
    try:
        return Versions.model_validate_json(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:
        remedy = "restore it (checkpoint.npz holds a copy, in `manifest`) or start in a new folder"
        raise unreadable_checkpoint(path, error, remedy) from error


def read_run(folder: Path | str | RunHeader) -> Run:
    """Read a run, finished, stopped or still going on, and change nothing; raise if its files do not fit together.

    folder: its path, or the header that was read there.
    """
    run = (folder if isinstance(folder, RunHeader) else read_run_header(folder)).read()
    if run.checkpoint is None:
        count = _rounds_bytes(run.path).count(b"\n")
        # The first round is saved at once: only a run killed in that instant has a round and no checkpoint.
        if run.complete or (count > 1 and not file_is_there(run.path / "checkpoint.npz")):
            first = f"remove {run.path / 'model.npy'}, then " if run.complete else ""
            raise RunFolderError(
                f"{run.path} holds {count} rounds{' and a final model' if run.complete else ''} but no checkpoint.npz to "
                f"check them against; restore it, or start the run over: {first}`fedtide resume {run.path}`"
            )
    return run


def read_rounds(folder: Path | str) -> list[RoundRecord]:
    """Read the complete rounds of a run, finished or not, those after the last checkpoint too."""
    content = _rounds_bytes(Path(folder))
    return _parsed(Path(folder), content[: content.rfind(b"\n") + 1])  # a last line without end is not complete


def _rounds_bytes(folder: Path) -> bytes:
    path = folder / "rounds.jsonl"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise file_fault(path, "read", error) from error


def _parsed(folder: Path, content: bytes, num_devices: int = MOST_COLUMN_ENTRIES) -> list[RoundRecord]:
    try:
        return [RoundRecord.from_json(line, num_devices) for line in content.decode("utf-8").split("\n")[:-1]]
    except (ValueError, RecursionError) as error:
        raise unreadable_checkpoint(folder / "rounds.jsonl", error, "rerun the experiment in a new folder") from error


def is_complete(folder: Path) -> bool:
    """Say whether a run has reached its horizon."""
    return file_is_there(folder / "model.npy")


def is_deployment_folder(folder: Path) -> bool:
    """Say whether a run took place on real devices; only its own server can continue it, and only with its trace."""
    return file_is_there(folder / "trace.jsonl") or file_is_there(folder / "deployment.json")


def run_folder_in_use(path: Path) -> bool:
    """Say whether a process is at work in a run folder; True if that cannot be told."""
    try:
        with open(path / ".lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Name the first key in which two mappings differ; "" if they are equal."""
    for key in (*there, *here):
        if there.get(key) != here.get(key):
            return f"{key} is {yaml12.shown(there.get(key), 100)} there and {yaml12.shown(here.get(key), 100)} here"
    return ""


# Writing.


@dataclass
class RunFolder:
    """A run that is being written. Opening and loading change nothing that is there; the first round or the end does."""

    header: RunHeader
    _state: ServerState | None = field(default=None, repr=False)  # after the last whole round
    _length: int = field(default=0, repr=False)  # bytes of the rounds up to there
    _sha256: Any = field(default_factory=hashlib.sha256, repr=False)  # of these
    _due: float = field(default=-math.inf, repr=False)  # when to save again; the first round is saved at once
    _file: io.BufferedWriter | None = field(default=None, repr=False)
    _lock: int | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        """Where the run is."""
        return self.header.path

    @classmethod
    def open(
        cls,
        folder: Path | RunHeader,
        experiment: Experiment,
        identity: Mapping[str, str] | None = None,
        handed: tuple[str, ...] = (),
    ) -> RunFolder:
        """Make the folder, or check that what is in it belongs to this experiment. A complete run needs no lock.

        folder: a path, or the header that was read there. identity: what the run is made of besides its experiment; None for
        one that is not simulated. handed: which parts of it a caller handed over.
        """
        header = folder if isinstance(folder, RunHeader) else None
        path = folder.path if isinstance(folder, RunHeader) else folder
        lock = None
        try:
            _refuse_other_files(path)
            if not is_complete(path):
                path.mkdir(parents=True, exist_ok=True)
                lock = _take_lock(path)  # before anything is written: two may begin at once
            if header is None and file_is_there(path / "experiment.yaml"):
                header = read_run_header(path)
            if header is None:
                header = _begin(path, experiment, identity, handed)
            else:
                header.check(experiment, identity)
            if lock is not None:
                for left_over in leftover_files(path):  # of a process that was killed while it wrote
                    left_over.unlink(missing_ok=True)
        except BaseException as error:
            if lock is not None:
                os.close(lock)
            if isinstance(error, OSError):
                raise file_fault(path, "used", error) from error
            raise
        return cls(header, _lock=lock)

    def load(self) -> tuple[ServerState, Ledger, list[RoundRecord]] | None:
        """Return the last checkpoint with the rounds up to it, or None if there is none; raise if anything does not fit.

        What came after it is cut off when the first round is added, and not before.
        """
        run = self.header.read()
        if run.checkpoint is None:
            return None
        state, manifest = run.checkpoint
        self._state, self._length, self._sha256 = state, manifest.rounds_bytes, run.rounds_sha256
        return state, run.rounds[-1].ledger if run.rounds else Ledger(), run.rounds

    def append(self, record: RoundRecord, state: ServerState, _: object = None) -> None:
        """Add one round, with the state after it; write a checkpoint now and then. What else a sink is told is not kept.

        After an error the same round can be added again.
        """
        if state is not self._state:  # else only its checkpoint failed
            line = record.to_json().encode() + b"\n"
            with self._saving_rounds():
                try:
                    file = self._rounds()
                    file.write(line)
                    file.flush()
                except OSError:
                    self._forget_file()  # and with it half a line, which is cut off before the next
                    raise
            self._state = state
            self._length += len(line)
            self._sha256.update(line)
        if time.monotonic() > self._due:
            self.checkpoint()

    def _rounds(self) -> io.BufferedWriter:
        """Open the rounds to add to them, without what came after the checkpoint that the run goes on from."""
        if self._file is None:
            self._file = open(self.path / "rounds.jsonl", "ab")  # noqa: SIM115 - open as long as the run is
            if os.fstat(self._file.fileno()).st_size > self._length:
                self._file.truncate(self._length)
        return self._file

    @contextlib.contextmanager
    def _saving_rounds(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fault = file_fault(self.path / "rounds.jsonl", "written", error)
            raise RunFolderError(f"{fault}; what was saved is good: resume the run") from error

    def checkpoint(self) -> None:
        """Save the state after the last whole round. Whatever the rounds file holds beyond it is cut off at a resume."""
        begun = time.monotonic()
        if self._file is None or self._state is None:
            return
        with self._saving_rounds():
            os.fsync(self._file.fileno())
        manifest = Manifest(
            experiment=self.header.digest,
            rounds_bytes=self._length,
            rounds_sha256=self._sha256.hexdigest(),
            versions=self.header.versions,
        )
        content = checkpoint_bytes(self._state, manifest)
        write_atomically(self.path / "checkpoint.npz", content)
        now = time.monotonic()
        self._due = now + max(CHECKPOINT_SECONDS, _CHECKPOINT_TIMES * (now - begun) * (len(content) > _LARGE_BYTES))

    def finish(self, model: Vector) -> None:
        """Save the final model: the run is complete. One that was complete before is left as it is."""
        if is_complete(self.path) and self._file is None:
            return
        with self._saving_rounds():
            self._rounds()
        buffer = io.BytesIO()
        np.save(buffer, model)
        write_atomically(self.path / "model.npy", buffer.getvalue())

    def _forget_file(self) -> None:
        if self._file is not None:
            # A write that failed has been reported; what it left behind is cut off before the next.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def close(self) -> None:
        """Let go of the folder."""
        self._forget_file()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _refuse_other_files(path: Path) -> None:
    """Raise if the folder holds something else than a run.

    Looked at before experiment.yaml is looked for: a process that makes the run here writes that first.
    """
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    others = [name for name in names if name != "versions.json" and not name.startswith(".")]
    if others and not file_is_there(path / "experiment.yaml"):
        raise RunFolderError(f"{path} is not empty and holds no run; choose an empty or new folder")


def _begin(
    path: Path, experiment: Experiment, identity: Mapping[str, str] | None, handed: tuple[str, ...]
) -> RunHeader:
    """Begin a run: experiment.yaml comes last, so that a folder that has it is whole."""
    found = manifest_versions(experiment)
    has_files = found["files"] or any(is_own_file(tracker.name) for tracker in experiment.tracker)
    beside = quote(os.fsencode(user_code.user_code_folder())) if has_files else None
    made_of = None if identity is None else dict(identity)
    begun = Versions(**found, beside=beside, identity=made_of, handed=list(handed))
    write_atomically(path / "versions.json", json.dumps(begun.model_dump(), indent=2).encode())
    write_atomically(path / "experiment.yaml", yaml12.to_yaml(config.dump(experiment)).encode())
    return RunHeader(path, experiment, begun)


def _take_lock(path: Path) -> int:
    """Keep a second process out of this folder; the lock goes with the process, however that ends."""
    lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # held, or this kind of disk knows no locks
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise InUseError(f"{path} is in use by another process; wait for it or choose another folder") from error
        raise
    return lock
