"""The one error that a user's mistake may raise; the command line turns it into one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class FedtideError(Exception):
    """Bad input: the message gives the value, the reason and the remedy.

    `exit_code` is what the command line returns: 2 for bad input, 3 for data that cannot be had, 4 for a run folder
    that cannot be used, 5 for training that went wrong.
    """

    exit_code = 2


class DataError(FedtideError):
    """A data set is missing, corrupt or of the wrong shape."""

    exit_code = 3


class RunFolderError(FedtideError):
    """A run folder cannot be written, read or resumed."""

    exit_code = 4


class TrainingError(FedtideError):
    """An update is not a finite vector of the right length, or a policy broke its contract while a run was on."""

    exit_code = 5


class DivergedError(TrainingError):
    """Training did not stay finite. `so_far`, from a simulation: its rounds, d, and the evaluations (index, time) left."""

    so_far: tuple[Any, int, list[tuple[int, float]]] | None = None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return "did you mean x?" for the known name that is nearest, or `otherwise` if none is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"did you mean {near[0]}?" if near else otherwise
