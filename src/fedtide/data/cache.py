"""The user's cache folder: where it is, and writes that are seen whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return fedtide's cache folder: $FEDTIDE_CACHE, else the place this platform keeps caches."""
    if environ.get("FEDTIDE_CACHE"):
        return Path(environ["FEDTIDE_CACHE"]).expanduser().absolute()
    xdg = Path(environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # a relative one is to be ignored, says the XDG specification
        return xdg / "fedtide"
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "fedtide"
    if platform == "darwin":
        return home / "Library" / "Caches" / "fedtide"
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "fedtide" / "Cache"
    return home / ".cache" / "fedtide"


def store(path: Path, data: bytes | bytearray) -> None:
    """Write data to path atomically: others see the old file or the new one, never a part. OSError if it cannot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)  # mkstemp's 0600 would shut out others who share the cache
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
