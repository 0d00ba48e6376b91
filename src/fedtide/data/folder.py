"""A data set in a folder: which of the usual names and layouts is there, and is it whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fedtide.data.idx import IdxFile, Raw, check
from fedtide.errors import DataError

GZIP_MORE: Final = 1024  # bytes of a gzip file over what it holds, if that cannot be made smaller
LAYOUTS: Final = (".", "raw")  # plain; torchvision's folder of one set


class Found(NamedTuple):
    """What a folder holds of one file. Exactly one of raw and problem is there."""

    file: IdxFile
    path: Path | None
    raw: Raw | None = None
    problem: str | None = None


def names(file: IdxFile) -> list[str]:
    """Return the names a file goes by: with -idx or .idx, gzipped or not."""
    return [stem + end for end in ("", ".gz") for stem in (file.name, file.name.replace("-idx", ".idx"))]


def find(folder: Path, file: IdxFile, layouts: Sequence[str] = LAYOUTS) -> Path | None:
    """Return where the folder holds the file, or None."""
    paths = (folder / layout / name for layout in layouts for name in names(file))
    return next((path for path in paths if path.is_file()), None)


def look(folder: Path, file: IdxFile, layouts: Sequence[str] = LAYOUTS) -> Found:
    """Find, read and check one file of the folder."""
    try:
        path = find(folder, file, layouts)
    except OSError as error:
        return Found(file, None, problem=f"cannot look in {folder}: {error.strerror or error}")
    if path is None:
        return Found(file, None, problem=f"{file.name} is not in {folder}")
    try:
        size = path.stat().st_size
        if size > file.num_bytes + GZIP_MORE:
            return Found(file, path, problem=f"{path}: {size} bytes, expected {file.num_bytes}")
        return Found(file, path, raw=check(read_whole(path, size), file))
    except OSError as error:
        return Found(file, path, problem=f"{path} cannot be read: {error.strerror or error}")
    except DataError as error:
        return Found(file, path, problem=f"{path}: {error}")


def read_whole(path: Path, size: int) -> bytearray:
    """Return the `size` bytes of a file such that an array over them can be written to without a copy."""
    data = bytearray(size)
    with path.open("rb") as file:
        del data[file.readinto(data) :]
    return data
