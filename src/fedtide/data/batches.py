"""CIFAR's two ways of writing pictures down: records of bytes, and pickled arrays. Pixels are [n 3 32 32] in both."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fedtide.data.idx import Bytes, Raw
from fedtide.data.pickled import read_mapping
from fedtide.errors import DataError

SHAPE: Final = (3, 32, 32)
NUM_PIXELS: Final = 3072


def from_records(data: Raw, num_labels: int = 1, which: int = 0) -> tuple[Bytes, Bytes]:
    """Return pixels [n 3 32 32] and labels [n] of the binary version.

    A record has num_labels labels of one byte each, of which one is wanted, and 3,072 pixels.
    """
    size = num_labels + NUM_PIXELS
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
    if pixels.dtype != np.uint8 or pixels.shape != (len(answers), NUM_PIXELS) or not _are_bytes(answers):
        raise DataError(
            f"the pickle has data {pixels.dtype}{list(pixels.shape)} and {len(answers)} {labels}, expected uint8 "
            f"[n {NUM_PIXELS}] and as many labels from 0 to 255"
        )
    return pixels.reshape(-1, *SHAPE), answers.astype(np.uint8)


def _are_bytes(labels: npt.NDArray[np.int64]) -> bool:
    return labels.ndim == 1 and len(labels) > 0 and 0 <= labels.min() <= labels.max() <= 255
