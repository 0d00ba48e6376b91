"""The compiled extension (native/): training, codecs, draws and the search for schedules. fedtide does not work without it."""

from __future__ import annotations

from fedtide.errors import FedtideError

try:
    import fedtide._native as native
except ImportError as error:
    raise FedtideError(
        f"the compiled extension of fedtide cannot be loaded ({error}): install a wheel of fedtide, or install a C++ compiler and "
        "then fedtide again"
    ) from error

__all__ = ["native"]
