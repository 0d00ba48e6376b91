"""Files that are never half written."""

from __future__ import annotations

import os
from pathlib import Path

from fedtide.errors import RunFolderError


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside, sync, rename: the file is the old one or the new one, never half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror}): free space or choose another folder"
        ) from error
