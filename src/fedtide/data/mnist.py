"""MNIST and Fashion-MNIST: four IDX files each, byte for byte; and the IDX format."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Final

import numpy as np

from fedtide.data.dataset import first_samples
from fedtide.data.fetch import (
    Bytes,
    OfficialFile,
    OfficialSet,
    Raw,
    Say,
    at_hand,
    find_file,
    obtain,
    read_whole,
    registered,
    to_stderr,
)
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

_UNSIGNED_BYTE: Final = 0x08  # the type code of IDX; our sets use no other


def parse_idx(raw: Raw) -> Bytes:
    """Return the array in IDX bytes, of the shape its header gives (a view, no copy)."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise DataError(f"not an IDX file of unsigned bytes: it begins with {raw[:4].hex() or 'nothing'}")
    start = 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4))
    if len(raw) != start + math.prod(shape):
        raise DataError(f"IDX header says {list(shape)}, which needs {start + math.prod(shape)} bytes, not {len(raw)}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _idx_set(
    name: str, title: str, mirrors: tuple[str, ...], root: str, files: tuple[OfficialFile, ...]
) -> OfficialSet:
    """Return the set of four files: training images and labels, then those of the test. root: torchvision's folder."""

    def read_folder(folder: Path) -> dict[str, Raw]:
        stems = {file.name: (file.name, file.name.replace("-idx", ".idx")) for file in files}
        names = {name: [stem + end for end in ("", ".gz") for stem in both] for name, both in stems.items()}
        paths = {name: find_file(folder, (".", root, "raw"), usual) for name, usual in names.items()}
        return {name: read_whole(path) for name, path in paths.items() if path is not None}

    return OfficialSet(name, title, mirrors, f"{files[0].name}.gz and so on, unpacked or not", read_folder, files)


MNIST: Final = _idx_set(
    "mnist",
    "MNIST",
    ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
    "MNIST/raw",
    registered("mnist"),
)
FASHION_MNIST: Final = _idx_set(
    "fashion_mnist",
    "Fashion-MNIST",
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),  # it has no HTTPS; the checksums are ours
    "FashionMNIST/raw",
    registered("fashion_mnist"),
)


def load_idx(wanted: OfficialSet, mean: float, std: float, folder: Path | None, say: Say, images: bool) -> Dataset:
    """Return the set: images float32 [n 1 28 28] as (pixel/255 - mean)/std, labels uint8 [n]; ten labels.

    With images=False the labels are enough (a plan needs no more) if they are at hand: the images are then all zero and
    take no memory.
    """
    if not images and (labels := at_hand(wanted, folder, wanted.files[1::2])):
        answers = [parse_idx(raw).copy() for raw in labels]
        train, test = (Samples(np.broadcast_to(np.float32(0), (len(part), 1, 28, 28)), part) for part in answers)
        return Dataset(wanted.name, train, test, 10, f"labels only, {folder or wanted.cache}")
    raws, source = obtain(wanted, folder, say)
    arrays = [parse_idx(raw) for raw in raws]
    values = ((np.arange(256) / 255 - mean) / std).astype(np.float32)  # computed once, in double precision
    train, test = (_samples(arrays[at], arrays[at + 1], values) for at in (0, 2))
    return Dataset(wanted.name, train, test, 10, source)


def _samples(pixels: Bytes, labels: Bytes, values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Samples:
    """Normalise pixels [n h w] by what each byte stands for [256]."""
    images = np.empty((len(pixels), 1, *pixels.shape[1:]), np.float32)
    for start in range(0, len(pixels), 1000):  # in blocks: NumPy blows the pixels up to 8-byte indices on the way
        block = slice(start, start + 1000)
        images[block, 0] = values[pixels[block]]
    return Samples(images, labels.copy())


_Folder = Annotated[Path | None, arg("where the IDX files lie", key="data.folder")]
_NumTrain = Annotated[int | None, arg("use only the first so many", key="data.num_train", le=60_000)]
_NumTest = Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)]
_Tell = Annotated[Say, arg("told what is fetched", key="run.say")]
_Images = Annotated[bool, arg("false: labels are enough, where they are at hand", key="run.images")]


def mnist(
    folder: _Folder = None,
    num_train: _NumTrain = None,
    num_test: _NumTest = None,
    say: _Tell = to_stderr,
    images: _Images = True,
) -> Dataset:
    """Handwritten digits: 60,000 training and 10,000 test images, from a folder or wherever they can be had."""
    return first_samples(load_idx(MNIST, 0.1307, 0.3081, folder, say, images), num_train, num_test)


def fashion_mnist(
    folder: _Folder = None,
    num_train: _NumTrain = None,
    num_test: _NumTest = None,
    say: _Tell = to_stderr,
    images: _Images = True,
) -> Dataset:
    """Pictures of clothes, ten kinds of them, in the place of digits: as many as MNIST has, and of the same size.

    Images float32 [n 1 28 28] as (pixel/255 - 0.2860)/0.3530, labels uint8 [n].
    """
    return first_samples(load_idx(FASHION_MNIST, 0.2860, 0.3530, folder, say, images), num_train, num_test)
