"""The codecs' part of the extension. Where it is not built the Python code beside it runs: the same bytes, more slowly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide.types import Rng, Vector

try:
    import fedtide._native as _native
except ImportError:  # it was installed without a compiler
    _native = None  # type: ignore[assignment]

extension: Any = _native  # looked up at every call, so that a test can set it to None


def contiguous(updates: Sequence[Vector]) -> list[Vector]:
    """Return the updates [d] as the extension reads them."""
    return [np.ascontiguousarray(update, np.float32) for update in updates]


def capsules(rngs: Sequence[Rng]) -> list[Any]:
    """Return the generators as NumPy hands them to C: what is drawn there is drawn from them."""
    return [rng.bit_generator.capsule for rng in rngs]
