"""A data set of four IDX files, byte for byte: ten labels, images of one channel, normalised to float32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from fedtide.data.folder import look
from fedtide.data.idx import Bytes, IdxFile, parse
from fedtide.data.obtain import Say, Wanted, Whereabouts, obtained, to_stderr, whereabouts
from fedtide.data.source import Source
from fedtide.types import Dataset, Samples

NUM_LABELS: Final = 10


class IdxSet(NamedTuple):
    """What there is to know of such a set."""

    name: str  # as an experiment has it
    title: str  # as a reader knows it
    files: tuple[IdxFile, ...]  # training images and labels, then those of the test
    mean: float  # of the training pixels, as shares of 255
    std: float
    sources: tuple[Source, ...]  # in the order in which they are asked
    root: str  # where torchvision's root folder has them
    clients: str  # the package managers that can fetch it
    loader: str  # how it is loaded from a folder in Python

    def wanted(self, files: Sequence[IdxFile] | None = None) -> Wanted:
        """Return what is looked for, and the words about it."""
        expected = f"the four IDX files, gzipped or not, in the folder itself or in its {self.root}"
        files = self.files if files is None else tuple(files)
        remedy = (
            f"install {self.clients}, or get the four files ({files[0].name}.gz and so on) elsewhere and name their "
            f"folder: data.folder=PATH on the command line, {self.loader} in Python. The synthetic data set needs no "
            "download."
        )
        return Wanted(self.name, self.title, files, (".", self.root, "raw"), expected, remedy)


def located(described: IdxSet, folder: Path | None = None, files: Sequence[IdxFile] | None = None) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    return whereabouts(described.wanted(files), folder)


def load_idx(
    described: IdxSet,
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    files: Sequence[IdxFile] | None = None,
    sources: Iterable[Source] | None = None,
    images: bool = True,
) -> Dataset:
    """Return the set: images float32 [n 1 28 28] as (pixel/255 - mean)/std, labels uint8 [n].

    A folder, when named, must hold all four files whole; otherwise the cache and then the sources are asked in turn.
    DataError when nothing serves. With images=False the labels are enough (a plan needs no more) if they are at hand: the
    images are then all zero and take no memory.
    """
    wanted = described.wanted(files)
    if not images and (labelled := _labels_only(wanted, folder.expanduser() if folder else wanted.cache)):
        return labelled
    raws, source = obtained(wanted, folder, described.sources if sources is None else sources, say)
    say(f"{described.title} from {source}")
    train_images, train_labels, test_images, test_labels = (parse(raw) for raw in raws)
    values = ((np.arange(256) / 255 - described.mean) / described.std).astype(np.float32)
    train, test = _samples(train_images, train_labels, values), _samples(test_images, test_labels, values)
    return Dataset(described.name, train, test, NUM_LABELS, source)


def _labels_only(wanted: Wanted, folder: Path) -> Dataset | None:
    raws = [look(folder, file, wanted.layouts).raw for file in wanted.files[1::2]]
    if any(raw is None for raw in raws):
        return None
    train, test = (parse(raw).copy() for raw in raws if raw is not None)
    blank = {len(each): np.broadcast_to(np.float32(0), (len(each), 1, 28, 28)) for each in (train, test)}
    samples = (Samples(blank[len(train)], train), Samples(blank[len(test)], test))
    return Dataset(wanted.name, samples[0], samples[1], NUM_LABELS, f"labels only, {folder}")


def _samples(pixels: Bytes, labels: Bytes, values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Samples:
    """Normalise pixels [n h w]; every pixel value [256] was computed once, in double precision."""
    images = np.empty((len(pixels), 1, *pixels.shape[1:]), np.float32)
    for start in range(0, len(pixels), 1000):  # in blocks: NumPy blows the pixels up to 8-byte indices on the way
        block = slice(start, start + 1000)
        images[block, 0] = values[pixels[block]]
    return Samples(images, labels.copy())
