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
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

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
    _saved_at: float = field(default=0.0, repr=False)
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
        path = self.path / "checkpoint.npz"
        if not path.exists():
            self.rounds_path.unlink(missing_ok=True)
            return None
        try:
            with open(path, "rb") as file, np.load(file) as saved:
                if int(saved["format"]) != FORMAT or str(saved["experiment"]) != config.digest(self.experiment):
                    raise RunFolderError(
                        f"{path} is a checkpoint of another experiment or version; start in a new folder"
                    )
                models = dict(zip(saved["versions"].tolist(), saved["models"], strict=True))
                state = ServerState(int(saved["version"]), models, saved["held"], saved["uploads"])
                ledger = Ledger(*saved["ledger_float"].tolist(), *saved["ledger_int"].tolist())
                length = int(saved["rounds_bytes"])
        except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
            raise RunFolderError(f"{path} is damaged ({error}); start in a new folder") from error
        if not self.rounds_path.exists() or self.rounds_path.stat().st_size < length:
            raise RunFolderError(f"{self.rounds_path} is shorter than the checkpoint says; start in a new folder")
        os.truncate(self.rounds_path, length)
        rounds = read_rounds(self.path)
        if len(rounds) != state.version - 1:
            raise RunFolderError(f"{self.rounds_path} does not match the checkpoint; start in a new folder")
        return state, ledger, rounds

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


def read_experiment(folder: Path) -> Experiment:
    """Read a run's resolved experiment."""
    path = folder / "experiment.yaml"
    if not path.exists():
        raise RunFolderError(f"{folder} is not a run folder: it has no experiment.yaml; `fedtide run` makes one")
    try:
        return config.experiment(config.read_file(path))
    except FedtideError as error:
        raise RunFolderError(f"{path} is damaged or of another version: {error}") from error


def read_rounds(folder: Path) -> list[RoundRecord]:
    """Read the complete rounds of a run, finished or not."""
    try:
        lines = (
            (folder / "rounds.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        )  # a last line without end is not complete
    except FileNotFoundError:
        return []
    try:
        return [RoundRecord.from_json(line) for line in lines]
    except (ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            f"{folder / 'rounds.jsonl'} is damaged ({error}); rerun the experiment in a new folder"
        ) from error


def read_model_size(folder: Path) -> int:
    """Return d of a run's model; 1 while nothing has been saved."""
    try:
        if (folder / "model.npy").exists():
            return int(np.load(folder / "model.npy").shape[0])
        if (folder / "checkpoint.npz").exists():
            with open(folder / "checkpoint.npz", "rb") as file, np.load(file) as saved:
                return int(saved["models"].shape[1])
    except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
        raise RunFolderError(
            f"{folder} holds a damaged model ({error}); rerun the experiment in a new folder"
        ) from error
    return 1


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
