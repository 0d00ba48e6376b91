"""What trackers need to find their own run again: a small file `trackers.json` in the run folder, and their packages."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from fedtide.core.faults import named
from fedtide.core.files import write_atomically
from fedtide.errors import FedtideError

FILE = "trackers.json"


def remembered(folder: Path | None, tracker: str) -> dict[str, Any]:
    """Return what a tracker wrote down in this folder; nothing if there is none, or the file cannot be read."""
    found = _read(folder).get(tracker)
    return found if isinstance(found, dict) else {}


def remember(folder: Path | None, tracker: str, **values: Any) -> None:
    """Write something down for the next session of this run, beside what other trackers did."""
    if folder is not None:
        tree = {**_read(folder), tracker: values}
        write_atomically(folder / FILE, json.dumps(tree, indent=2).encode())


def _read(folder: Path | None) -> dict[str, Any]:
    try:
        tree = json.loads((folder / FILE).read_bytes()) if folder else {}
    except (OSError, ValueError):  # a new run, or a damaged file: the tracker begins a run of its own
        return {}
    return tree if isinstance(tree, dict) else {}


def package(name: str, extra: str) -> Any:
    """Import what a tracker writes with; say what to install if it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FedtideError(f"{name} cannot be imported ({named(error)}): pip install 'fedtide[{extra}]'") from error
