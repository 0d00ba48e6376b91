"""What this machine can do, where that decides the last digits."""

from __future__ import annotations


def numpy_has_avx512() -> bool:
    """NumPy's own functions differ in their last digit where it finds AVX-512."""
    from numpy._core._multiarray_umath import __cpu_features__

    return any(__cpu_features__.get(name) for name in ("AVX512_SKX", "X86_V4"))  # as NumPy 1 and 2 call it
