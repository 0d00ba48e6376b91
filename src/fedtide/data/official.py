"""Official files that fedtide does not download: the folder that must be named, and what it holds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final, TypeVar

from fedtide.data.fetch import check_data_folder
from fedtide.errors import DataError
from fedtide.parts import registry

# Official files that fedtide does not download: the folder that must be named, and archives with a published MD5.


Item = TypeVar("Item")


def named_folder(title: str, folder: Path | None, holds: str, get: str) -> Path:
    """Return the folder that the user names; raise if none is named, or it is none. get: where its files are to be had."""
    if folder is None:
        raise DataError(
            f"{title} is not downloaded: get {get}, and name the folder that holds {holds}: data.folder=PATH"
        )
    found = folder.expanduser()
    check_data_folder(title, found, holds)
    return found


def first_file(folder: Path, inner: Iterable[str], name: str) -> Path | None:
    """Return the first file of this name in these folders of a folder, gzipped or not."""
    places = [folder / each / f"{name}{end}" for each in inner for end in ("", ".gz")]
    return next((place for place in places if place.is_file()), None)


def regular(path: Path) -> Path:
    """Return a path as it is; raise if something lies there that is no file: a pipe would be waited for without end."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is no file but a folder, a pipe or a device: take it away")
    return path


def check_md5(path: Path, expected: str) -> None:
    """Raise if a file is not the one that was published."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != expected:
        raise DataError(f"{path} is corrupt or another file: MD5 {found}, expected {expected}; get it anew")


def in_turn(columns: Sequence[Sequence[Item]]) -> list[Item]:
    """Return what the columns hold, one of each in turn, so that the first so many are even."""
    nothing = object()
    return [each for each in chain.from_iterable(zip_longest(*columns, fillvalue=nothing)) if each is not nothing]  # type: ignore[misc]


# What a folder of the user's holds of a set whose files no checksum of ours tells apart: it belongs to a result.


# Sets that differ from folder to folder, each with what lists the files that it reads.
_VARYING: Final[dict[str, str]] = {
    "femnist": "fedtide.data.emnist:_femnist_files",
    "speech_commands": "fedtide.data.speech:_speech_files",
}


def folder_digest(name: str, folder: Any) -> str | None:
    """Return the SHA-256 of what a set reads from a folder, names and contents; None if that never varies, or is not there."""
    if name not in _VARYING or not isinstance(folder, str | Path):
        return None
    place = Path(folder).expanduser()
    files = registry.find_part("data", name, _VARYING)(place)
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
