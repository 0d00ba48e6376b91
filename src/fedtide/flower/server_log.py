"""The server's log, beside the run folder: RUN.log, whatever Flower does with its own."""

from __future__ import annotations

import logging
from pathlib import Path

from fedtide.records import machine_fault

_MARK = " ERROR "


def server_log(folder: Path) -> Path:
    """Return where the log of a run is."""
    return folder.with_name(f"{folder.name}.log")


def log_to(folder: Path) -> logging.Handler:
    """Keep the log of this run from now on."""
    path = server_log(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise machine_fault(path, "written", error) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("fedtide.flower")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def length(folder: Path) -> int:
    """Return how long the log is, in bytes."""
    try:
        return server_log(folder).stat().st_size
    except OSError:
        return 0


def server_error(folder: Path, since: int = 0) -> str | None:
    """Return why the server of this run has given up, or None if it has not. since: bytes of an older log."""
    try:
        lines = server_log(folder).read_bytes()[since:].decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return lines[-1].partition(_MARK)[2] if lines and _MARK in lines[-1] else None
