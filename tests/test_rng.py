from __future__ import annotations

import numpy as np
import pytest

from fedtide.rng import PURPOSES, stream, stream_key


def test_purposes_keep_their_numbers() -> None:
    """They are part of every result: an old run could not be repeated if one changed."""
    assert PURPOSES == {
        "duration": 1,
        "partition": 2,
        "fading": 3,
        "schedule": 4,
        "batches": 5,
        "dropout": 6,
        "compress": 7,
        "initial_model": 8,
        "synthetic": 9,
        "sizes": 10,
        "air": 11,
        "select": 12,
    }


def test_golden_values() -> None:
    assert stream(0, "duration").random(2).tolist() == GOLDEN_DURATION
    assert stream(7, "fading", 3).standard_normal(2).tolist() == GOLDEN_FADING
    assert stream(2**62, "compress", 5, 9).permutation(8).tolist() == GOLDEN_COMPRESS
    assert stream_key(1, "dropout", 2, 3) == GOLDEN_KEY


GOLDEN_DURATION = [0.6771968569751019, 0.2429867485428212]
GOLDEN_FADING = [0.5858614345445484, -1.765753667257528]
GOLDEN_COMPRESS = [6, 2, 3, 0, 7, 4, 1, 5]
GOLDEN_KEY = 1281693125842697715


def test_same_address_same_numbers_and_no_state_between_calls() -> None:
    first = stream(1, "batches", 2, 3)
    first.random(100)
    assert stream(1, "batches", 2, 3).random() == stream(1, "batches", 2, 3).random() != first.random()


@pytest.mark.parametrize("draw", [lambda *a: stream(*a).random(), stream_key])
def test_every_part_of_an_address_counts(draw: object) -> None:
    addresses = [
        (seed, purpose, *index)
        for seed in (0, 1, 2**40)
        for purpose in PURPOSES
        for index in ((), (0,), (1,), (0, 0), (0, 1), (1, 0))
    ]
    assert len({draw(*address) for address in addresses}) == len(addresses)


def test_neighbouring_streams_do_not_correlate() -> None:
    rows = np.array([stream(0, "fading", t).standard_normal(4000) for t in range(20)])
    off_diagonal = np.corrcoef(rows)[~np.eye(20, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.08
    assert rows.mean() == pytest.approx(0, abs=0.02)


def test_an_unknown_purpose_is_an_error() -> None:
    with pytest.raises(KeyError):
        stream(0, "nonsense")
