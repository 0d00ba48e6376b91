"""Official files: from a folder that the user names, the cache, or a mirror. Those of registry.txt are known by SHA-256."""

from __future__ import annotations

import functools
import hashlib
import lzma
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.core.files import write_atomically
from fedtide.errors import DataError, RunFolderError
from fedtide.parts import registry

Bytes: TypeAlias = npt.NDArray[np.uint8]
Raw: TypeAlias = bytes | bytearray
Say: TypeAlias = Callable[[str], None]

_GZIP_MAGIC: Final = b"\x1f\x8b"
MOST_FILE_BYTES: Final = 1 << 30  # that are read of one file; the largest, of EMNIST, has 547,178,704
_CONNECT_SECONDS, _READ_SECONDS = 4.0, 30.0  # how long a mirror may be silent


def to_stderr(message: str) -> None:
    """Print a message where it cannot get between the results."""
    print(message, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Return fedtide's cache folder: $FEDTIDE_CACHE, else the place where this platform keeps caches."""
    import platformdirs  # here, since a run on other data needs no cache

    given = os.environ.get("FEDTIDE_CACHE") or platformdirs.user_cache_dir("fedtide", appauthor=False)
    return Path(given).expanduser().absolute()


# Files that are known by size and SHA-256.


class OfficialFile(NamedTuple):
    """One file of a data set, as it is when not compressed."""

    name: str
    num_bytes: int
    sha256: str


@functools.cache
def registered(dataset: str) -> tuple[OfficialFile, ...]:
    """Return the files of a data set that registry.txt lists, in its order."""
    rows = [line.split() for line in (resources.files(__package__) / "registry.txt").read_text("ascii").splitlines()]
    return tuple(
        OfficialFile(path.partition("/")[2], int(num_bytes), sha256)
        for path, num_bytes, sha256 in rows
        if path.partition("/")[0] == dataset
    )


def gunzip(data: Raw, limit: int) -> bytes:
    """Return what gzip data holds; DataError if it is damaged, cut short, or holds more than limit bytes."""
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise DataError(f"damaged gzip data ({error})") from error
    if len(raw) > limit:
        raise DataError(f"gzip data holds more than the {limit} bytes expected")
    if not stream.eof:
        raise DataError(f"truncated gzip data: it ends after {len(raw)} bytes of at most {limit}")
    return raw


def unpacked(data: Raw, limit: int) -> Raw:
    """Return data as they are or, if they are gzipped, what they hold."""
    return gunzip(data, limit) if data.startswith(_GZIP_MAGIC) else data


def check_file(data: Raw, file: OfficialFile) -> Raw:
    """Return the raw bytes of `file` from data, gzipped or not; DataError (the reason only) if they are not its own."""
    raw = unpacked(data, file.num_bytes)
    if len(raw) != file.num_bytes:
        what = "truncated: " if len(raw) < file.num_bytes else ""
        raise DataError(f"{what}{len(raw)} bytes, expected {file.num_bytes}")
    digest = hashlib.sha256(raw).hexdigest()
    if digest != file.sha256:
        raise DataError(f"corrupt: SHA-256 {digest}, expected {file.sha256}")
    return raw


# Reading files and archives.


def read_whole(path: Path) -> bytearray:
    """Return a file's bytes such that an array over them can be written to without a copy."""
    data = bytearray(min(path.stat().st_size, MOST_FILE_BYTES))
    with path.open("rb") as file:
        del data[file.readinto(data) :]
    return data


def archive_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Return some members of a tar archive by name without folders; DataError if it is damaged.

    They are read into memory: no path of the archive is ever used.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in names and member.isreg() and (body := archive.extractfile(member)) is not None:
                    found[name] = body.read(MOST_FILE_BYTES)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path.name} is damaged ({error})") from error
    return found


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


def find_file(folder: Path, layouts: Iterable[str], names: Iterable[str]) -> Path | None:
    """Return the first file that has one of these names in one of these folders of a folder."""
    places = [folder / layout / name for layout in layouts for name in names]
    return next((place for place in places if place.is_file()), None)


def named_folder(title: str, folder: Path | None, holds: str, get: str) -> Path:
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


# Sets whose files are fetched.


@dataclass(frozen=True)
class OfficialSet:
    """A data set that is fetched: its files, where they are, and how to read them from a folder of the user's."""

    name: str  # as an experiment has it; also of the folder in the cache
    title: str  # as a reader knows it
    mirrors: tuple[str, ...]  # asked in this order: addresses of folders that hold FILE.gz each, or of an archive
    expected: str  # what a folder of the user's holds
    read_folder: Callable[[Path], dict[str, Raw]]  # what such a folder has of the files, unchecked, by name
    files: tuple[OfficialFile, ...]
    archive: bool = False  # mirrors serve an archive, which read_folder finds in a folder
    archive_sha256: str | None = None  # None: what the archive holds is checked alone

    @property
    def cache(self) -> Path:
        """Where the cache keeps the files."""
        return cache_folder() / self.name


class Whereabouts(NamedTuple):
    """What a folder holds of a set, every checksum taken."""

    title: str  # of the set
    folder: Path
    problems: dict[str, str | None]  # of each file, by name; None: it is there and whole

    @property
    def complete(self) -> bool:
        """Are all files there and whole?"""
        return not any(self.problems.values())


def whereabouts(wanted: OfficialSet, folder: Path | None = None) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    place, _, problems = _look(wanted, folder, wanted.files)
    return Whereabouts(wanted.title, place, {file.name: problems.get(file.name) for file in wanted.files})


def at_hand(wanted: OfficialSet, folder: Path | None, files: Sequence[OfficialFile]) -> list[Raw] | None:
    """Return some files of a set if the folder, or the cache when none is named, has all of them; else None."""
    _, raws, problems = _look(wanted, folder, files)
    return None if problems else list(raws.values())


def obtain(wanted: OfficialSet, folder: Path | None, say: Say) -> tuple[list[Raw], str]:
    """Return the raw bytes of every file, and where they are from: the folder, if one is named, the cache or a mirror.

    Whatever serves, every file is checked by its SHA-256. DataError if they cannot be had.
    """
    if folder is not None:
        named_folder(wanted.title, folder, f"{wanted.expected}, or none to download it", "")
    place, raws, problems = _look(wanted, folder, wanted.files)
    source = f"cache {place}" if folder is None else f"folder {folder}"
    if problems and folder is not None:
        raise DataError(
            f"{wanted.title} in {place}: {_first(problems)}; expected {wanted.expected}; replace what is wrong, or name "
            "no folder to download it"
        )
    if problems:
        for name in problems.keys() & {path.name for path in place.glob("*")}:
            say(f"{wanted.title} cache: {problems[name]}; fetching it anew")
        missing = [file for file in wanted.files if file.name in problems]
        fetched, source = _fetch(wanted, missing, say)
        raws |= fetched
    say(f"{wanted.title} from {source}")
    return [raws[file.name] for file in wanted.files], source


def _look(
    wanted: OfficialSet, folder: Path | None, files: Sequence[OfficialFile]
) -> tuple[Path, dict[str, Raw], dict[str, str]]:
    """Return where files are looked for, those that are there and whole, and what is wrong with the others, by name."""
    place = wanted.cache if folder is None else folder.expanduser()
    try:
        found = _cached(place, files) if folder is None else wanted.read_folder(place)
    except (DataError, OSError) as error:
        return place, {}, {file.name: _reason(error) for file in files}
    return place, *_checked(found, files, str(place))


def _checked(
    found: Mapping[str, Raw], files: Sequence[OfficialFile], where: str
) -> tuple[dict[str, Raw], dict[str, str]]:
    raws: dict[str, Raw] = {}
    problems: dict[str, str] = {}
    for file in files:
        try:
            raws[file.name] = check_file(found[file.name], file)
        except KeyError:
            problems[file.name] = f"{file.name} is not in {where}"
        except DataError as error:
            problems[file.name] = f"{file.name}: {error}"
    return raws, problems


def _first(problems: Mapping[str, str]) -> str:
    """Return the first problem, and how many other files have one."""
    first, *others = dict.fromkeys(problems.values())
    return f"{first} (and {len(others)} more)" if others else first


def _cached(place: Path, files: Sequence[OfficialFile]) -> dict[str, Raw]:
    return {file.name: read_whole(path) for file in files if (path := place / file.name).is_file()}


def _fetch(wanted: OfficialSet, missing: Sequence[OfficialFile], say: Say) -> tuple[dict[str, Raw], str]:
    """Return the missing files, and the mirror that served; they are kept in the cache."""
    tried = []
    with tempfile.TemporaryDirectory(prefix="fedtide-") as aside:
        place = wanted.cache
        try:
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            place = Path(aside)
            say(
                f"{wanted.title}: cannot be kept in the cache ({_reason(error)}); set FEDTIDE_CACHE to a writable folder"
            )
        for mirror in wanted.mirrors:
            say(f"{wanted.title}: fetching it from {mirror}")
            try:
                _download(wanted, mirror, missing, place)
                return _cached(place, missing), f"mirror {mirror}"
            except (OSError, ValueError, DataError, RunFolderError) as error:
                tried.append(f"{mirror}: {_reason(error)}")
    remedy = "connect to the network" if tried else f"run tools/fetch_data.py {wanted.name} in a clone"
    raise DataError(
        f"{wanted.title} is not in the cache {wanted.cache} and cannot be fetched ({'; '.join(tried) or 'no mirror'}): "
        f"{remedy}, or get {wanted.expected} and name the folder, data.folder=PATH; data.name=synthetic needs no download"
    )


def _download(wanted: OfficialSet, mirror: str, files: Sequence[OfficialFile], place: Path) -> None:
    """Fetch files from a mirror into a folder, each whole and checked, or not at all."""
    import pooch  # here, since only fetching needs it

    pooch.get_logger().setLevel("WARNING")
    http = pooch.HTTPDownloader(chunk_size=1 << 16, timeout=(_CONNECT_SECONDS, _READ_SECONDS))
    if wanted.archive:
        with tempfile.TemporaryDirectory(prefix="fedtide-") as aside:
            pooch.retrieve(mirror, wanted.archive_sha256, mirror.rpartition("/")[2], aside, downloader=http)
            raws, problems = _checked(wanted.read_folder(Path(aside)), files, "the archive")
        if problems:
            raise DataError(_first(problems))
        for name, raw in raws.items():
            write_atomically(place / name, memoryview(raw))
        return
    for file in files:

        def unpack(url: str, output: str, _: Any, file: OfficialFile = file) -> None:
            http(url, output, None)
            Path(output).write_bytes(gunzip(Path(output).read_bytes(), file.num_bytes))

        kept = pooch.retrieve(f"{mirror}/{file.name}.gz", file.sha256, file.name, place, downloader=unpack)
        os.chmod(kept, 0o644)  # pooch's 0600 would shut out others who share the cache


def _reason(error: Exception) -> str:
    """Return why something could not be had, in a few words."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    if type(error).__module__.startswith("requests"):  # what it says is about its own innards
        return type(error).__name__
    told = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return told or type(error).__name__


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
