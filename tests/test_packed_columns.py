from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedtide.runs import record
from fedtide.runs.record import (
    MOST_COLUMN_ENTRIES,
    SHORT_COLUMN_ENTRIES,
    _pack_column,
    _read_column,
    _unpack_column,
    _write_column,
)

TYPES = [np.int64, np.float64]


@given(st.sampled_from(TYPES).flatmap(lambda kind: arrays.arrays(kind, st.integers(0, 300))))
def test_packed_columns_come_back_to_the_bit(values: Any) -> None:
    text = _pack_column(values)
    again = _unpack_column(text)
    assert again.dtype == values.dtype
    assert again.tobytes() == values.tobytes()  # NaN, -0.0 and the ends of int64 included
    assert _pack_column(again) == text


wholes = st.lists(
    st.integers(-(2**63), 2**63 - 1), min_size=SHORT_COLUMN_ENTRIES + 1, max_size=SHORT_COLUMN_ENTRIES + 20
)
reals = st.lists(st.floats(allow_nan=False), min_size=SHORT_COLUMN_ENTRIES + 1, max_size=SHORT_COLUMN_ENTRIES + 20)


@given(wholes | reals)
def test_long_lists_are_packed_and_come_back_with_their_types(values: list[Any]) -> None:
    text = _write_column(values)
    assert isinstance(text, str)
    again = _read_column(text)
    assert again == values
    assert [type(each) for each in again] == [type(each) for each in values]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1] * SHORT_COLUMN_ENTRIES,
        [1.5] * (SHORT_COLUMN_ENTRIES - 1),
        [1] * SHORT_COLUMN_ENTRIES + [1.5],
        [2**63] * 300,
        [True] * 300,
        [None] * 300,
    ],
    ids=["none", "short", "short floats", "mixed", "beyond int64", "bool", "null"],
)
def test_what_is_short_or_no_column_stays_a_list(values: list[Any]) -> None:
    assert _write_column(values) is values
    assert _read_column(values) is values


def test_a_quarter_of_a_million_devices() -> None:
    ready = np.sort(np.random.default_rng(0).choice(1_000_000, 250_000, replace=False))
    assert len(_pack_column(ready)) < 150_000


BOMB = f"<i8:{base64.b64encode(zlib.compress(bytes(8 * MOST_COLUMN_ENTRIES + 8))).decode()}"
GOOD = _pack_column(np.arange(1000))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (BOMB, "more than 16,777,216 entries"),
        (7, "neither a list"),
        (None, "neither a list"),
        ({}, "neither a list"),
        ("", "neither a list"),
        (GOOD[4:], "neither a list"),
        ("<i4:", "neither a list"),
        ("<O8:AAAA", "neither a list"),
        (GOOD[:-8], "too early|broken"),
        (GOOD[:-1], "broken"),
        ("<i8:" + base64.b64encode(zlib.compress(bytes(9))).decode(), "broken"),
        ("<i8:" + base64.b64encode(zlib.compress(bytes(8)) + b"x").decode(), "broken"),
        ("<f8:AAAA", "broken"),
    ],
)
def test_what_is_no_column(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        _read_column(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [list(range(11)), _pack_column(np.arange(11))])
def test_a_column_of_more_devices_than_there_are(value: Any) -> None:
    assert len(_read_column(value, 11)) == 11
    with pytest.raises(ValueError, match="10"):
        _read_column(value, 10)


def test_big_endian_numbers_are_the_same_numbers() -> None:
    assert _pack_column(np.arange(9, dtype=">i8")) == _pack_column(np.arange(9)) != _pack_column(np.arange(9.0))
    assert record._unpack_column(_pack_column(np.arange(9, dtype=">f8"))).tolist() == list(range(9))
