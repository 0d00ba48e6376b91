"""The codecs' part of the extension. Where it is not built the Python code beside it runs: the same bytes, more slowly."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtide.types import Rng, Vector

extension: Any  # fedtide._native, or None: loaded when it is first asked for, and a test may set it to None


def __getattr__(name: str) -> Any:
    if name != "extension":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _loaded()


@functools.cache
def _loaded() -> Any:
    try:
        import fedtide._native as found
    except ImportError:  # it was installed without a compiler
        return None
    return found


def contiguous(updates: Sequence[Vector]) -> list[Vector]:
    """Return the updates [d] as the extension reads them."""
    return [np.ascontiguousarray(update, np.float32) for update in updates]


def capsules(rngs: Sequence[Rng]) -> list[Any]:
    """Return the generators as NumPy hands them to C: what is drawn there is drawn from them."""
    return [rng.bit_generator.capsule for rng in rngs]
