"""Files that are known by their SHA-256, from a folder the user names, the cache, or a source that serves them.

Whatever serves, the bytes are checked, so every source gives the same data set; only what was checked is kept.
"""

from __future__ import annotations

import sys
import urllib.error
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fedtide.data.cache import cache_folder, store
from fedtide.data.folder import LAYOUTS, Found, look
from fedtide.data.idx import IdxFile, Raw, check
from fedtide.data.source import Source
from fedtide.errors import DataError

Say: TypeAlias = Callable[[str], None]


def to_stderr(message: str) -> None:
    """Print a message where it cannot get between the results."""
    print(message, file=sys.stderr, flush=True)


class FileStatus(NamedTuple):
    """One file of a set as found in a folder: whole when problem is None."""

    name: str
    path: Path | None
    problem: str | None


class Whereabouts(NamedTuple):
    """What a folder holds of a set, every checksum taken."""

    title: str  # of the set
    folder: Path
    files: tuple[FileStatus, ...]

    @property
    def complete(self) -> bool:
        """Are all files there and whole?"""
        return all(file.problem is None for file in self.files)


class Wanted(NamedTuple):
    """The files of a set, and the words about them."""

    name: str  # as an experiment has it, and of the folder in the cache
    title: str  # as a reader knows it
    files: tuple[IdxFile, ...]
    layouts: tuple[str, ...] = LAYOUTS  # folders within the user's folder
    expected: str = ""  # what a folder should hold, and where
    remedy: str = ""  # what to do when no source serves

    @property
    def cache(self) -> Path:
        """Where the cache keeps them."""
        return cache_folder() / self.name


def whereabouts(wanted: Wanted, folder: Path | None) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    folder = wanted.cache if folder is None else folder.expanduser()
    found = [look(folder, file, wanted.layouts) for file in wanted.files]
    return Whereabouts(
        wanted.title, folder, tuple(FileStatus(each.file.name, each.path, each.problem) for each in found)
    )


def obtained(wanted: Wanted, folder: Path | None, sources: Iterable[Source], say: Say) -> tuple[list[Raw], str]:
    """Return the raw bytes of every file, and where they are from; DataError if they cannot be had."""
    if folder is not None:
        return _from_folder(wanted, folder.expanduser()), f"folder {folder}"
    return _from_cache_or_sources(wanted, sources, say)


def check_folder(title: str, folder: Path, holds: str) -> None:
    """Raise if a folder that the user names is none. holds: what should be in it."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{title} folder {folder} {what}; name the folder that holds {holds}")


def _from_folder(wanted: Wanted, folder: Path) -> list[Raw]:
    check_folder(wanted.title, folder, "the IDX files, or none to download them")
    found = [look(folder, file, wanted.layouts) for file in wanted.files]
    raws = [each.raw for each in found if each.raw is not None]
    if len(raws) < len(found):
        raise DataError(
            f"{wanted.title}: {problems(found)}; expected {wanted.expected}; replace what is wrong, or name no folder "
            "to download them"
        )
    return raws


def _from_cache_or_sources(wanted: Wanted, sources: Iterable[Source], say: Say) -> tuple[list[Raw], str]:
    title, cache = wanted.title, wanted.cache
    found = [look(cache, file, wanted.layouts) for file in wanted.files]
    raws = {each.file.name: each.raw for each in found if each.raw is not None}
    if len(raws) == len(wanted.files):
        return [raws[file.name] for file in wanted.files], f"cache {cache}"
    for each in found:
        if each.path is not None and each.problem is not None:
            say(f"{title} cache: {each.problem}; fetching it anew")
    nothing = not any(each.path for each in found)
    tried = [f"cache: {cache} holds none of the files" if nothing else f"cache: {problems(found)}"]
    missing = [each.file for each in found if each.raw is None]
    for source in sources:
        say(f"{title}: trying {source.name}")
        try:
            fresh = _fetch(source, missing)
        except (OSError, DataError) as error:
            tried.append(f"{source.name}: {reason(error)}")
            continue
        keep(title, cache, fresh, say)
        raws |= fresh
        return [raws[file.name] for file in wanted.files], source.name
    raise DataError(
        f"{title} cannot be had. Tried:\n  "
        + "\n  ".join(tried)
        + f"\nWhat to do: connect to the network, {wanted.remedy}"
    )


def _fetch(source: Source, missing: Sequence[IdxFile]) -> dict[str, Raw]:
    """Return the raw bytes of the missing files, checked."""
    got = source.fetch(missing)
    raws = {}
    for file in missing:
        if file.name not in got:
            raise DataError(f"it holds no {file.name}")
        try:
            raws[file.name] = check(got[file.name], file)
        except DataError as error:
            raise DataError(f"{file.name}: {error}") from error
    return raws


def keep(title: str, cache: Path, raws: dict[str, Raw], say: Say) -> None:
    """Write files to the cache, each whole or not at all; a cache that cannot be written to is only told of."""
    try:
        for name, raw in raws.items():
            store(cache / name, raw)
    except OSError as error:
        say(f"{title}: cannot be kept in the cache {cache} ({reason(error)}); set FEDTIDE_CACHE to a writable folder")


def problems(found: Iterable[Found]) -> str:
    """Return in one line what is wrong with the files of a folder."""
    return "; ".join(each.problem for each in found if each.problem is not None)


def reason(error: Exception) -> str:
    """Return why something could not be had, in a few words."""
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        error = error.reason if isinstance(error.reason, Exception) else OSError(error.reason)
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__
