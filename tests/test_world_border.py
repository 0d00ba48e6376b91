"""What a user's parts of the world may answer, and the one line that says so otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedtide.devices.availability import Always, always
from fedtide.devices.duration import UniformDuration, redraws
from fedtide.engine.checks import (
    CheckedAllocation,
    CheckedAvailability,
    CheckedChannel,
    CheckedDuration,
    checked_shares,
)
from fedtide.errors import FedtideError, TrainingError
from fedtide.types import Link, Shares

DEVICE, JOB, TIME = np.array([5, 8]), np.array([1, 2]), np.array([3.0, 4.0])
MASKED = np.ma.masked_array([1.0, 2.0], [False, True])
NO_COLUMNS: list[tuple[Any, str]] = [
    (None, "returned None: it must give an array of 2 "),
    (1.0, r"returned an array of shape \(\) and type float64: it must give an array of 2 "),
    ([1.0], r"returned an array of shape \(1,\) and type float64"),
    ([[1.0], [2.0]], r"shape \(2, 1\)"),
    ([[1.0], [2.0, 3.0]], r"returned \[\[1\.0\], \[2\.0, 3\.0\]\]"),
    (["a", "b"], r"type <U1"),
    ([True, False], r"type bool"),
    ([1j, 2j], r"type complex128"),
    (MASKED, r"returned \[1\.0 --\]"),
]


def one_line(error: pytest.ExceptionInfo[FedtideError]) -> None:
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine returned ")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_COLUMNS,
        ([1.0, 0.0], r"0\.0 for job 2 of device 8: it must give times > 0"),
        ([-1.0, 1.0], r"-1\.0 for job 1 of device 5"),
        ([1.0, math.nan], "nan for job 2 of device 8"),
    ],
)
def test_durations(answer: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        CheckedDuration(lambda seed, device, job: answer, "mine")(0, DEVICE, JOB)
    one_line(error)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_COLUMNS,
        ([3.0, 3.9], r"3\.9 for device 8 at time 4\.0: it must give when the device is next there"),
        ([math.nan, 4.0], r"nan for device 5 at time 3\.0"),
        ([3.0, -math.inf], "-inf for device 8"),
    ],
)
def test_availability(answer: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        CheckedAvailability(lambda seed, device, time: answer, "mine")(0, DEVICE, TIME)
    one_line(error)


NO_AMOUNTS: list[tuple[Any, str]] = [
    *NO_COLUMNS,
    ([1.0, -1.0], r"-1\.0 at position 1: it must give finite .*, 0 or more"),
    ([math.nan, 1.0], "nan at position 0"),
    ([1.0, math.inf], "inf at position 1"),
]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_AMOUNTS,
        *((Link(answer, np.ones(2)), says) for answer, says in NO_AMOUNTS),
        *((Link(np.ones(2), answer), says) for answer, says in NO_AMOUNTS),
        (Link(np.ones(2), np.array([-1.0, 2.0])), "-1.0 at position 0: it must give finite estimated capacities"),
    ],
)
def test_links(answer: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as error:
        CheckedChannel(lambda seed, tick, time, device: answer, "mine")(0, 1, 0.25, DEVICE)
    one_line(error)


CAPACITY = np.array([2.0, 4.0])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_AMOUNTS,
        *((Shares(answer, np.zeros(2)), says) for answer, says in NO_AMOUNTS),
        *((Shares(np.ones(2), answer), says) for answer, says in NO_AMOUNTS),
        ([60.0, 40.001], r"100\.001 symbols in all, .*: there are 100 to share"),
        ([1e308, 1e308], r"inf symbols in all"),
        (Shares(np.array([50.0, 50.0]), np.array([100.0, 200.1])), r"200\.1 bits at position 1: its 50 symbols carry 200 at 4"),
    ],
)  # fmt: skip
def test_shares(answer: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as error:
        CheckedAllocation(lambda capacity, num_symbols: answer, "mine")(CAPACITY, 100.0)
    one_line(error)


def test_what_is_left_out_is_filled_in() -> None:
    snr = CheckedChannel(lambda *_: [1, 2], "mine")(0, 1, 0.25, DEVICE)
    assert isinstance(snr, np.ndarray)
    assert snr.tolist() == [1.0, 2.0]
    assert snr.dtype == np.float64
    shares = checked_shares([60.0, 40.0 + 1e-8], CAPACITY, 100.0, "mine")  # a little rounding is forgiven
    assert shares.bits.tolist() == (shares.symbols * CAPACITY).tolist()
    given = Shares(np.array([10.0, 20.0]), np.array([20.0, 0.0]))
    assert [each.tolist() for each in checked_shares(given, CAPACITY, 100.0, "mine")] == [[10.0, 20.0], [20.0, 0.0]]


def test_never_is_a_time() -> None:
    assert CheckedDuration(lambda *_: [1.0, math.inf], "mine")(0, DEVICE, JOB).tolist() == [1.0, math.inf]
    assert CheckedAvailability(lambda *_: [math.inf, 4.0], "mine")(0, DEVICE, TIME).tolist() == [math.inf, 4.0]


def test_what_a_part_says_of_itself_passes_the_border() -> None:
    assert redraws(CheckedDuration(lambda *_: [1.0], "mine"))
    assert not redraws(CheckedDuration(UniformDuration(), "mine"))
    assert always(CheckedAvailability(Always(), "mine"))
    assert not always(CheckedAvailability(lambda *_: [1.0], "mine"))


def test_a_part_gets_and_gives_copies() -> None:
    kept: list[Any] = []

    def mine(seed: int, device: Any, job: Any) -> Any:
        assert not device.flags.writeable
        assert not np.shares_memory(device, DEVICE)
        kept.append(np.ones(2))
        return kept[-1]

    found = CheckedDuration(mine, "mine")(0, DEVICE, JOB)
    kept[0][:] = -1
    assert found.tolist() == [1.0, 1.0]
