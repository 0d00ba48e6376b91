"""Reading run folders: every file is checked against the others, and nothing is changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.files import is_there, machine_fault
from fedtide.core.versioned import VersionedArray
from fedtide.engine.step import ServerState
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs import record
from fedtide.runs.checkpoint import from_arrays, widened
from fedtide.runs.record import Ledger, RoundRecord
from fedtide.types import Vector

_FILES = ("experiment.yaml", "versions.json", "rounds.jsonl", "checkpoint.npz", "model.npy", "trace.jsonl")
CHECKPOINT_FORMAT = 2  # of checkpoint.npz; 1 had neither checksum nor `vouch`
NARROW = (
    3  # of large fleets: how many versions back each device holds, and its uploads, in as few bytes as hold the largest
)


class Manifest(NamedTuple):
    """What a checkpoint says about the files beside it. A checkpoint of format 1 says nothing."""

    rounds_sha256: str | None = None  # of rounds.jsonl up to the checkpoint's length
    versions: str | None = None  # versions.json, to the letter: instruction path, policy files
    identity: Mapping[str, str] | None = None  # what the run is made of besides its experiment
    keeps_state: str | None = None  # how a user's policy was seen to depend on the past; "": none was


class Checkpoint(NamedTuple):
    """What checkpoint.npz holds."""

    state: ServerState
    ledger: Ledger
    length: int  # of rounds.jsonl, in bytes
    vouch: Manifest = Manifest()

    @property
    def model(self) -> Vector:
        """The newest model [d]."""
        return self.state.models[self.state.version]


def read_checkpoint(folder: Path, experiment: Experiment) -> Checkpoint | None:
    """Read a run's checkpoint, or None if it has none; raise if it is damaged or belongs to another experiment."""
    path = folder / "checkpoint.npz"
    try:
        with open(path, "rb") as file, np.load(file) as saved:
            kind = int(saved["format"])
            if kind not in (1, CHECKPOINT_FORMAT, NARROW) or str(saved["experiment"]) != config.digest(experiment):
                raise RunFolderError(
                    f"{path} is a checkpoint of another experiment or version than experiment.yaml beside it, whose "
                    f"digest is {config.digest(experiment)}; restore experiment.yaml or start in a new folder"
                )
            models = dict(zip(saved["versions"].tolist(), saved["models"], strict=True))
            memory, devices = from_arrays({name: saved[name] for name in saved.files if "/" in name})
            version, held, uploads = int(saved["version"]), saved["held"], saved["uploads"]
            if kind == NARROW:
                held, uploads = version - widened(held), widened(uploads)
            count = experiment.fleet.num_devices
            state = ServerState(version, models, _per_device(held, count), _per_device(uploads, count), memory, devices)
            _check_state(state)
            ledger = Ledger(*saved["ledger_float"].tolist(), *saved["ledger_int"].tolist())
            if "control_bits" in saved:  # a run whose rounds are of format 1 counts none
                ledger = ledger._replace(control_bits=float(saved["control_bits"]))
            if "ledger_later" in saved:  # since format 3
                ledger = Ledger(*ledger[:5], *saved["ledger_later"].tolist())
            vouch = Manifest() if kind == 1 else Manifest(**json.loads(str(saved["vouch"])))
            return Checkpoint(state, ledger, int(saved["rounds_bytes"]), vouch)
    except FileNotFoundError:
        return None
    except RunFolderError:
        raise
    except MemoryError as error:
        raise RunFolderError(f"{path} does not fit into memory; free some and try again") from error
    except Exception as error:  # a damaged archive raises a dozen kinds, from OSError to tokenize.TokenError
        if isinstance(error, OSError) and error.errno:
            raise machine_fault(path, "read", error) from error
        raise RunFolderError(f"{path} is damaged ({why(error)}); restore it or start in a new folder") from error


def _per_device(values: Any, num_devices: int) -> VersionedArray:
    """Return a column of the devices [N]; raise ValueError if it is none."""
    if values.shape != (num_devices,) or values.dtype != np.int64:
        raise ValueError(f"it is not of {num_devices} devices")
    return VersionedArray(values)


def _check_state(state: ServerState) -> None:
    """Raise ValueError if a server cannot be in this state."""
    if state.version not in state.models or not {*state.held.tally} <= {*state.models}:
        raise ValueError("it lacks a model that is needed")
    if any(each.dtype != np.float32 or each.ndim != 1 for each in state.models.values()):
        raise ValueError("its models are no vectors of float32")


def why(error: Exception) -> str:
    """Say in one line why a file of arrays cannot be read. NumPy's advice to load pickles would run whatever is in it."""
    text = " ".join(str(error).split())[:200]
    return "it is not a file of plain NumPy arrays" if "pickle" in text else text or type(error).__name__


def checked_rounds(folder: Path, saved: Checkpoint, *, exactly: bool = False) -> list[RoundRecord]:
    """Return the rounds that a checkpoint was made after; raise if the file is not as it was then.

    exactly: a complete run has not a byte beyond them.
    """
    path, restore = folder / "rounds.jsonl", "restore it or start in a new folder"
    content = _rounds_bytes(folder)
    if len(content) < saved.length:
        raise RunFolderError(
            f"{path} is shorter than the checkpoint says ({len(content):,} bytes, not {saved.length:,}); {restore}"
        )
    if exactly and len(content) > saved.length:
        raise RunFolderError(
            f"{path} goes on after the end of a complete run ({len(content):,} bytes, not {saved.length:,}); {restore}"
        )
    content = content[: saved.length]
    wanted = saved.vouch.rounds_sha256
    if wanted is not None and hashlib.sha256(content).hexdigest() != wanted:
        raise RunFolderError(
            f"{path} is damaged or was edited (its first {saved.length:,} bytes do not have the checksum in the checkpoint); "
            f"{restore}"
        )
    rounds, count = _parsed(folder, content, len(saved.state.held)), saved.state.version - 1
    if [each.index for each in rounds] != list(range(1, count + 1)) or (rounds and rounds[-1].ledger != saved.ledger):
        raise RunFolderError(f"{path} does not match the checkpoint, which counts {count} rounds; {restore}")
    return rounds


def check_versions(folder: Path, saved: Checkpoint) -> None:
    """Raise if versions.json is not what the run that made this checkpoint was begun with."""
    if saved.vouch.versions is None:
        return
    path = folder / "versions.json"
    here, there = read_versions(folder), json.loads(saved.vouch.versions)
    for key in (*there, *here):
        if here.get(key) != there.get(key):
            raise RunFolderError(
                f"{folder / 'checkpoint.npz'} and {path} are not of the same run ({key} is {_brief(there.get(key))} in the one "
                f"and {_brief(here.get(key))} in the other); restore the one that was changed or start in a new folder"
            )


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def read_versions(folder: Path) -> dict[str, Any]:
    """Read what a run was begun with; raise if it is damaged."""
    path = folder / "versions.json"
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(tree, dict):
            raise ValueError(f"it holds a {type(tree).__name__} and no mapping")
        for key, kind in (("files", dict), ("isa", str), ("identity", dict), ("handed", list)):
            if not isinstance(tree.get(key), kind | None):
                raise ValueError(f"{key} is {_brief(tree[key])!r}")
    except OSError as error:
        raise machine_fault(path, "read", error) from error
    except (ValueError, RecursionError) as error:
        remedy = "restore it (checkpoint.npz holds a copy, in `vouch`) or start in a new folder"
        raise RunFolderError(f"{path} is damaged ({why(error)}); {remedy}") from error
    return tree


class RunContents(NamedTuple):
    """A run as its folder holds it, each file checked against the others."""

    experiment: Experiment
    rounds: list[RoundRecord]  # up to the last checkpoint, which vouches for them
    num_parameters: int | None  # d; None before the first checkpoint
    complete: bool


def read_run(folder: Path | str) -> RunContents:
    """Read a run, finished, stopped or still going on, and change nothing; raise if its files do not fit together."""
    # Read in the reverse order of writing, so that a run that is going on fits together too.
    folder = Path(folder)
    experiment, complete = read_experiment(folder), is_complete(folder)
    saved = read_checkpoint(folder, experiment)
    if saved is None:
        count = _rounds_bytes(folder).count(b"\n")
        # The first round is saved at once: only a run killed in that instant has a round and no checkpoint.
        if complete or (count > 1 and not is_there(folder / "checkpoint.npz")):
            raise RunFolderError(
                f"{folder} holds {count} rounds{' and a final model' if complete else ''} but no checkpoint.npz "
                f"to check them against; {_start_over(folder, complete)}"
            )
        return RunContents(experiment, [], None, complete)
    rounds = checked_rounds(folder, saved, exactly=complete)
    check_versions(folder, saved)
    if complete:
        check_saved_model(folder, saved)
    return RunContents(experiment, rounds, len(saved.model), complete)


def _start_over(folder: Path, complete: bool) -> str:
    first = f"remove {folder / 'model.npy'}, then " if complete else ""
    return f"restore it, or start the run over: {first}`fedtide resume {folder}`"


def check_saved_model(folder: Path, saved: Checkpoint) -> None:
    """Raise if the final model is not the checkpoint's newest."""
    path = folder / "model.npy"
    remedy = f"remove it and make it again from the checkpoint with `fedtide resume {folder}`"
    try:
        with open(path, "rb") as file:
            model = np.load(file)
    except Exception as error:  # as above
        if isinstance(error, OSError) and error.errno:
            raise machine_fault(path, "read", error) from error
        raise RunFolderError(f"{path} is damaged ({why(error)}); {remedy}") from error
    if (
        not isinstance(model, np.ndarray)
        or model.shape != saved.model.shape
        or model.tobytes() != saved.model.tobytes()
    ):
        raise RunFolderError(f"{path} is damaged (it is not the model of the checkpoint); {remedy}")


def read_experiment(folder: Path | str) -> Experiment:
    """Read a run's resolved experiment."""
    folder = Path(folder)
    path = folder / "experiment.yaml"
    if not is_there(path):
        raise RunFolderError(f"{folder} is not a run folder: it has no experiment.yaml; `fedtide run` makes one")
    refuse_pipes(folder)
    try:
        open(path, "rb").close()  # a file that may not be read is not a damaged one
    except OSError as error:
        raise machine_fault(path, "read", error) from error
    try:
        return config.experiment(config.read_file(path))
    except FedtideError as error:
        raise RunFolderError(f"{path} is damaged or of another version: {error}; restore it") from error


def refuse_pipes(folder: Path) -> None:
    """Raise if a pipe or a device is in the place of a run's file: reading it might never end."""
    for name in _FILES:
        path = folder / name
        if path.exists() and not path.is_file() and not path.is_dir():
            raise RunFolderError(f"{path} is not a file but a pipe or a device: restore it or name another folder")


def read_rounds(folder: Path | str) -> list[RoundRecord]:
    """Read the complete rounds of a run, finished or not, those after the last checkpoint too."""
    folder = Path(folder)
    content = _rounds_bytes(folder)
    return _parsed(folder, content[: content.rfind(b"\n") + 1])  # a last line without end is not complete


def _rounds_bytes(folder: Path) -> bytes:
    path = folder / "rounds.jsonl"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise machine_fault(path, "read", error) from error


def _parsed(folder: Path, content: bytes, num_devices: int = record.MOST_COLUMN_ENTRIES) -> list[RoundRecord]:
    try:
        return [RoundRecord.from_json(line, num_devices) for line in content.decode("utf-8").split("\n")[:-1]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RunFolderError(
            f"{folder / 'rounds.jsonl'} is damaged ({why(error)}); rerun the experiment in a new folder"
        ) from error


def is_complete(folder: Path) -> bool:
    """Say whether a run has reached its horizon."""
    return is_there(folder / "model.npy")


def is_deployment(folder: Path) -> bool:
    """Say whether a run took place on real devices; only its own server can continue it, and only with its trace."""
    return is_there(folder / "trace.jsonl") or is_there(folder / "deployment.json")
