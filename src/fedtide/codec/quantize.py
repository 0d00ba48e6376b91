"""The nu-level random quantiser (QSGD): unbiased, one norm for the whole vector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedtide.types import Rng, Vector


def quantize(vector: Vector, num_levels: int, rng: Rng) -> tuple[np.float32, npt.NDArray[np.int16]]:
    """Return the norm and a signed level in -nu..nu for every element, E[norm * level / nu] = vector.

    The norm is sent as float32; it is rounded up, so that no element exceeds it. A zero vector gives norm 0 and levels 0.
    """
    largest = np.finfo(np.float32).max
    exact = min(float(np.sqrt(np.square(vector, dtype=np.float64).sum())), float(largest))
    norm = np.float32(exact)
    if float(norm) < exact:  # in float64: NumPy would round `exact` to float32 before it compares
        norm = np.nextafter(norm, largest)
    if norm == 0:
        return norm, np.zeros(len(vector), np.int16)
    scaled = np.abs(vector, dtype=np.float64) * (num_levels / float(norm))
    lower = np.floor(scaled)
    level = np.minimum(lower + (rng.random(len(vector)) < scaled - lower), num_levels)
    return norm, np.copysign(level, vector).astype(np.int16)


def dequantize(norm: np.float32, level: npt.NDArray[np.int16], num_levels: int) -> Vector:
    """Return norm * level / nu in float32."""
    return (float(norm) / num_levels * level).astype(np.float32)
