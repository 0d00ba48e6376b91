"""Files known by their SHA-256, from a folder the user names, the cache, or a source that serves them."""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeAlias

from fedtide.data.idx import IdxFile, Raw, check_file
from fedtide.errors import DataError

# The user's cache folder: where it is, and writes that are seen whole or not at all.


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


# What a place to download a data set from is: a name for the record and one function.
#
# The function is given the files wanted and returns them by name, gzipped or not; whoever asked checks them. It raises
# DataError or OSError when it cannot serve, and soon: no source may hold up the next one for long.


Fetch: TypeAlias = Callable[[Sequence[IdxFile]], Mapping[str, Raw]]


class Source(NamedTuple):
    """One place to get the files from."""

    name: str
    fetch: Fetch


# A data set in a folder: which of the usual names and layouts is there, and is it whole.


GZIP_MORE: Final = 1024  # bytes of a gzip file over what it holds, if that cannot be made smaller
IDX_LAYOUTS: Final = (".", "raw")  # plain; torchvision's folder of one set


class FolderContents(NamedTuple):
    """What a folder holds of one file. Exactly one of raw and problem is there."""

    file: IdxFile
    path: Path | None
    raw: Raw | None = None
    problem: str | None = None


def usual_names(file: IdxFile) -> list[str]:
    """Return the names a file goes by: with -idx or .idx, gzipped or not."""
    return [stem + end for end in ("", ".gz") for stem in (file.name, file.name.replace("-idx", ".idx"))]


def find_in_folder(folder: Path, file: IdxFile, layouts: Sequence[str] = IDX_LAYOUTS) -> Path | None:
    """Return where the folder holds the file, or None."""
    paths = (folder / layout / name for layout in layouts for name in usual_names(file))
    return next((path for path in paths if path.is_file()), None)


def look(folder: Path, file: IdxFile, layouts: Sequence[str] = IDX_LAYOUTS) -> FolderContents:
    """Find, read and check one file of the folder."""
    try:
        path = find_in_folder(folder, file, layouts)
    except OSError as error:
        return FolderContents(file, None, problem=f"cannot look in {folder}: {error.strerror or error}")
    if path is None:
        return FolderContents(file, None, problem=f"{file.name} is not in {folder}")
    try:
        size = path.stat().st_size
        if size > file.num_bytes + GZIP_MORE:
            return FolderContents(file, path, problem=f"{path}: {size} bytes, expected {file.num_bytes}")
        return FolderContents(file, path, raw=check_file(read_whole(path, size), file))
    except OSError as error:
        return FolderContents(file, path, problem=f"{path} cannot be read: {error.strerror or error}")
    except DataError as error:
        return FolderContents(file, path, problem=f"{path}: {error}")


def read_whole(path: Path, size: int) -> bytearray:
    """Return the `size` bytes of a file such that an array over them can be written to without a copy."""
    data = bytearray(size)
    with path.open("rb") as file:
        del data[file.readinto(data) :]
    return data


# Files that are known by their SHA-256, from a folder the user names, the cache, or a source that serves them.
#
# Whatever serves, the bytes are checked, so every source gives the same data set; only what was checked is kept.


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
    layouts: tuple[str, ...] = IDX_LAYOUTS  # folders within the user's folder
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


def check_data_folder(title: str, folder: Path, holds: str) -> None:
    """Raise if a folder that the user names is none. holds: what should be in it."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{title} folder {folder} {what}; name the folder that holds {holds}")


def _from_folder(wanted: Wanted, folder: Path) -> list[Raw]:
    check_data_folder(wanted.title, folder, "the IDX files, or none to download them")
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
            tried.append(f"{source.name}: {missing_reason(error)}")
            continue
        store_in_cache(title, cache, fresh, say)
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
            raws[file.name] = check_file(got[file.name], file)
        except DataError as error:
            raise DataError(f"{file.name}: {error}") from error
    return raws


def store_in_cache(title: str, cache: Path, raws: dict[str, Raw], say: Say) -> None:
    """Write files to the cache, each whole or not at all; a cache that cannot be written to is only told of."""
    try:
        for name, raw in raws.items():
            store(cache / name, raw)
    except OSError as error:
        say(
            f"{title}: cannot be kept in the cache {cache} ({missing_reason(error)}); set FEDTIDE_CACHE to a writable folder"
        )


def problems(found: Iterable[FolderContents]) -> str:
    """Return in one line what is wrong with the files of a folder."""
    return "; ".join(each.problem for each in found if each.problem is not None)


def missing_reason(error: Exception) -> str:
    """Return why something could not be had, in a few words."""
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        error = error.reason if isinstance(error.reason, Exception) else OSError(error.reason)
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__


# Files from a public mirror over HTTPS, which answers soon or is given up.


Open: TypeAlias = Callable[[str], IO[bytes]]

MIRROR_CONNECT_SECONDS: Final = 4.0  # to the first byte of an answer; also the longest silence in a download
FILE_SECONDS: Final = 120.0  # for one file


def open_url(url: str) -> IO[bytes]:
    """Return the answer to a GET, or raise OSError within CONNECT_SECONDS.

    The time-out of a socket covers neither the name look-up nor the sum over a host's addresses, so the request is
    made in a thread that is left behind when it is late.
    """
    import http.client
    import urllib.error
    import urllib.request

    answers: queue.SimpleQueue[IO[bytes] | OSError] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        try:
            answer = urllib.request.urlopen(url, timeout=MIRROR_CONNECT_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            answers.put(error if isinstance(error, OSError) else OSError(str(error)))
            return
        if late.is_set():
            answer.close()
        answers.put(answer)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=MIRROR_CONNECT_SECONDS)
    except queue.Empty:
        late.set()
        raise TimeoutError(f"no answer within {MIRROR_CONNECT_SECONDS:g} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def mirror(base: str, open_url: Open = open_url) -> Fetch:
    """Return a source that downloads base/NAME.gz, one file after the other; the first failure ends it."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, bytes]:
        return {file.name: download(f"{base}/{file.name}.gz", file.num_bytes, open_url) for file in files}

    return fetch


def download(url: str, limit: int, open_url: Open = open_url) -> bytes:
    """Return what lies at url, at most limit bytes of it."""
    return b"".join(pieces(url, limit, open_url, FILE_SECONDS))


def pieces(url: str, limit: int, open_url: Open, seconds: float) -> Iterator[bytes]:
    """Yield what lies at url piece by piece; raise if it has more than limit bytes or takes longer than so many seconds."""
    import http.client  # here, since planning needs no network

    deadline = time.monotonic() + seconds
    size = 0
    with open_url(url) as answer:
        while True:
            try:
                piece = answer.read(1 << 16)
            except http.client.HTTPException as error:
                raise OSError(f"{url}: the connection broke ({error!r})") from error
            if not piece:
                return
            yield piece
            size += len(piece)
            if size > limit + 1024:  # gzip adds a header to what it cannot make smaller
                raise DataError(f"{url} is longer than the {limit} bytes expected")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} took longer than {seconds:g} s")
