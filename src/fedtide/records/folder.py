"""Writing run folders, and resuming them."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config, forms, plugins
from fedtide.config import Experiment
from fedtide.errors import RunFolderError
from fedtide.records.files import write_atomically
from fedtide.records.provenance import policy_files, versions
from fedtide.records.reading import (
    FORMAT,
    check_length,
    check_rounds,
    is_complete,
    read_checkpoint,
    read_experiment,
    read_rounds,
)
from fedtide.records.round import Ledger, RoundRecord
from fedtide.server import ServerState
from fedtide.types import Vector

CHECKPOINT_SECONDS = 2.0  # at most this much work is repeated after a SIGKILL

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class InUseError(RunFolderError):
    """Another process is at work in the folder."""


class OtherPathError(RunFolderError):
    """A run was begun on an instruction path that gives other bits than this machine's."""


@dataclass
class RunFolder:
    """One run on disk."""

    path: Path
    experiment: Experiment
    _saved_at: float = field(default=-math.inf, repr=False)  # the first round is saved at once
    _file: io.BufferedWriter | None = field(default=None, repr=False)
    _last: tuple[ServerState, Ledger, int] | None = field(default=None, repr=False)  # after the last whole round
    _lock: int | None = field(default=None, repr=False)

    @property
    def rounds_path(self) -> Path:
        """Where the rounds are."""
        return self.path / "rounds.jsonl"

    @classmethod
    def open(cls, path: Path, experiment: Experiment) -> RunFolder:
        """Make the folder, or check that what is in it belongs to this experiment."""
        run = cls(path, experiment)
        try:
            run._refuse_other_files()
            path.mkdir(parents=True, exist_ok=True)
            run._take_lock()  # before anything is written: two may begin at once
            try:
                for left_over in path.glob(".*.part"):  # of a process that was killed while it wrote
                    left_over.unlink(missing_ok=True)
                if (path / "experiment.yaml").exists():
                    run._check()
                else:
                    run._make()
            except BaseException:
                run.close()
                raise
        except OSError as error:
            raise RunFolderError(
                f"{path} cannot be used ({error.strerror}): choose a folder that you may write to"
            ) from error
        return run

    def _check(self) -> None:
        """Raise if the folder holds another experiment, or this one with other policy files."""
        found = read_experiment(self.path)
        if config.digest(found) != config.digest(self.experiment):
            raise RunFolderError(
                f"{self.path} holds another experiment ({_difference(found, self.experiment)}); "
                "choose another folder or remove it"
            )
        begun = _read_json(self.path / "versions.json")
        before, now = begun.get("files", {}), policy_files(self.experiment)
        if before != now:
            raise RunFolderError(
                f"{self.path} was begun with another version of {', '.join(sorted({*before, *now}))}; "
                "restore the file or start in a new folder"
            )
        path = begun.get("isa")
        if path is not None and not is_complete(self.path) and path != versions(self.experiment)["isa"]:
            raise OtherPathError(
                f"{self.path} was begun on the instruction path {path}, and another gives other bits: set FEDTIDE_ISA={path}, "
                "continue on such a machine, or start in a new folder"
            )

    def _refuse_other_files(self) -> None:
        """Raise if the folder holds something else than a run.

        Looked at before experiment.yaml is looked for: whoever may be making the run here writes that first.
        """
        names = [each.name for each in self.path.iterdir()] if self.path.is_dir() else []
        others = [name for name in names if name != "versions.json" and not name.startswith(".")]
        if others and not (self.path / "experiment.yaml").exists():
            raise RunFolderError(f"{self.path} is not empty and holds no run; choose an empty or new folder")

    def _make(self) -> None:
        """Begin a run: experiment.yaml comes last, so that a folder that has it is whole."""
        begun = versions(self.experiment)
        if begun["files"]:  # so that a run is resumed from anywhere
            begun["beside"] = str(plugins.policy_folder())
        write_atomically(self.path / "versions.json", json.dumps(begun, indent=2).encode())
        resolved = forms.write(config.dump(self.experiment))
        write_atomically(self.path / "experiment.yaml", resolved.encode())

    def _take_lock(self) -> None:
        """Keep a second process out of this folder; the lock goes with the process, however that ends."""
        if fcntl is None:
            return
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise InUseError(
                f"{self.path} is in use by another process; wait for it or choose another folder"
            ) from error
        self._lock = lock

    def load(self) -> tuple[ServerState, Ledger, list[RoundRecord]] | None:
        """Return the last checkpoint with the rounds up to it, and cut off what came after; None if there is none."""
        saved = read_checkpoint(self.path, self.experiment)
        if saved is None:
            self.rounds_path.unlink(missing_ok=True)
            return None
        check_length(self.path, saved.length)
        try:
            os.truncate(self.rounds_path, saved.length)
        except OSError as error:
            raise RunFolderError(
                f"{self.rounds_path} cannot be written ({error.strerror}): make it writable and resume the run"
            ) from error
        rounds = read_rounds(self.path)
        check_rounds(self.path, rounds, saved)
        return saved.state, saved.ledger, rounds

    def append(self, record: RoundRecord, state: ServerState) -> None:
        """Add one round, with the state after it; write a checkpoint now and then."""
        try:
            if self._file is None:
                self._file = open(self.rounds_path, "ab")  # noqa: SIM115 - open as long as the run is
            self._file.write(record.to_json().encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise RunFolderError(
                f"{self.rounds_path} cannot be written ({error.strerror}): free space and resume the run"
            ) from error
        self._last = state, record.ledger, self._file.tell()
        if time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save the state after the last whole round. Whatever the rounds file holds beyond it is cut off at a resume."""
        if self._file is None or self._last is None:
            return
        state, ledger, length = self._last
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunFolderError(
                f"{self.rounds_path} cannot be written ({error.strerror}): free space and resume the run"
            ) from error
        buffer = io.BytesIO()
        known = sorted(state.models)
        np.savez(
            buffer,
            format=FORMAT,
            experiment=config.digest(self.experiment),
            version=state.version,
            versions=np.array(known, np.int64),
            models=np.stack([state.models[each] for each in known]),
            held=state.held,
            uploads=state.uploads,
            ledger_float=np.array(ledger[:2], np.float64),
            ledger_int=np.array(ledger[2:], np.int64),
            rounds_bytes=length,
        )
        write_atomically(self.path / "checkpoint.npz", buffer.getvalue())
        self._saved_at = time.monotonic()

    def close(self) -> None:
        """Let go of the folder."""
        if self._file is not None:
            # A write that failed has been reported; what it left behind is cut off at a resume.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def finish(self, model: Vector) -> None:
        """Save the final model: the run is complete."""
        buffer = io.BytesIO()
        np.save(buffer, model)
        write_atomically(self.path / "model.npy", buffer.getvalue())


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        tree: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}); start in a new folder") from error
    return tree


def _difference(one: Experiment, other: Experiment) -> str:
    """Name the first key in which two experiments differ."""
    a, b = config.dump(one), config.dump(other)
    for key in config.all_keys():
        group, _, leaf = key.rpartition(".")
        left, right = (tree[group][leaf] if group else tree[leaf] for tree in (a, b))
        if left != right:
            return f"{key} is {left} there and {right} here"
    return "the keys differ"
