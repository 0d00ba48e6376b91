"""A tiny MNIST: six training and four test images, with checksums of their own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fedtide.data.idx import IdxFile, render
from fedtide.data.mnist import MNIST_FILES


class Tiny(NamedTuple):
    files: tuple[IdxFile, ...]
    raws: dict[str, bytes]  # by name
    pixels: list[np.ndarray]  # training, test [n 28 28]
    labels: list[np.ndarray]


@pytest.fixture
def tiny() -> Tiny:
    rng = np.random.default_rng(5)
    pixels = [rng.integers(0, 256, (n, 28, 28), np.uint8) for n in (6, 4)]
    labels = [rng.integers(0, 10, n, np.uint8) for n in (6, 4)]
    names = [file.name for file in MNIST_FILES]
    raws = dict(
        zip(names, map(render, (pixels[0], labels[0], pixels[1], labels[1])), strict=True),
    )
    files = tuple(IdxFile(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in raws.items())
    return Tiny(files, raws, pixels, labels)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder the cache keeps MNIST in: a new one for every test."""
    monkeypatch.setenv("FEDTIDE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mnist"


@pytest.fixture
def said() -> list[str]:
    return []
