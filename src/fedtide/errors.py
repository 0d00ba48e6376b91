"""The one error that a user's mistake may raise; the command line turns it into one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class FedtideError(Exception):
    """An error with a one-line message that gives the value, the reason and the remedy.

    `exit_code` is the exit code of the command line: 2 for bad input, 3 for unavailable data, 4 for an unusable run folder,
    5 for failed training or a failure of your own code.
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
