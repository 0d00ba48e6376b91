"""Reading run folders: every file is checked against the others, and nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtide import config
from fedtide.config import Experiment
from fedtide.errors import FedtideError, RunFolderError
from fedtide.records.round import Ledger, RoundRecord
from fedtide.server import ServerState
from fedtide.types import Vector

FORMAT = 1  # of checkpoint.npz


class Checkpoint(NamedTuple):
    """What checkpoint.npz holds."""

    state: ServerState
    ledger: Ledger
    length: int  # of rounds.jsonl, in bytes

    @property
    def model(self) -> Vector:
        """The newest model [d]."""
        return self.state.models[self.state.version]


def read_checkpoint(folder: Path, experiment: Experiment) -> Checkpoint | None:
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


def check_length(folder: Path, length: int, *, exactly: bool = False) -> None:
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


def check_rounds(folder: Path, rounds: Sequence[RoundRecord], saved: Checkpoint) -> None:
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
    saved = read_checkpoint(folder, experiment)
    rounds = read_rounds(folder)
    if saved is None:
        # The first round is saved at once: only a run killed in that instant has a round and no checkpoint.
        if complete or (len(rounds) > 1 and not (folder / "checkpoint.npz").exists()):
            raise RunFolderError(
                f"{folder} holds {len(rounds)} rounds{' and a final model' if complete else ''} but no checkpoint.npz "
                f"to check them against; {_start_over(folder, complete)}"
            )
        return Kept(experiment, rounds, None, complete)
    check_length(folder, saved.length, exactly=complete)
    check_rounds(folder, rounds[: saved.state.version - 1], saved)
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
