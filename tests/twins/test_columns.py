"""Draws of the extension and of NumPy: the same bits, whatever is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide import columns
from fedtide.errors import FedtideError
from fedtide.extension import native as extension
from twins import columns as twin

DRAWS = [columns.uniform, columns.normal, columns.exponential, columns.complex_normal, columns.uniform_pair]


def both(how: Any, *args: Any, **more: Any) -> tuple[Any, Any]:
    """Return what the extension draws, and what NumPy does."""
    native = how(*args, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "native", twin)
        return native, how(*args, **more)


numbers = st.integers(0, 2**63 - 1) | st.integers(0, 40)


@pytest.mark.parametrize("draw", DRAWS)
@settings(max_examples=60)
@given(
    st.integers(0, 2**70),
    st.lists(st.tuples(numbers, numbers), min_size=0, max_size=40),
    st.lists(numbers, max_size=2),
    numbers,
)
def test_same_bits(draw: Any, seed: int, rows: list[tuple[int, int]], index: list[int], number: int) -> None:
    device, job = np.array(rows, np.int64).reshape(-1, 2).T
    native, numpy = both(draw, seed, "a purpose", device, *index, job, draw=number)
    assert np.array_equal(native, numpy)
    assert np.asarray(native).dtype == np.asarray(numpy).dtype


@pytest.mark.parametrize(
    ("device", "index"),
    [
        (np.arange(5)[:, None], (7, np.arange(3))),
        (np.arange(5), (np.arange(3)[:, None], np.arange(5))),
        (3, (4,)),
        (np.arange(4).reshape(2, 2), (np.arange(2),)),
        (np.arange(50)[::7], (np.arange(8, dtype=np.uint8),)),
        (np.arange(3, dtype=np.int32), ()),
        (np.zeros((0, 1), np.int64), (np.arange(3),)),
        (np.arange(6)[:0], (1, 2)),
        (np.array([2**63 - 1]).astype(np.uint64), (1,)),
    ],
)
def test_same_bits_whatever_the_shapes(device: Any, index: tuple[Any, ...]) -> None:
    native, numpy = both(columns.uniform, 5, "shapes", device, *index)
    assert native.shape == numpy.shape
    assert np.array_equal(native, numpy)


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        columns.uniform(0, "x", np.arange(3), np.arange(4))
    with pytest.raises(ValueError, match="equally long"):
        extension.units(np.arange(3, dtype=np.uint64), np.arange(4, dtype=np.uint64), np.zeros(1, np.uint64), True)
    with pytest.raises(FedtideError, match="draws are numbered"):
        columns.uniform(0, "x", np.array([2**63], np.uint64))


def test_the_second_of_a_pair_is_another() -> None:
    one, other = columns.uniform_pair(1, "x", np.arange(2000))
    assert np.array_equal(one, columns.uniform(1, "x", np.arange(2000)))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.08
