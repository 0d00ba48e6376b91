"""The log of a federation's server: JSON lines beside the run folder, RUN.log, whatever Flower does with its own."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fedtide.core.files import file_fault
from fedtide.errors import FedtideError

_log = logging.getLogger("fedtide.deploy")
_TAIL_BYTES: Final = 65_536  # of a log that are looked at


class _JsonLines(logging.Formatter):
    """Writes a record as one line of JSON. `event` is the message without its values, which makes lines countable."""

    def format(self, record: logging.LogRecord) -> str:
        tree: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            "event": str(record.msg),
        }
        return json.dumps(tree)


@contextlib.contextmanager
def logged_run(folder: Path) -> Iterator[None]:
    """Keep the log of a run, and in its last line why the server gave up, if it did."""
    path = server_log(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise file_fault(path, "written", error) from error
    handler.setFormatter(_JsonLines())
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, FedtideError) else f"{type(error).__name__}: "
        _log.error("%s", kind + " ".join(str(error).split()))
        raise
    finally:
        _log.removeHandler(handler)
        handler.close()


def server_log(folder: Path) -> Path:
    """Return where the log of a run is."""
    return folder.with_name(f"{folder.name}.log")


def _records(folder: Path, since: int = 0) -> list[dict[str, Any]]:
    """Return the last records of a log; what is no record does not count. since: bytes of an older log."""
    try:
        with open(server_log(folder), "rb") as file:
            file.seek(max(since, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            tree = json.loads(line)
            found.append({name: str(tree[name]) for name in ("time", "level", "message")})
    return found


def last_log_records(folder: Path, count: int) -> list[str]:
    """Return the last warnings and errors of a run, the newest last."""
    found = [record for record in _records(folder) if record["level"] in ("WARNING", "ERROR")]
    return [f"{record['time'][:19]} {record['message']}" for record in found[-count:]]


def server_error(folder: Path, since: int = 0) -> str | None:
    """Return why the server of a run has given up, or None if it has not. since: bytes of an older log."""
    found = _records(folder, since)
    return str(found[-1]["message"]) if found and found[-1]["level"] == "ERROR" else None
