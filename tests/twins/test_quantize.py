from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from twins.sparse_quantized import dequantize, pack_signed, quantize, unpack_signed

vectors = hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(-(2.0**60), 2.0**60, width=32))


@given(vectors, st.integers(1, 200), st.integers(0, 2**32))
def test_levels_are_whole_signed_and_bounded(vector: np.ndarray, nu: int, seed: int) -> None:
    norm, level = quantize(vector, nu, np.random.default_rng(seed))
    assert np.all(np.abs(level) <= nu)
    assert np.all((level == 0) | (np.sign(level) == np.sign(vector)))
    assert float(norm) >= np.sqrt(np.square(vector, dtype=np.float64).sum()) * (1 - 1e-15)
    received = dequantize(norm, level, nu)
    assert received.dtype == np.float32
    assert np.all(np.isfinite(received))
    error = np.abs(received.astype(np.float64) - vector)
    assert np.all(error <= float(norm) / nu * (1 + 1e-6))


@pytest.mark.parametrize("vector", [np.zeros(5), np.zeros(0)])
def test_zero_stays_zero(vector: np.ndarray) -> None:
    norm, level = quantize(vector.astype(np.float32), 4, np.random.default_rng(0))
    assert norm == 0
    assert not dequantize(norm, level, 4).any()


@pytest.mark.parametrize("size", [3.4e38, 1e-45])
def test_extreme_vectors_stay_finite(size: float) -> None:
    vector = np.array([size, -size, 0], np.float32)
    norm, level = quantize(vector, 4, np.random.default_rng(0))
    assert np.isfinite(norm)
    assert np.isfinite(dequantize(norm, level, 4)).all()


def test_a_single_element_is_exact() -> None:
    """It has the whole norm, so it sits on the top level."""
    for value in (3.0, -0.1):
        norm, level = quantize(np.array([value], np.float32), 4, np.random.default_rng(0))
        np.testing.assert_allclose(dequantize(norm, level, 4), [value], rtol=1e-6)


@pytest.mark.parametrize(("size", "nu"), [(1, 4), (8, 1), (30, 4), (400, 4), (400, 16)])
def test_unbiased_and_within_both_variance_bounds(size: int, nu: int) -> None:
    """E[u_hat] = u; E||u_hat - u||^2 is at most r/(4 nu^2) ||u||^2 and min(r/nu^2, sqrt(r)/nu) ||u||^2."""
    rng = np.random.default_rng(size)
    vector = rng.standard_normal(size).astype(np.float32)
    draws = np.stack([dequantize(*quantize(vector, nu, rng), nu) for _ in range(4000)]).astype(np.float64)
    sq_norm = float(np.square(vector, dtype=np.float64).sum())
    standard_error = np.sqrt(sq_norm) / nu / 2 / np.sqrt(len(draws))
    assert np.abs(draws.mean(axis=0) - vector).max() < 5 * standard_error + 1e-6
    variance = np.square(draws - vector).sum(axis=1).mean()
    assert variance <= size / (4 * nu**2) * sq_norm * 1.02
    assert variance <= min(size / nu**2, np.sqrt(size) / nu) * sq_norm * 1.02
    if size > 1:
        assert variance > 0.01 * size / (4 * nu**2) * sq_norm  # it does round at random


@given(st.integers(1, 40), st.lists(st.integers(-32768, 32767), min_size=1, max_size=30))
def test_signed_values_saturate(width: int, values: list[int]) -> None:
    number = pack_signed(np.array(values, np.int16), width)
    assert number.bit_length() <= width * len(values)
    limit = 2 ** (width - 1)
    expected = np.clip(values, -limit, limit - 1)
    np.testing.assert_array_equal(unpack_signed(number, len(values), width), expected)
