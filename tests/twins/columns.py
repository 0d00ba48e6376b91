"""The twin of native/columns.cpp: Philox4x32-10 in NumPy, and labels drawn from an urn."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedtide.types import Floats, Ints

PhiloxWords: TypeAlias = npt.NDArray[np.uint64]  # 32 bits each, held in 64 so that products do not overflow
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10


def lead(key: PhiloxWords, index: PhiloxWords, place: int) -> PhiloxWords:
    """Lead keys on by an index that stands at this place of an address."""
    counter = index & _LOW, index >> _HALF, np.array([place], np.uint64), np.ones(1, np.uint64)
    low, high = philox((key & _LOW, key >> _HALF), counter)[:2]
    return high << _HALF | low


def units(key: PhiloxWords, device: PhiloxWords, draw: PhiloxWords, both: bool) -> tuple[Floats, Floats]:
    """Return two numbers in [0, 1) at each address."""
    counter = device & _LOW, device >> _HALF, draw & _LOW, draw >> _HALF << np.uint64(1)
    words = philox((key & _LOW, key >> _HALF), counter)
    return _unit(words[0], words[1]), _unit(words[2], words[3])


def draw_labels(key: int, device: PhiloxWords, size: Ints, mass: float, ends: Floats) -> Ints:
    """Draw so many labels of each device from an urn, and return how often each was drawn [m c]."""
    most = int(np.max(size, initial=0))
    counts = np.zeros((len(device), len(ends)), np.int64)
    labels = np.zeros((len(device), most), np.int64)
    everyone = np.arange(len(device))
    for at in range(most):
        value = units(np.array([key], np.uint64), device, np.array([at // 2], np.uint64), True)[at % 2]
        if math.isinf(mass):
            label = _label_at(ends, value * ends[-1])
        else:
            place = value * (at + mass)
            old = labels[everyone, np.where(place < at, place, 0).astype(np.int64)]  # one that was drawn before
            label = np.where(place < at, old, _label_at(ends, (place - at) / mass * ends[-1]))
        labels[:, at] = label
        counts[everyone, label] += at < size
    return counts


def _label_at(ends: Floats, place: Floats) -> Ints:
    """Return the labels at these places among the cumulated weights [m]; rounding may put a place at the very end."""
    return np.searchsorted(ends[:-1], place, side="right")


def _unit(low: PhiloxWords, high: PhiloxWords) -> Floats:
    return np.asarray(((high << _HALF | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def philox(
    key: tuple[PhiloxWords, PhiloxWords], counter: tuple[PhiloxWords, PhiloxWords, PhiloxWords, PhiloxWords]
) -> tuple[PhiloxWords, PhiloxWords, PhiloxWords, PhiloxWords]:
    """Return the four words of 32 bits at each counter under each key; arrays that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = b >> _HALF ^ c1 ^ k0, b & _LOW, a >> _HALF ^ c3 ^ k1, a & _LOW
        k0, k1 = k0 + _WEYL[0] & _LOW, k1 + _WEYL[1] & _LOW
    return c0, c1, c2, c3
