"""How fast a device's CPU is: drawn once, and the same for how long it computes and what that costs."""

from __future__ import annotations

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints


def frequencies(seed: int, device: Ints, low: float, high: float) -> Floats:
    """Return f_k ~ U(low, high) in cycles/s, once per device [m]."""
    return low + (high - low) * columns.uniform(seed, "frequency", device)


def check_frequencies(part: str, low: float, high: float) -> None:
    """Raise if the bounds of the frequencies are in the wrong order."""
    if low > high:
        raise FedtideError(f"{part}: min_frequency={low:g} exceeds max_frequency={high:g}; swap them")
