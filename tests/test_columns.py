"""Draws as columns: known answers of the generator, one device like all, the right distributions, independence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedtide import columns
from fedtide.errors import FedtideError
from twins.columns import philox

MANY = np.arange(20_000)
DRAWS = [columns.uniform, columns.normal, columns.exponential, columns.complex_normal]
# Known answers published with the generator (Random123, kat_vectors: philox4x32, 10 rounds).
KNOWN = [
    (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (2**64 - 1, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (0x299F31D0A4093822, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip


def words(*values: int) -> Any:
    return tuple(np.array([each], np.uint64) for each in values)


@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN)
def test_known_answers(key: int, counter: tuple[int, ...], answer: tuple[int, ...]) -> None:
    found = philox(words(key & 0xFFFFFFFF, key >> 32), words(*counter))
    assert tuple(int(each[0]) for each in found) == answer


# Never change these: they are part of every result drawn from here.
ADDRESSES: list[tuple[tuple[Any, ...], dict[str, int]]] = [
    ((0, "fading", np.array([0])), {}),
    ((1, "my channel", np.array([7]), 3), {}),
    ((2**200, "ünïcode: 1", np.array([2**40]), 5, 6), {"draw": 2}),
]


def test_addresses_keep_their_numbers() -> None:
    found = [float(columns.uniform(*args, **more)[0]) for args, more in ADDRESSES]
    assert found == [0.6884347832000113, 0.4337192689209368, 0.3513757501184126]


@pytest.mark.parametrize("draw", DRAWS)
@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=20),
    st.integers(0, 2**70),
    st.text(max_size=5),
    st.integers(0, 10**6),
)
def test_a_device_draws_the_same_whoever_else_is_asked(
    draw: Any, rows: list[tuple[int, int]], seed: int, purpose: str, tick: int
) -> None:
    device, job = np.array(rows).T
    together = draw(seed, purpose, device, tick, job)
    assert together.shape == (len(rows),)
    alone = [draw(seed, purpose, np.array([k]), tick, j)[0] for k, j in rows]
    assert together.tolist() == alone
    assert draw(seed, purpose, device[::-1], tick, job[::-1]).tolist() == alone[::-1]


def test_one_of_a_million_is_the_same_as_of_all() -> None:
    everyone = columns.normal(3, "fading", np.arange(1_000_000), 9)
    some = np.array([999_999, 0, 123_456])
    assert columns.normal(3, "fading", some, 9).tolist() == everyone[some].tolist()


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [(columns.uniform, "uniform"), (columns.normal, "norm"), (columns.exponential, "expon")],
)
def test_distributions(draw: Any, distribution: str) -> None:
    one = np.full_like(MANY, 5)
    for found in (
        draw(1, "fading", MANY, 7),  # over devices,
        draw(1, "fading", one, MANY),  # over the first index, as an array
        draw(1, "fading", one, 7, MANY),  # and over the second,
        np.array([draw(1, "fading", one[:1], tick)[0] for tick in range(2000)]),  # as whole numbers,
        np.array([draw(seed, "fading", one[:1])[0] for seed in range(2000)]),  # over seeds,
        np.array([draw(1, f"fading {each}", one[:1])[0] for each in range(2000)]),  # purposes
        np.array([draw(1, "fading", one[:1], draw=each)[0] for each in range(2000)]),  # and draws.
    ):
        assert stats.kstest(found, distribution).pvalue > 1e-4


def test_fading_is_circular() -> None:
    h = columns.complex_normal(3, "fading", MANY, 1)
    assert stats.kstest(np.abs(h) ** 2, "expon").pvalue > 1e-4
    assert stats.kstest(np.angle(h) / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(h.real, h.imag)[0, 1]) < 0.03


def test_addresses_are_independent() -> None:
    """All pairs of columns that differ in one part of the address: uncorrelated, and no number twice."""
    found = [
        columns.normal(1, "fading", MANY, 1),
        columns.normal(2, "fading", MANY, 1),
        columns.normal(1 + 2**64, "fading", MANY, 1),
        columns.normal(1, "Fading", MANY, 1),
        columns.normal(1, "fading", MANY, 2),
        columns.normal(1, "fading", MANY, 1 + 2**32),
        columns.normal(1, "fading", MANY),
        columns.normal(1, "fading", MANY, 1, 0),
        columns.normal(1, "fading", MANY, 0, 1),
        columns.normal(1, "fading", MANY + len(MANY), 1),
        columns.normal(1, "fading", MANY + 2**32, 1),
        columns.normal(1, "fading", MANY, 1, draw=1),
        columns.normal(1, "fading", MANY, 1, draw=2**32),
        columns.normal(1, "fading", np.ones_like(MANY), MANY + 5),
    ]
    correlation = np.corrcoef(found) - np.eye(len(found))
    assert np.abs(correlation).max() < 0.035
    assert len(np.unique(np.concatenate(found))) == MANY.size * len(found)
    assert abs(np.corrcoef(found[0][1:], found[0][:-1])[0, 1]) < 0.03


def test_arrays_broadcast() -> None:
    device, path = np.array([4, 9]), np.arange(3)
    found = columns.uniform(1, "paths", device[:, None], 8, path)
    assert found.shape == (2, 3)
    assert found[1, 2] == columns.uniform(1, "paths", np.array([9]), 8, 2)[0]


def test_what_is_given_is_not_written_to() -> None:
    device = np.arange(5)
    device.flags.writeable = False
    columns.complex_normal(1, "fading", device, device)


@pytest.mark.parametrize("draw", DRAWS)
def test_nobody(draw: Any) -> None:
    assert draw(0, "fading", np.zeros(0, np.int64), 1).shape == (0,)
    assert draw(0, "fading", np.zeros(0, np.int64), 1, np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize(
    ("seed", "device", "index", "says"),
    [
        (-1, [0], 1, "seed=-1 is negative"),
        (0, [0, -2], 1, "device=0, -2: draws are numbered"),
        (0, [0], -1, "index=-1: draws are numbered"),
        (0, [0], 0.5, r"index=0\.5: draws are numbered"),
        (0, [0], 2**70, "index=11805.*: draws are numbered"),
    ],
)
def test_numbers_that_name_nothing(seed: int, device: list[int], index: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says):
        columns.uniform(seed, "fading", np.array(device), index)
