"""Run folders: complete at every moment, and resumable to the same bytes.

experiment.yaml   the resolved experiment
versions.json     what ran it, and the digests of the user's policy files
rounds.jsonl      one line per aggregation
checkpoint.npz    the server's state after some aggregation, with how far rounds.jsonl had come
model.npy         the final model, once the run is complete

Files are written aside, synced and renamed; rounds.jsonl is only appended to, synced before a checkpoint names its length,
and cut back to that length when a run is resumed.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError, RunFolderError
from fedtide.plugins import source_digest
from fedtide.server import ServerState
from fedtide.types import Vector

CHECKPOINT_SECONDS = 2.0  # at most this much work is repeated after a SIGKILL
FORMAT = 1

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Ledger(NamedTuple):
    """What the run has spent so far."""

    symbols: float = 0.0
    bits: float = 0.0
    samples_used: int = 0  # visited in trainings whose updates were sent
    samples_trained: int = 0  # visited by all ready devices; the rest of it was wasted


class RoundRecord(NamedTuple):
    """One aggregation. Lists run over the picked devices, ascending."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    time: float
    ready: list[int]
    picked: list[int]
    age: list[int]
    capacity: list[float]  # bit/symbol
    symbols: list[float]
    budget_bits: list[float]
    sent_bits: list[float]  # payloads, at most the budget
    overhead_bits: list[int]  # headers and checksums, which no budget counts
    num_kept: list[int]
    label_variance: float
    proved_minimal: bool | None
    weight: list[float]
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    ledger: Ledger

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps({**self._asdict(), "ledger": self.ledger._asdict()}, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> RoundRecord:
        """Read one line of JSON."""
        tree = json.loads(line)
        return cls(**{**tree, "ledger": Ledger(**tree["ledger"])})


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside, sync, rename: the file is the old one or the new one, never half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror}): free space or choose another folder"
        ) from error


def versions(experiment: Experiment) -> dict[str, Any]:
    """Return what a result may depend on besides the experiment."""
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("fedtide", "numpy", "scipy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["files"] = policy_files(experiment)
    return found


def policy_files(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of the user's own files that an experiment names, by name."""
    named = (
        experiment.timeline.name,
        experiment.policy.scheduler,
        experiment.policy.weighting,
        experiment.policy.combiner,
        experiment.codec.name,
        experiment.learning.model,
    )
    return {name: digest for name in named if (digest := source_digest(name))}


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
            if (path / "experiment.yaml").exists():
                run._check()
            else:
                run._make()
            run._take_lock()
            for left_over in path.glob(".*.part"):  # of a process that was killed while it wrote
                left_over.unlink(missing_ok=True)
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
        before = _read_json(self.path / "versions.json").get("files", {})
        now = versions(self.experiment)["files"]
        if before != now:
            raise RunFolderError(
                f"{self.path} was begun with another version of {', '.join(sorted({*before, *now}))}; "
                "restore the file or start in a new folder"
            )

    def _make(self) -> None:
        """Begin a run: experiment.yaml comes last, so that a folder that has it is whole."""
        self.path.mkdir(parents=True, exist_ok=True)
        if any(each.name != "versions.json" for each in self.path.iterdir() if not each.name.startswith(".")):
            raise RunFolderError(f"{self.path} is not empty and holds no run; choose an empty or new folder")
        write_atomically(self.path / "versions.json", json.dumps(versions(self.experiment), indent=2).encode())
        resolved = yaml.safe_dump(config.dump(self.experiment), sort_keys=False)
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
            raise RunFolderError(
                f"{self.path} is in use by another process; wait for it or choose another folder"
            ) from error
        self._lock = lock

    def load(self) -> tuple[ServerState, Ledger, list[RoundRecord]] | None:
        """Return the last checkpoint with the rounds up to it, and cut off what came after; None if there is none."""
        saved = _read_checkpoint(self.path, self.experiment)
        if saved is None:
            self.rounds_path.unlink(missing_ok=True)
            return None
        _check_length(self.path, saved.length)
        try:
            os.truncate(self.rounds_path, saved.length)
        except OSError as error:
            raise RunFolderError(
                f"{self.rounds_path} cannot be written ({error.strerror}): make it writable and resume the run"
            ) from error
        rounds = read_rounds(self.path)
        _check_rounds(self.path, rounds, saved)
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


class Checkpoint(NamedTuple):
    """What checkpoint.npz holds."""

    state: ServerState
    ledger: Ledger
    length: int  # of rounds.jsonl, in bytes

    @property
    def model(self) -> Vector:
        """The newest model [d]."""
        return self.state.models[self.state.version]


def _read_checkpoint(folder: Path, experiment: Experiment) -> Checkpoint | None:
    """Read a run's checkpoint, or None if it has none; raise if it is damaged or belongs to another experiment."""
    path = folder / "checkpoint.npz"
    try:
        with open(path, "rb") as file, np.load(file) as saved:
            if int(saved["format"]) != FORMAT or str(saved["experiment"]) != config.digest(experiment):
                raise RunFolderError(
                    f"{path} is a checkpoint of another experiment or version than experiment.yaml beside it, whose "
                    f"digest is {config.digest(experiment)}; restore experiment.yaml or start in a new folder"
                )
            models = dict(zip(saved["versions"].tolist(), saved["models"], strict=True))
            state = ServerState(int(saved["version"]), models, saved["held"], saved["uploads"])
            ledger = Ledger(*saved["ledger_float"].tolist(), *saved["ledger_int"].tolist())
            found = Checkpoint(state, ledger, int(saved["rounds_bytes"]))
            found.model  # noqa: B018 - KeyError if the newest model is not among them
            return found
    except FileNotFoundError:
        return None
    except RunFolderError:
        raise
    except Exception as error:  # a damaged archive raises a dozen kinds, from OSError to tokenize.TokenError
        raise RunFolderError(f"{path} is damaged ({_why(error)}); start in a new folder") from error


def _why(error: Exception) -> str:
    """Say in one line why a file of arrays cannot be read. NumPy's advice to load pickles would run whatever is in it."""
    text = " ".join(str(error).split())
    return "it is not a file of plain NumPy arrays" if "pickle" in text else text or type(error).__name__


def _check_length(folder: Path, length: int, *, exactly: bool = False) -> None:
    """Raise if rounds.jsonl is shorter than a checkpoint says; a complete run has not a byte beyond it either."""
    path = folder / "rounds.jsonl"
    found = path.stat().st_size if path.exists() else 0
    if found < length:
        raise RunFolderError(
            f"{path} is shorter than the checkpoint says ({found:,} bytes, not {length:,}); "
            "restore it or start in a new folder"
        )
    if exactly and found > length:
        raise RunFolderError(
            f"{path} goes on after the end of a complete run ({found:,} bytes, not {length:,}); "
            "restore it or start in a new folder"
        )


def _check_rounds(folder: Path, rounds: Sequence[RoundRecord], saved: Checkpoint) -> None:
    """Raise if these rounds are not the ones that a checkpoint was made after."""
    count = saved.state.version - 1
    if [each.index for each in rounds] != list(range(1, count + 1)) or (rounds and rounds[-1].ledger != saved.ledger):
        raise RunFolderError(
            f"{folder / 'rounds.jsonl'} does not match the checkpoint, which counts {count} rounds; "
            "restore it or start in a new folder"
        )


class Kept(NamedTuple):
    """A run as its folder holds it, each file checked against the others."""

    experiment: Experiment
    rounds: list[RoundRecord]
    num_parameters: int | None  # d; None before the first checkpoint
    complete: bool


def read_run(folder: Path) -> Kept:
    """Read a run, finished, stopped or still going on, and change nothing; raise if its files do not fit together."""
    # Read in the reverse order of writing, so that a run that is going on fits together too.
    experiment, complete = read_experiment(folder), is_complete(folder)
    saved = _read_checkpoint(folder, experiment)
    rounds = read_rounds(folder)
    if saved is None:
        # The first round is saved at once: only a run killed in that instant has a round and no checkpoint.
        if complete or (len(rounds) > 1 and not (folder / "checkpoint.npz").exists()):
            raise RunFolderError(
                f"{folder} holds {len(rounds)} rounds{' and a final model' if complete else ''} but no checkpoint.npz "
                f"to check them against; {_start_over(folder, complete)}"
            )
        return Kept(experiment, rounds, None, complete)
    _check_length(folder, saved.length, exactly=complete)
    _check_rounds(folder, rounds[: saved.state.version - 1], saved)
    if complete:
        _check_model(folder, saved)
    return Kept(experiment, rounds, len(saved.model), complete)


def _start_over(folder: Path, complete: bool) -> str:
    first = f"remove {folder / 'model.npy'}, then " if complete else ""
    return f"restore it, or start the run over: {first}`fedtide resume {folder}`"


def _check_model(folder: Path, saved: Checkpoint) -> None:
    """Raise if the final model is not the checkpoint's newest."""
    path = folder / "model.npy"
    remedy = f"remove it and make it again from the checkpoint with `fedtide resume {folder}`"
    try:
        with open(path, "rb") as file:
            model = np.load(file)
    except Exception as error:  # as above
        raise RunFolderError(f"{path} is damaged ({_why(error)}); {remedy}") from error
    if (
        not isinstance(model, np.ndarray)
        or model.shape != saved.model.shape
        or model.tobytes() != saved.model.tobytes()
    ):
        raise RunFolderError(f"{path} is damaged (it is not the model of the checkpoint); {remedy}")


def read_experiment(folder: Path) -> Experiment:
    """Read a run's resolved experiment."""
    path = folder / "experiment.yaml"
    if not path.exists():
        raise RunFolderError(f"{folder} is not a run folder: it has no experiment.yaml; `fedtide run` makes one")
    try:
        return config.experiment(config.read_file(path))
    except FedtideError as error:
        raise RunFolderError(f"{path} is damaged or of another version: {error}; restore it") from error


def read_rounds(folder: Path) -> list[RoundRecord]:
    """Read the complete rounds of a run, finished or not."""
    try:
        lines = (
            (folder / "rounds.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        )  # a last line without end is not complete
        return [RoundRecord.from_json(line) for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            f"{folder / 'rounds.jsonl'} is damaged ({error}); rerun the experiment in a new folder"
        ) from error


def is_complete(folder: Path) -> bool:
    """Say whether a run has reached its horizon."""
    return (folder / "model.npy").exists()


def is_deployment(folder: Path) -> bool:
    """Say whether a run took place on real devices; only its own server can continue it."""
    return (folder / "trace.jsonl").exists()


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
