from __future__ import annotations

import contextlib
import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedtide.data.idx import check_file, gunzip, parse_idx, render
from fedtide.errors import DataError


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)))
@settings(deadline=None)
def test_parse_undoes_render(array):
    np.testing.assert_array_equal(parse_idx(render(array)), array)


def test_header_is_as_documented():
    assert render(np.zeros((2, 3, 1), np.uint8)).hex() == "00000803" + "00000002" + "00000003" + "00000001" + "00" * 6


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_parse_of_anything_is_an_array_or_a_data_error(data):
    with contextlib.suppress(DataError):
        assert render(parse_idx(data)) == data


@pytest.mark.parametrize(("data", "reason"), [(b"", "begins with nothing"), (b"\x89PNG", "89504e47")])
def test_parse_says_what_it_saw(data, reason):
    with pytest.raises(DataError, match=reason):
        parse_idx(data)


def test_check_takes_raw_and_gzipped(tiny):
    for file in tiny.files:
        raw = tiny.raws[file.name]
        assert check_file(raw, file) == raw
        assert check_file(gzip.compress(raw), file) == raw


def test_check_names_what_is_wrong(tiny):
    file = tiny.files[1]
    raw = tiny.raws[file.name]
    packed = gzip.compress(raw)
    flipped = raw[:-1] + bytes([raw[-1] ^ 1])
    for data, reason in [
        (raw[:-3], f"truncated: {len(raw) - 3} bytes, expected {len(raw)}"),
        (raw + b"x", f"{len(raw) + 1} bytes, expected {len(raw)}"),
        (flipped, f"corrupt: SHA-256 .* expected {file.sha256}"),
        (packed[:-9], "truncated gzip data"),
        (packed[:12] + b"\xff\xff" + packed[14:], "gzip data"),
        (gzip.compress(raw + b"x"), "more than"),
        (gzip.compress(flipped), "corrupt"),
        (b"", "truncated: 0 bytes"),
    ]:
        with pytest.raises(DataError, match=reason):
            check_file(data, file)


def test_gunzip_stops_at_its_limit():
    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(DataError, match="more than the 1000 bytes"):
        gunzip(bomb, 1000)
