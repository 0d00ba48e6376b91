"""EMNIST: handwritten digits and letters, in the official IDX files."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from fedtide.core.arguments import arg
from fedtide.data.cut import cut
from fedtide.data.folder import read_whole
from fedtide.data.idx import GZIP_MAGIC, Bytes, Raw, gunzip, parse
from fedtide.data.official import check_md5, first_file, named_folder
from fedtide.data.own import Part, dataset
from fedtide.errors import DataError
from fedtide.types import Dataset

Split: TypeAlias = Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"]

NUM_LABELS: Final = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
ARCHIVE: Final = "gzip.zip"
MD5: Final = "58c8d27c78d21e728a6bc7b3cc06412e"
INNER: Final = (".", "gzip", "EMNIST/raw")  # plain; as unpacked; torchvision's root
LIMIT: Final = 1 << 30  # bytes of one file; the largest has 547,178,704
HOLDS: Final = "gzip.zip, or what was in it (emnist-balanced-train-images-idx3-ubyte.gz and so on)"
GET: Final = "gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset"


def emnist(
    split: Annotated[Split, arg("byclass, bymerge, balanced, letters, digits or mnist")] = "balanced",
    folder: Annotated[Path | None, arg("where gzip.zip or the IDX files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train")] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test")] = None,
) -> Dataset:
    """Handwritten digits and letters: 62 labels by class, 47 merged or balanced, 26 letters, 10 digits; 28 x 28.

    From the official files; gzip.zip is checked by its MD5, loose files by their structure. Turned upright; labels from 0.
    Images uint8 [n 1 28 28], normalised by mean and deviation of the training images.
    """
    place = named_folder("EMNIST", folder, HOLDS, GET)
    train, test = (_part(place, split, part) for part in ("train", "test"))
    return cut(dataset("emnist", str(place), train, test, num_labels=NUM_LABELS[split]), num_train, num_test)


def _part(folder: Path, split: str, part: str) -> Part:
    images, labels = (
        _parsed(folder, f"emnist-{split}-{part}-{kind}-ubyte", dimensions)
        for kind, dimensions in (("images-idx3", 3), ("labels-idx1", 1))
    )
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise DataError(
            f"EMNIST in {folder}: {part} has images {list(images.shape)} and {len(labels)} labels, expected [n 28 28] and n"
        )
    first = 1 if split == "letters" else 0  # letters count from 1
    if not len(labels) or labels.min() < first or labels.max() >= NUM_LABELS[split] + first:
        has = f"labels from {labels.min()} to {labels.max()}" if len(labels) else "no labels"
        raise DataError(f"EMNIST in {folder}: {part} has {has}, expected {first} to {NUM_LABELS[split] + first - 1}")
    return Part(images.transpose(0, 2, 1), labels - first)


def _parsed(folder: Path, name: str, dimensions: int) -> Bytes:
    try:
        raw = _raw(folder, name)
        array = parse(gunzip(raw, LIMIT) if raw.startswith(GZIP_MAGIC) else raw)
        if array.ndim != dimensions:
            raise DataError(f"it has {array.ndim} dimensions, expected {dimensions}")
        return array
    except (DataError, OSError) as error:
        raise DataError(f"EMNIST: {name} in {folder}: {error}; expected {HOLDS}") from error


def _raw(folder: Path, name: str) -> Raw:
    path = first_file(folder, INNER, name)
    if path is not None:
        return read_whole(path, min(path.stat().st_size, LIMIT))
    archive = folder / ARCHIVE
    if not archive.is_file():
        raise DataError("it is not there")
    check_md5(archive, MD5)
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(f"gzip/{name}.gz") as file:
            return file.read(LIMIT)
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise DataError(f"{archive} is damaged ({error})") from error
