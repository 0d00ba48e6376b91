"""What a folder of the user's holds of a set whose files no checksum of ours tells apart: it belongs to a result."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any, Final

from fedtide.core import parts
from fedtide.data.official import regular

# Sets that differ from folder to folder, each with what lists the files that it reads.
VARYING: Final[dict[str, str]] = {
    "femnist": "fedtide.data.femnist:files",
    "speech_commands": "fedtide.data.speech:files",
}


def folder_digest(name: str, folder: Any) -> str | None:
    """Return the SHA-256 of what a set reads from a folder, names and contents; None if that never varies, or is not there."""
    if name not in VARYING or not isinstance(folder, str | Path):
        return None
    place = Path(folder).expanduser()
    files = parts.find("data", name, VARYING)(place)
    stamps = tuple((path, stat.st_size, stat.st_mtime_ns) for path in files for stat in [regular(path).stat()])
    return _digest(place, stamps) if stamps else None


@functools.lru_cache(maxsize=4)
def _digest(place: Path, stamps: tuple[tuple[Path, int, int], ...]) -> str:
    """Read the files; a study asks again and again, and gigabytes are read anew only if one was touched."""
    whole = hashlib.sha256()
    for path, _, _ in stamps:
        with path.open("rb") as file:
            whole.update(path.relative_to(place).as_posix().encode() + b"\0")
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()
