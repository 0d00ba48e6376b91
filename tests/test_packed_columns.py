from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedtide.records import columns
from fedtide.records.columns import MOST, SHORT, pack, read, unpack, written

TYPES = [np.int64, np.float64, np.float32]


@given(st.sampled_from(TYPES).flatmap(lambda kind: arrays.arrays(kind, st.integers(0, 300))))
def test_packed_columns_come_back_to_the_bit(values: Any) -> None:
    text = pack(values)
    again = unpack(text)
    assert again.dtype == values.dtype
    assert again.tobytes() == values.tobytes()  # NaN, -0.0 and the ends of int64 included
    assert pack(again) == text


wholes = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=SHORT + 1, max_size=SHORT + 20)
reals = st.lists(st.floats(allow_nan=False), min_size=SHORT + 1, max_size=SHORT + 20)


@given(wholes | reals)
def test_long_lists_are_packed_and_come_back_with_their_types(values: list[Any]) -> None:
    text = written(values)
    assert isinstance(text, str)
    again = read(text)
    assert again == values
    assert [type(each) for each in again] == [type(each) for each in values]


@pytest.mark.parametrize(
    "values",
    [[], [1] * SHORT, [1.5] * (SHORT - 1), [1] * SHORT + [1.5], [2**63] * 300, [True] * 300, [None] * 300],
    ids=["none", "short", "short floats", "mixed", "beyond int64", "bool", "null"],
)
def test_what_is_short_or_no_column_stays_a_list(values: list[Any]) -> None:
    assert written(values) is values
    assert read(values) is values


def test_a_quarter_of_a_million_devices() -> None:
    ready = np.sort(np.random.default_rng(0).choice(1_000_000, 250_000, replace=False))
    assert len(pack(ready)) < 150_000


BOMB = f"<i8:{base64.b64encode(zlib.compress(bytes(8 * MOST + 8))).decode()}"
GOOD = pack(np.arange(1000))


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
        read(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [list(range(11)), pack(np.arange(11))])
def test_a_column_of_more_devices_than_there_are(value: Any) -> None:
    assert len(read(value, 11)) == 11
    with pytest.raises(ValueError, match="10"):
        read(value, 10)


def test_only_known_numbers_are_packed() -> None:
    for wrong in (np.zeros(3, np.int32), np.zeros((2, 2)), np.array(["a"])):
        with pytest.raises(ValueError, match="a column is of"):
            pack(wrong)


def test_big_endian_numbers_are_the_same_numbers() -> None:
    assert pack(np.arange(9, dtype=">i8")) == pack(np.arange(9)) != pack(np.arange(9.0))
    assert columns.unpack(pack(np.arange(9, dtype=">f8"))).tolist() == list(range(9))
