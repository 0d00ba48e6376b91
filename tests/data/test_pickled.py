from __future__ import annotations

import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.data.unpickle import read_pickle
from fedtide.errors import DataError

ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.arange(5),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(4, dtype=">i4"),
    np.array([1, 255], np.uint8),
]


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_come_out_as_they_went_in(protocol):
    got = read_pickle(pickle.dumps((ARRAYS[:2], tuple(ARRAYS[2:])), protocol))
    for mine, theirs in zip([*got[0], *got[1]], ARRAYS, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype  # type: ignore[attr-defined]


def test_a_pickle_of_python_2_is_read():
    """As in the wheel: protocol 2, byte strings where Python 3 has text, NumPy's old module name."""
    data = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x10" + np.array([7, -1], "<i8").tobytes() + b"tb."
    )
    np.testing.assert_array_equal(read_pickle(data), [7, -1])


class Malicious:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_it_runs_nothing(tmp_path, protocol):
    victim = tmp_path / "victim"
    for call in [(os.mkdir, str(victim)), (eval, f"open({str(victim)!r}, 'w')"), (np.load, str(victim))]:
        with pytest.raises(DataError, match="refused"):
            read_pickle(pickle.dumps(Malicious(*call), protocol))
        with pytest.raises(DataError, match="refused"):
            read_pickle(pickle.dumps([ARRAYS[0], Malicious(*call)], protocol))
    assert not victim.exists()


@pytest.mark.parametrize("name", ["numpy\nload", "numpy.core.multiarray\nfromfile", "builtins\nexec", "numpy\ncore"])
def test_only_five_names_are_known(name):
    with pytest.raises(DataError, match="refused"):
        read_pickle(f"c{name}\n.".encode())


@pytest.mark.parametrize("value", [np.array([None]), np.array(["text"]), np.zeros(2, "f4,f4")], ids=repr)
def test_only_plain_arrays_are_taken(value):
    with pytest.raises(DataError):
        read_pickle(pickle.dumps(value, 4))


def test_plain_data_comes_out_as_it_went_in():
    data = {"a": [1, 2.5, None], 3: {"b": (True, "text")}, "c": np.float64(0.5), "d": np.int32(7)}
    assert read_pickle(pickle.dumps(data, 2)) == read_pickle(pickle.dumps(data, 4)) == data


@pytest.mark.parametrize(
    "data", [b"]r\xff\xff\xff\x7f.", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x00.", b"]p2000000000\n0."]
)
def test_a_few_bytes_cannot_ask_for_gigabytes(data):
    with contextlib.suppress(DataError):
        assert read_pickle(data) == []


GOOD = pickle.dumps(ARRAYS[0], 4)


def test_a_part_of_a_pickle_is_a_data_error():
    for end in range(len(GOOD)):
        with pytest.raises(DataError):
            read_pickle(GOOD[:end])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_damaged_pickle_is_an_array_or_a_data_error(at, value):
    with contextlib.suppress(DataError):
        read_pickle(GOOD[:at] + bytes([value]) + GOOD[at + 1 :])


BOMBS = {
    "a tuple of itself, doubled": b"\x80\x02)q\x00" + b"".join(b"0h%ch%c\x86q%c" % (at, at, at + 1) for at in range(64)),
    "doubled by DUP": b"\x80\x02)" + b"2\x86" * 64,
    "a doubled tuple as a key": b"\x80\x02})" + b"2\x86" * 64 + b"K\x01s",
    "a tuple of very many tuples as a key": b"\x80\x02})" + b"\x85" * 100_000 + b"K\x01s",
    "a list in itself": b"\x80\x02]q\x00h\x00a",
    "a list that many names share": b"\x80\x02}(U\x00]q\x00(" + b"K\x01" * 9 + b"e" + b"U\x01ah\x00" * 3 + b"u",
    "keys that collide": b"\x80\x02}(" + b"".join(
        b"\x8a\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + b"K\x01" for n in range(20_000)
    ) + b"u",
    "long text, encoded again and again": b"\x80\x02c_codecs\nencode\nq\x00X" + (10**6).to_bytes(4, "little")
    + b"a" * 10**6 + b"q\x01\x85R" + b"h\x00h\x01\x85R" * 100,
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_pickle_that_would_grow_for_ever_is_refused_at_once(bomb):
    with pytest.raises(DataError, match="refused"):
        read_pickle(BOMBS[bomb] + b".")
