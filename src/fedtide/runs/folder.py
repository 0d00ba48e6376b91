"""Writing run folders, and resuming them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.config.effort import LARGE_FLEET_DEVICES
from fedtide.core import yaml12
from fedtide.core.files import is_there, leftovers, machine_fault, write_atomically
from fedtide.core.reading import is_own_file
from fedtide.engine.step import ServerState
from fedtide.errors import RunFolderError
from fedtide.parts import user_code
from fedtide.runs.checkpoint import archive, narrow, to_arrays
from fedtide.runs.identity import check_identity
from fedtide.runs.provenance import commit, instruction_path, policy_files, versions
from fedtide.runs.reading import (
    CHECKPOINT_FORMAT,
    NARROW,
    Manifest,
    check_saved_model,
    check_versions,
    checked_rounds,
    is_complete,
    read_checkpoint,
    read_experiment,
    read_versions,
)
from fedtide.runs.record import COUNTING, ROUND_FORMAT, Ledger, RoundRecord, format_of
from fedtide.types import Vector

# After a SIGKILL whole aggregations of at most this long are repeated, and the one that was under way, however long it took.
CHECKPOINT_SECONDS = 2.0
# Large checkpoints come further apart: so many times as long as the last one took to write, which keeps them at 2 % of a run.
_LARGE_BYTES = 20_000_000
_CHECKPOINT_TIMES = 50

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class InUseError(RunFolderError):
    """Another process is at work in the folder."""


class OtherPathError(RunFolderError):
    """A run was begun on an instruction path that gives other bits than this machine's."""


class StatefulError(RunFolderError):
    """A run cannot be resumed to the same numbers, since one of its policies depends on more than it is called with."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)  # as it was made, so that it comes back whole from another process

    def __str__(self) -> str:
        """Say what the run depends on, and what to do."""
        path, reason = self.args
        return (
            f"{path} cannot be resumed to the same numbers: {reason}, and a resumed run makes its policies anew; begin it "
            "again in a new folder, or let the policy depend on its arguments alone (candidates.tick counts the aggregations, "
            "rng is the same each time; for a cache use functools.lru_cache)"
        )


class _Saved:
    """How far a run has come, and its rounds so far in bytes."""

    def __init__(self) -> None:
        self.state: ServerState | None = None
        self.ledger = Ledger()
        self.length = 0
        self.sha256 = hashlib.sha256()

    def add(self, line: bytes, state: ServerState, ledger: Ledger) -> None:
        self.state, self.ledger = state, ledger
        self.length += len(line)
        self.sha256.update(line)


@dataclass
class RunFolder:
    """One run on disk. Opening and loading change nothing that is there; the first round or the end of the run does."""

    path: Path
    experiment: Experiment
    identity: Mapping[str, str] | None = None  # what the run is made of; None for one that is not simulated
    keeps_state: Callable[[], str] | None = None  # asked at every checkpoint which policy depends on the past; "": none
    _due: float = field(default=-math.inf, repr=False)  # when to save again; the first round is saved at once
    _file: io.BufferedWriter | None = field(default=None, repr=False)
    _last: _Saved = field(default_factory=_Saved, repr=False)  # after the last whole round
    _unchecked: bool = field(default=False, repr=False)  # resumed from a checkpoint that does not say who keeps state
    _format: int = field(default=ROUND_FORMAT, repr=False)  # of the rounds: a run keeps to the one that it was begun in
    _versions: str = field(default="", repr=False)  # versions.json
    _lock: int | None = field(default=None, repr=False)

    @property
    def counts_all(self) -> bool:
        """Whether its records hold all that a ledger counts: a run that was begun in an older format goes on without."""
        return self._format > 2

    @property
    def names_ready(self) -> bool:
        """Whether its records say who was ready; those of a large fleet say how many."""
        return self._format < COUNTING

    @property
    def rounds_path(self) -> Path:
        """Where the rounds are."""
        return self.path / "rounds.jsonl"

    @classmethod
    def open(
        cls,
        path: Path,
        experiment: Experiment,
        identity: Mapping[str, str] | None = None,
        handed: tuple[str, ...] = (),
    ) -> RunFolder:
        """Make the folder, or check that what is in it belongs to this experiment. A complete run needs no lock.

        identity: what the run is made of besides its experiment. handed: which parts of it a caller handed over.
        """
        run = cls(path, experiment, identity)
        run._format = first_format(experiment) if identity is not None else ROUND_FORMAT
        try:
            run._refuse_other_files()
            if not is_complete(path):
                path.mkdir(parents=True, exist_ok=True)
                run._take_lock()  # before anything is written: two may begin at once
            try:
                if is_there(path / "experiment.yaml"):
                    check_folder(path, experiment)
                    check_identity(path, read_versions(path).get("identity"), identity)
                else:
                    run._make(handed)
                run._versions = (path / "versions.json").read_text(encoding="utf-8")
                if run._lock is not None:
                    for left_over, _ in leftovers(path):  # of a process that was killed while it wrote
                        left_over.unlink(missing_ok=True)
            except BaseException:
                run.close()
                raise
        except OSError as error:
            raise machine_fault(path, "used", error) from error
        return run

    def _refuse_other_files(self) -> None:
        """Raise if the folder holds something else than a run.

        Looked at before experiment.yaml is looked for: whoever may be making the run here writes that first.
        """
        names = [each.name for each in self.path.iterdir()] if self.path.is_dir() else []
        others = [name for name in names if name != "versions.json" and not name.startswith(".")]
        if others and not is_there(self.path / "experiment.yaml"):
            raise RunFolderError(f"{self.path} is not empty and holds no run; choose an empty or new folder")

    def _make(self, handed: tuple[str, ...]) -> None:
        """Begin a run: experiment.yaml comes last, so that a folder that has it is whole."""
        tree = {**versions(self.experiment), "commit": commit()}
        if tree["files"] or any(
            map(is_own_file, tracker_names(self.experiment))
        ):  # so that a run is resumed from anywhere
            tree["beside"] = str(user_code.user_code_folder())
        if self.identity is not None:
            tree = {**tree, "identity": dict(self.identity), "handed": list(handed)}
        write_atomically(self.path / "versions.json", json.dumps(tree, indent=2).encode())
        resolved = yaml12.to_yaml(config.dump(self.experiment))
        write_atomically(self.path / "experiment.yaml", resolved.encode())

    def _take_lock(self) -> None:
        """Keep a second process out of this folder; the lock goes with the process, however that ends."""
        if fcntl is None:
            return
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise InUseError(
                f"{self.path} is in use by another process; wait for it or choose another folder"
            ) from error
        except OSError:  # this kind of disk knows no locks, or has run out of them
            os.close(lock)
            raise
        self._lock = lock

    def load(self) -> tuple[ServerState, Ledger, list[RoundRecord]] | None:
        """Return the last checkpoint with the rounds up to it, or None if there is none; raise if anything does not fit.

        What came after it is cut off when the first round is added, and not before.
        """
        saved, complete = read_checkpoint(self.path, self.experiment), is_complete(self.path)
        if saved is None:
            return None
        rounds = checked_rounds(self.path, saved, exactly=complete)
        check_versions(self.path, saved)
        check_identity(self.path, saved.vouch.identity, self.identity)
        if complete:
            check_saved_model(self.path, saved)
        elif saved.vouch.keeps_state:
            raise StatefulError(self.path, saved.vouch.keeps_state)
        self._unchecked = saved.vouch.keeps_state is None
        with open(self.rounds_path, "rb") if rounds else io.BytesIO() as file:
            kept = file.read(saved.length)
        self._format = format_of(json.loads(kept.splitlines()[-1])) if rounds else self._format
        if self._format > COUNTING and not complete:
            raise RunFolderError(
                f"{self.path} was begun by a later fedtide (its rounds are of format {self._format}, and this one writes up to "
                f"{COUNTING}); continue it with that one, or start in a new folder"
            )
        self._last.add(kept, saved.state, saved.ledger)
        return saved.state, saved.ledger, rounds

    def append(self, record: RoundRecord, state: ServerState) -> None:
        """Add one round, with the state after it; write a checkpoint now and then."""
        line = record.to_json(self._format).encode() + b"\n"
        try:
            file = self._rounds()
            file.write(line)
            file.flush()
        except OSError as error:
            raise _resumable(self.rounds_path, error) from error
        self._last.add(line, state, record.ledger)
        if time.monotonic() > self._due:
            self.checkpoint()

    def _rounds(self) -> io.BufferedWriter:
        """Open the rounds to add to them, without what came after the checkpoint that the run goes on from."""
        if self._file is None:
            self._file = open(self.rounds_path, "ab")  # noqa: SIM115 - open as long as the run is
            if os.fstat(self._file.fileno()).st_size > self._last.length:
                self._file.truncate(self._last.length)
        return self._file

    def checkpoint(self) -> None:
        """Save the state after the last whole round. Whatever the rounds file holds beyond it is cut off at a resume."""
        last, state, begun = self._last, self._last.state, time.monotonic()
        if self._file is None or state is None:
            return
        keeps_state = self.keeps_state() if self.keeps_state else None
        if keeps_state and self._unchecked:  # the checkpoint we came from is too old to have said so
            raise StatefulError(self.path, keeps_state)
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _resumable(self.rounds_path, error) from error
        known = sorted(state.models)
        held, uploads = np.array(state.held), np.array(state.uploads)
        arrays: dict[str, Any] = {
            "format": CHECKPOINT_FORMAT if self.names_ready else NARROW,
            "experiment": config.digest(self.experiment),
            "version": state.version,
            "versions": np.array(known, np.int64),
            "models": [state.models[each] for each in known],
            "held": held if self.names_ready else narrow(state.version - held),
            "uploads": uploads if self.names_ready else narrow(uploads),
            "ledger_float": np.array(last.ledger[:2], np.float64),
            "ledger_int": np.array(last.ledger[2:4], np.int64),
            "rounds_bytes": last.length,
            "vouch": json.dumps(
                Manifest(last.sha256.hexdigest(), self._versions, self.identity, keeps_state)._asdict()
            ),
        }
        if self._format > 1:  # rounds of format 1 do not count them, and the two must agree
            arrays["control_bits"] = last.ledger.control_bits
        if self._format > 2:
            arrays["ledger_later"] = np.array(last.ledger[5:], np.float64)
        arrays |= to_arrays(state.memory, state.devices)
        content = archive(arrays)
        write_atomically(self.path / "checkpoint.npz", content)
        now = time.monotonic()
        self._due = now + max(CHECKPOINT_SECONDS, _CHECKPOINT_TIMES * (now - begun) * (len(content) > _LARGE_BYTES))

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
        """Save the final model: the run is complete. One that was complete before is left as it is."""
        if is_complete(self.path) and self._file is None:
            return
        try:
            self._rounds()
        except OSError as error:
            raise _resumable(self.rounds_path, error) from error
        buffer = io.BytesIO()
        np.save(buffer, model)
        write_atomically(self.path / "model.npy", buffer.getvalue())


def in_use(path: Path) -> bool:
    """Say whether a process is at work in a run folder; True if that cannot be told."""
    if fcntl is None:
        return True
    try:
        lock = os.open(path / ".lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def first_format(experiment: Experiment) -> int:
    """Return the format of the rounds of a new simulation."""
    return ROUND_FORMAT if experiment.fleet.num_devices <= LARGE_FLEET_DEVICES else COUNTING


def tracker_names(experiment: Experiment) -> list[str]:
    """Return the names of the trackers that an experiment has."""
    return [tracker.name for tracker in experiment.tracker]


def check_folder(path: Path, experiment: Experiment) -> None:
    """Raise if a folder holds another experiment, or this one with other policy files or on another instruction path."""
    found = read_experiment(path)
    if config.digest(found) != config.digest(experiment):
        raise RunFolderError(
            f"{path} holds another experiment ({_difference(found, experiment)}); choose another folder or remove it"
        )
    begun = read_versions(path)
    before, now = begun.get("files") or {}, policy_files(experiment)
    if changed := {name for name in {*before, *now} if before.get(name) != now.get(name)}:
        raise RunFolderError(
            f"{path} was begun with another version of {', '.join(sorted(changed))}; "
            "restore the file or start in a new folder"
        )
    isa = begun.get("isa")
    if isa is not None and not is_complete(path) and isa != instruction_path(experiment):
        raise OtherPathError(
            f"{path} was begun on the instruction path {isa}, and another gives other bits: set FEDTIDE_ISA={isa}, "
            "continue on such a machine, or start in a new folder"
        )


def _resumable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"{machine_fault(path, 'written', error)}; what was saved is good: resume the run")


def _difference(one: Experiment, other: Experiment) -> str:
    """Name the first key in which two experiments differ."""
    a, b = config.dump(one), config.dump(other)
    for key in config.all_keys():
        group, _, leaf = key.rpartition(".")
        left, right = (tree[group][leaf] if group else tree[leaf] for tree in (a, b))
        if left != right:
            return f"{key} is {left} there and {right} here"
    return "the keys differ"
