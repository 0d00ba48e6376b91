"""Label histograms with differential privacy: two-sided geometric (discrete Laplace) noise on clipped counts.

Unit of privacy: one sample, added or removed. It changes one count by at most one, so the histogram's L1 sensitivity is 1
and noise with P(z) proportional to exp(-epsilon |z|) on every count gives epsilon-differential privacy. Clipping before the
noise never enlarges that difference; clipping after it, and the sum of the noisy counts as |S_k|, are post-processing.
Whole-number noise has no low-order bits that could tell the count (Mironov 2012). The draw must be secret and made once:
a server that knew the seed could subtract the noise, and one that sees many draws could average it away.
"""

from __future__ import annotations

import math

import numpy as np

from fedtide.errors import FedtideError
from fedtide.types import Ints, Rng

SMALLEST = 1e-12  # below it the noise goes beyond whole numbers of 64 bits


def private_counts(counts: Ints, epsilon: float, clip: int, rng: Rng) -> Ints:
    """Return noisy counts [c] or [m c], whole numbers in 0..clip, at least one sample in all."""
    if not (epsilon >= SMALLEST and math.isfinite(epsilon)):
        raise FedtideError(f"epsilon={epsilon}: it must be a positive number from {SMALLEST:g}, such as 1.0")
    shares = -math.expm1(-epsilon)  # 1 - exp(-epsilon), the geometric law's p
    noise = rng.geometric(shares, counts.shape) - rng.geometric(shares, counts.shape)
    noisy: Ints = np.clip(np.clip(counts, 0, clip) + noise, 0, clip)
    empty = noisy.sum(axis=-1) == 0
    if empty.any():  # a device that seems to hold nothing could not be weighed
        noisy[..., 0] = np.where(empty, 1, noisy[..., 0])
    return noisy


def secret_rng(secret: bytes) -> Rng:
    """Return the generator that a node's secret names; the same secret gives the same noise."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(secret, "big")))
