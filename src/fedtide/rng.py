"""Addressed randomness: every draw comes from a stream named by (seed, purpose, index), never from a shared generator.

So every policy meets the same fading, batches and durations (paired comparisons), and the numbers do not depend on what
is trained lazily, in parallel, after a resume or on another worker.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# The numbers are part of every result: never renumber, only add.
PURPOSES: Final[dict[str, int]] = {
    "duration": 1,  # T_k
    "partition": 2,  # which samples a device holds
    "fading": 3,  # h_k(t); index: tick, or coherence block
    "schedule": 4,  # random choices of a scheduler; index: tick
    "batches": 5,  # order of the samples; index: device, version or job
    "dropout": 6,  # index: device, version or job
    "compress": 7,  # sparsification and quantisation; index: device, tick
    "initial_model": 8,
    "synthetic": 9,
    "sizes": 10,  # how many samples a device holds
    "air": 11,  # what is heard with the sum of updates that are sent at once; index: tick
    "select": 12,  # who takes a free place, where only some devices train at a time; index: how often it was asked
}


def _sequence(seed: int, purpose: str, index: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(PURPOSES[purpose], *index))


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Return a random generator for an address. The same address always gives the same numbers.

    seed: the seed of the run. purpose: what the numbers are for, one of `fedtide.rng.PURPOSES`. index: further whole numbers,
    such as device and tick, for as many independent streams as needed.

    Returns: A NumPy generator.


    >>> stream(1, "batches", 7, 3).integers(100, size=4)
    array([45, 96, 34, 81])
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, index)))


def stream_key(seed: int, purpose: str, *index: int) -> int:
    """Return a 64-bit number for this address, to key a generator that lives elsewhere (the kernel, PyTorch)."""
    return int(_sequence(seed, purpose, index).generate_state(1, np.uint64)[0])
