"""Fashion-MNIST, byte for byte: from a folder, the cache, its authors' mirror or a Debian package, in this order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from fedtide.core.arguments import arg
from fedtide.data.cut import cut
from fedtide.data.debian import debian
from fedtide.data.idx import IdxFile
from fedtide.data.idx_set import IdxSet, load_idx, located
from fedtide.data.mirror import mirror
from fedtide.data.obtain import Say, Whereabouts, to_stderr
from fedtide.data.source import Source
from fedtide.types import Dataset

MIRROR: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"  # it has no HTTPS; the checksums are ours
PACKAGE: Final = "dataset-fashion-mnist"
SOURCES: Final = (
    Source(f"mirror {MIRROR}", mirror(MIRROR)),
    Source(f"Debian package {PACKAGE}", debian(PACKAGE)),
)
FILES: Final = (
    IdxFile("train-images-idx3-ubyte", 47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    IdxFile("train-labels-idx1-ubyte", 60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    IdxFile("t10k-images-idx3-ubyte", 7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    IdxFile("t10k-labels-idx1-ubyte", 10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
)
FASHION: Final = IdxSet(
    "fashion_mnist",
    "Fashion-MNIST",
    FILES,
    0.2860,
    0.3530,
    SOURCES,
    "FashionMNIST/raw",
    f"Debian's {PACKAGE}",
    "fedtide.data.load('fashion_mnist', folder=PATH)",
)


def locate(folder: Path | None = None) -> Whereabouts:
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
    return cut(load_idx(FASHION, folder, say, images=images), num_train, num_test)
