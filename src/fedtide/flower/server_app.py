"""The ServerApp: a Coordinator on Flower's grid and the wall clock.

Run configuration: experiment and deployment (JSON), run-folder (a path on the server's host).
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import httpx
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedtide.flower.coordinator import Coordinator
from fedtide.flower.mailbox import Mailbox
from fedtide.flower.settings import from_run_config


def main(grid: Grid, context: Context) -> None:
    """Run the federation, from wherever its run folder stopped."""
    folder = Path(str(context.run_config["run-folder"]))
    _log_to(folder.with_name(f"{folder.name}.log"))
    mailbox = Mailbox(grid, (httpx.HTTPError, ConnectionError, TimeoutError))
    Coordinator(mailbox, from_run_config(context.run_config), folder, time.monotonic, time.sleep).run()


def _log_to(path: Path) -> None:
    """Keep the log beside the run folder, whatever Flower does with its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("fedtide.flower")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


app = ServerApp()
app.main()(main)
