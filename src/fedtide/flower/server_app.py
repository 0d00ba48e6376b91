"""The ServerApp: a Coordinator on Flower's grid and the wall clock.

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

from fedtide.errors import FedtideError
from fedtide.flower.coordinator import Coordinator
from fedtide.flower.mailbox import Mailbox
from fedtide.flower.server_log import log_to
from fedtide.flower.settings import from_run_config

log = logging.getLogger("fedtide.flower")


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
        log.error("%s", kind + " ".join(str(error).split()))
        raise
    finally:
        log.removeHandler(handler)
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
