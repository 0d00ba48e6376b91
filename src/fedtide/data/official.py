"""Official files that fedtide does not download: the folder that must be named, and archives with a published MD5."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeVar

from fedtide.data.obtain import check_folder
from fedtide.errors import DataError

T = TypeVar("T")


def named_folder(title: str, folder: Path | None, holds: str, get: str) -> Path:
    """Return the folder that the user names; raise if none is named, or it is none. get: where its files are to be had."""
    if folder is None:
        raise DataError(
            f"{title} is not downloaded: get {get}, and name the folder that holds {holds}: data.folder=PATH"
        )
    found = folder.expanduser()
    check_folder(title, found, holds)
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


def in_turn(columns: Sequence[Sequence[T]]) -> list[T]:
    """Return what the columns hold, one of each in turn, so that the first so many are even."""
    nothing = object()
    return [each for each in chain.from_iterable(zip_longest(*columns, fillvalue=nothing)) if each is not nothing]  # type: ignore[misc]
