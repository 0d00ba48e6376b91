"""Official files: from a folder that the user names, the cache, or a mirror. Those of registry.txt are known by SHA-256."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import lzma
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.faults import fault_message, fault_reason
from fedtide.core.files import write_atomically
from fedtide.errors import DataError, RunFolderError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Raw: TypeAlias = bytes | bytearray
Say: TypeAlias = Callable[[str], None]

_GZIP_MAGIC: Final = b"\x1f\x8b"
MOST_FILE_BYTES: Final = 1 << 30  # that are read of one file; the largest, of EMNIST, has 547,178,704
_CONNECT_SECONDS, _READ_SECONDS = 4.0, 30.0  # how long a mirror may be silent


def say_fetching(message: str) -> None:
    """Print a message where it cannot get between the results."""
    print(message, file=sys.stderr, flush=True)


def _cache_folder() -> Path:
    """Return fedtide's cache folder: $FEDTIDE_CACHE, else the place where this platform keeps caches."""
    import platformdirs  # here, since a run on other data needs no cache

    given = os.environ.get("FEDTIDE_CACHE") or platformdirs.user_cache_dir("fedtide", appauthor=False)
    return Path(given).expanduser().absolute()


# Reading files and archives.


def gunzip(data: Raw, limit: int) -> Raw:
    """Return what gzip data holds, others as they are; DataError if it is damaged, or holds more than limit bytes."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as file:
            raw = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"damaged gzip data ({error})") from error
    if len(raw) > limit:
        raise DataError(f"gzip data holds more than the {limit} bytes expected")
    return raw


def read_fetched_file(path: Path) -> bytearray:
    """Return a file's bytes such that an array over them can be written to without a copy."""
    data = bytearray(min(path.stat().st_size, MOST_FILE_BYTES))
    with path.open("rb") as file:
        del data[file.readinto(data) :]
    return data


def read_fetched_files(folder: Path, names: Iterable[str]) -> dict[str, Raw]:
    """Return the files of these names that a folder has."""
    return {name: read_fetched_file(path) for name in names if (path := folder / name).is_file()}


def archive_members(path: Path, names: Collection[str]) -> dict[str, Raw]:
    """Return some members of a tar archive by name without folders; DataError if it is damaged.

    They are read into memory: no path of the archive is ever used.
    """
    found: dict[str, Raw] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in names and member.isreg() and (body := archive.extractfile(member)) is not None:
                    found[name] = body.read(MOST_FILE_BYTES)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path.name} is damaged ({error})") from error
    return found


def regular_fetched_file(path: Path) -> Path:
    """Return a path as it is; raise if something lies there that is no file: a pipe would be waited for without end."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is a folder, a pipe or a device, not a file: remove it")
    return path


def check_md5(path: Path, expected: str) -> None:
    """Raise if a file is not the one that was published."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != expected:
        raise DataError(f"{path} is corrupt or another file: MD5 {found}, expected {expected}; download it again")


def find_fetched_file(folder: Path, layouts: Iterable[str], names: Iterable[str]) -> Path | None:
    """Return the first file that has one of these names in one of these folders of a folder."""
    places = [folder / layout / name for layout in layouts for name in names]
    return next((place for place in places if place.is_file()), None)


def fetch_folder(title: str, folder: Path | None, holds: str, get: str) -> Path:
    """Return the folder that the user names; raise if none is named, or it is none. get: where its files are to be had."""
    if folder is None:
        raise DataError(
            f"{title} is not downloaded: get {get}, and name the folder that holds {holds}: data.folder=PATH"
        )
    found = folder.expanduser()
    if not found.is_dir():
        what = "is a file" if found.exists() else "does not exist"
        raise DataError(f"{title} folder {found} {what}; name the folder that holds {holds}")
    return found


# Sets whose files are known by size and SHA-256, and fetched.


class OfficialFile(NamedTuple):
    """One file of a data set, as it is when not compressed."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class OfficialSet:
    """A data set that is fetched: its files, where they are, and how to read them from a folder of the user's."""

    name: str  # as an experiment has it; also of the folder in the cache
    title: str  # as a reader knows it
    mirrors: tuple[str, ...]  # asked in this order: addresses of folders that hold FILE.gz each, or of a .tar.gz
    expected: str  # what a folder of the user's holds
    read_folder: Callable[[Path], dict[str, Raw]]  # what such a folder has of the files, unchecked, by name
    files: tuple[OfficialFile, ...]

    @property
    def cache(self) -> Path:
        """Where the cache keeps the files."""
        return _cache_folder() / self.name


@functools.cache
def fetchable_files(dataset: str) -> tuple[OfficialFile, ...]:
    """Return the files of a data set that registry.txt lists, in its order."""
    rows = [line.split() for line in (resources.files(__package__) / "registry.txt").read_text("ascii").splitlines()]
    return tuple(
        OfficialFile(path.partition("/")[2], int(num_bytes), sha256)
        for path, num_bytes, sha256 in rows
        if path.partition("/")[0] == dataset
    )


def check_fetched_file(data: Raw, file: OfficialFile) -> Raw:
    """Return the raw bytes of `file` from data, gzipped or not; DataError (the reason only) if they are not its own."""
    raw = gunzip(data, file.num_bytes)
    if len(raw) != file.num_bytes:
        raise DataError(f"corrupt: {len(raw)} bytes, expected {file.num_bytes}")
    digest = hashlib.sha256(raw).hexdigest()
    if digest != file.sha256:
        raise DataError(f"corrupt: SHA-256 {digest}, expected {file.sha256}")
    return raw


class Whereabouts(NamedTuple):
    """What a folder holds of a set, every checksum taken."""

    title: str  # of the set
    folder: Path
    raws: dict[str, Raw]  # files that are there and whole, by name
    problems: dict[str, str | None]  # of each file, by name; None: it is there and whole

    @property
    def complete(self) -> bool:
        """Are all files there and whole?"""
        return not any(self.problems.values())

    @property
    def first_problem(self) -> str:
        """The first problem, and how many other files have one."""
        first, *others = dict.fromkeys(problem for problem in self.problems.values() if problem)
        return f"{first} (and {len(others)} more)" if others else first


def fetched_whereabouts(
    wanted: OfficialSet, folder: Path | None = None, files: Sequence[OfficialFile] | None = None
) -> Whereabouts:
    """Report what is in the folder, or in the cache if None, of some files (None: all). Nothing is fetched or written."""
    place = wanted.cache if folder is None else folder.expanduser()
    files = wanted.files if files is None else files
    raws: dict[str, Raw] = {}
    problems: dict[str, str | None] = {}
    try:
        found = read_fetched_files(place, [file.name for file in files])
        if folder is not None and len(found) < len(files):
            found = wanted.read_folder(place)
    except (DataError, OSError) as error:
        return Whereabouts(wanted.title, place, raws, {file.name: _reason(error) for file in files})
    for file in files:
        try:
            raws[file.name] = check_fetched_file(found[file.name], file)
            problems[file.name] = None
        except KeyError:
            problems[file.name] = f"{file.name} is not in {place}"
        except DataError as error:
            problems[file.name] = f"{file.name}: {error}"
    return Whereabouts(wanted.title, place, raws, problems)


def fetch_files(wanted: OfficialSet, folder: Path | None, say: Say) -> tuple[list[Raw], str]:
    """Return the raw bytes of every file, and where they are from: the folder, if one is named, the cache or a mirror.

    Whatever serves, every file is checked by its SHA-256. DataError if they cannot be had.
    """
    if folder is not None:
        fetch_folder(wanted.title, folder, f"{wanted.expected}, or none to download it", "")
    found = fetched_whereabouts(wanted, folder)
    source = f"cache {found.folder}" if folder is None else f"folder {folder}"
    if not found.complete and folder is not None:
        raise DataError(
            f"{wanted.title} in {found.folder}: {found.first_problem}; expected {wanted.expected}; replace what is wrong, or "
            "name no folder to download it"
        )
    if not found.complete:
        source = f"mirror {_fetch(wanted, found.first_problem, say)}"
        found = fetched_whereabouts(wanted)
    say(f"{wanted.title} from {source}")
    return [found.raws[file.name] for file in wanted.files], source


def fetch_pairs(
    wanted: OfficialSet, folder: Path | None, say: Say, images: bool, decode: Callable[[Raw], Bytes]
) -> tuple[list[Bytes | None], list[Bytes], str]:
    """Return pixels and labels, each of training and test, and where they are from. Files: pixels, labels, of both parts.

    images: false if labels are enough (a plan needs no more): if they are at hand nothing else is read, and pixels are None.
    """
    if not images:
        found = fetched_whereabouts(wanted, folder, wanted.files[1::2])
        if found.complete:
            return [None, None], [decode(raw) for raw in found.raws.values()], f"labels only, {folder or wanted.cache}"
    raws, source = fetch_files(wanted, folder, say)
    arrays = [decode(raw) for raw in raws]
    return [*arrays[::2]], arrays[1::2], source


def _fetch(wanted: OfficialSet, why: str, say: Say) -> str:
    """Put the files into the cache, and return the mirror that served."""
    tried = []
    for mirror in wanted.mirrors:
        say(f"{wanted.title}: {why}; fetching it from {mirror}")
        try:
            _download(wanted, mirror)
            return mirror
        except (OSError, ValueError, DataError, RunFolderError) as error:
            tried.append(f"{mirror}: {_reason(error)}")
    remedy = "connect to the network" if tried else f"run tools/fetch_data.py {wanted.name} in a clone"
    raise DataError(
        f"{wanted.title} is not in the cache {wanted.cache} and cannot be fetched ({'; '.join(tried) or 'no mirror'}): "
        f"{remedy}, set FEDTIDE_CACHE to a folder that can be written, or get {wanted.expected} and name the folder, "
        "data.folder=PATH; data.name=synthetic needs no download"
    )


def _download(wanted: OfficialSet, mirror: str) -> None:
    """Fetch what the cache lacks from a mirror, each file whole and checked, or not at all."""
    import pooch  # here, since only fetching needs it

    pooch.get_logger().setLevel("WARNING")
    http = pooch.HTTPDownloader(chunk_size=1 << 16, timeout=(_CONNECT_SECONDS, _READ_SECONDS))
    wanted.cache.mkdir(parents=True, exist_ok=True)
    if mirror.endswith(".tar.gz"):  # which read_folder knows; what it holds is checked
        with tempfile.TemporaryDirectory(prefix="fedtide-") as aside:
            pooch.retrieve(mirror, None, mirror.rpartition("/")[2], aside, downloader=http)
            found = fetched_whereabouts(wanted, Path(aside))
        if not found.complete:
            raise DataError(found.first_problem)
        for name, raw in found.raws.items():
            write_atomically(wanted.cache / name, memoryview(raw))
        return
    for file in wanted.files:

        def unpack(url: str, output: str, _: Any, file: OfficialFile = file) -> None:
            http(url, output, None)
            Path(output).write_bytes(gunzip(Path(output).read_bytes(), file.num_bytes))

        kept = pooch.retrieve(f"{mirror}/{file.name}.gz", file.sha256, file.name, wanted.cache, downloader=unpack)
        os.chmod(kept, 0o644)  # pooch's 0600 would shut out others who share the cache


def _reason(error: Exception) -> str:
    """Return why something could not be had, in a few words."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    if type(error).__module__.startswith("requests"):  # what it says is about its own innards
        return type(error).__name__
    return fault_reason(error) if isinstance(error, OSError) else fault_message(error)


# What a folder of the user's holds of a set whose files no checksum of ours tells apart: it belongs to a result.

_VARYING_FILES: Final[dict[str, Callable[[Path], list[Path]]]] = {
    "femnist": lambda folder: [
        path
        for pattern in ("train/*.json", "test/*.json", "all_data/all_data_*.json", "all_data_*.json")
        for path in sorted(folder.glob(pattern))
    ],
    "speech_commands": lambda folder: sorted([*folder.glob("*/*.wav"), *folder.glob("*_list.txt")]),
}


def fetched_folder_digest(name: str, folder: Any) -> str | None:
    """Return the SHA-256 of what a set reads from a folder, names and contents; None if that never varies, or is not there."""
    if name not in _VARYING_FILES or not isinstance(folder, str | Path):
        return None
    place = Path(folder).expanduser()
    files = [(path, regular_fetched_file(path).stat()) for path in _VARYING_FILES[name](place)]
    return _digest(place, tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in files)) if files else None


@functools.lru_cache(maxsize=4)
def _digest(place: Path, stamps: tuple[tuple[Path, int, int], ...]) -> str:
    """Read the files; a study asks again and again, and gigabytes are read anew only if one was touched."""
    whole = hashlib.sha256()
    for path, _, _ in stamps:
        with path.open("rb") as file:
            whole.update(path.relative_to(place).as_posix().encode() + b"\0")
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()
