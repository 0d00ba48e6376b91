"""The ServerApp: a Coordinator on Flower's grid and the wall clock, and its log.

Run configuration: experiment and deployment (JSON), run-folder (a path on the server's host).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedtide.deploy.conversation import Mailbox
from fedtide.deploy.coordinator import Coordinator
from fedtide.deploy.settings import from_run_config
from fedtide.errors import FedtideError
from fedtide.runs import machine_fault

# The server's log, beside the run folder: RUN.log, whatever Flower does with its own.


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
    logger = logging.getLogger("fedtide.deploy")
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


# The ServerApp: a Coordinator on Flower's grid and the wall clock.
#
# Run configuration: experiment and deployment (JSON), run-folder (a path on the server's host).


_log = logging.getLogger("fedtide.deploy")


def main(grid: Grid, context: Context) -> None:
    """Run the federation, from wherever its run folder stopped."""
    folder = run_folder(context.run_config)
    handler = log_to(folder)
    try:
        terms = from_run_config(context.run_config)
        mailbox = Mailbox(grid, (httpx.HTTPError, ConnectionError, TimeoutError))
        Coordinator(mailbox, terms, folder, time.monotonic, time.sleep).run()
    except Exception as error:
        kind = "" if isinstance(error, FedtideError) else f"{type(error).__name__}: "
        _log.error("%s", kind + " ".join(str(error).split()))
        raise
    finally:
        _log.removeHandler(handler)
        handler.close()


def run_folder(run_config: Mapping[str, Any]) -> Path:
    """Return where the run is kept on this host."""
    name = run_config.get("run-folder")
    if not isinstance(name, str) or not Path(name).name or "\0" in name:
        raise FedtideError(
            f"run-folder={name!r} in the run configuration names no folder; make the app with `fedtide deploy app --run`"
        )
    return Path(name)


app = ServerApp()
app.main()(main)
