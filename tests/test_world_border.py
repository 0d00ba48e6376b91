"""What a user's parts of the world may answer, and the one line that says so otherwise."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from fedtide.devices.availability import Always, always_available
from fedtide.devices.duration import UniformDuration, durations_vary
from fedtide.errors import FedtideError, TrainingError
from fedtide.parts.checks import Guarded
from fedtide.types import Link, Shares

DEVICE, JOB, TIME = np.array([5, 8]), np.array([1, 2]), np.array([3.0, 4.0])
MASKED = np.ma.masked_array([1.0, 2.0], [False, True])
NO_COLUMNS: list[tuple[Any, str]] = [
    (None, "returned None: it must give 2 "),
    (1.0, r"returned an array of shape \(\) and type float64: it must give 2 "),
    ([1.0], r"returned an array of shape \(1,\) and type float64"),
    ([[1.0], [2.0]], r"shape \(2, 1\)"),
    ([[1.0], [2.0, 3.0]], r"returned \[\[1\.0\], \[2\.0, 3\.0\]\]"),
    (["a", "b"], r"type <U1"),
    ([True, False], r"type bool"),
    ([1j, 2j], r"type complex128"),
    (MASKED, r"returned masked_array\(data=\[1\.0, --\]"),
]


def one_line(error: pytest.ExceptionInfo[FedtideError]) -> None:
    assert "\n" not in str(error.value)
    assert re.match(r"\w+='mine' \(\S+:\d+\) returned ", str(error.value))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_COLUMNS,
        ([1.0, 0.0], r"0\.0 at position 1 \(device=8, job=2\): it must give times > 0"),
        ([-1.0, 1.0], r"-1\.0 at position 0 \(device=5, job=1\)"),
        ([1.0, math.nan], r"nan at position 1 \(device=8, job=2\)"),
    ],
)
def test_durations(answer: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        Guarded("duration", "mine", lambda seed, device, job: answer)(0, DEVICE, JOB)
    one_line(error)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_COLUMNS,
        ([3.0, 3.9], r"3\.9 at position 1 \(device=8, time=4\.0\): it must give when the device is next there"),
        ([math.nan, 4.0], r"nan at position 0 \(device=5, time=3\.0\)"),
        ([3.0, -math.inf], r"-inf at position 1 \(device=8"),
    ],
)
def test_availability(answer: Any, says: str) -> None:
    with pytest.raises(FedtideError, match=says) as error:
        Guarded("availability", "mine", lambda seed, device, time: answer)(0, DEVICE, TIME)
    one_line(error)


NO_AMOUNTS: list[tuple[Any, str]] = [
    *NO_COLUMNS,
    ([1.0, -1.0], r"-1\.0 at position 1 \(\w+=\d\S*\): it must give finite .* >= 0"),
    ([math.nan, 1.0], "nan at position 0"),
    ([1.0, math.inf], "inf at position 1"),
]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_AMOUNTS,
        *((Link(answer, np.ones(2)), says) for answer, says in NO_AMOUNTS),
        *((Link(np.ones(2), answer), says) for answer, says in NO_AMOUNTS),
        (
            Link(np.ones(2), np.array([-1.0, 2.0])),
            r"-1\.0 at position 0 \(device=5\): it must give finite estimated capacities",
        ),
    ],
)
def test_links(answer: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as error:
        Guarded("channel", "mine", lambda seed, tick, time, device: answer)(0, 1, 0.25, DEVICE)
    one_line(error)


CAPACITY = np.array([2.0, 4.0])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *NO_AMOUNTS,
        *((Shares(answer, np.zeros(2)), says) for answer, says in NO_AMOUNTS),
        *((Shares(np.ones(2), answer), says) for answer, says in NO_AMOUNTS),
        ([60.0, 40.001], r"100\.001 symbols in all: there are 100 to share"),
        ([1e308, 1e308], r"inf symbols in all"),
        (Shares(np.array([50.0, 50.0]), np.array([100.0, 200.1])), r"200\.1 bits at position 1: its 50 symbols carry 200 at 4"),
    ],
)  # fmt: skip
def test_shares(answer: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says) as error:
        Guarded("allocation", "mine", lambda capacity, num_symbols: answer)(CAPACITY, 100.0)
    one_line(error)


def test_what_is_left_out_is_filled_in() -> None:
    snr = Guarded("channel", "mine", lambda *_: [1, 2])(0, 1, 0.25, DEVICE)
    assert isinstance(snr, np.ndarray)
    assert snr.tolist() == [1.0, 2.0]
    assert snr.dtype == np.float64
    shares = Guarded("allocation", "mine", lambda *_: [60.0, 40.0 + 1e-8])(
        CAPACITY, 100.0
    )  # a little rounding is forgiven
    assert shares.bits.tolist() == (shares.symbols * CAPACITY).tolist()
    given = Shares(np.array([10.0, 20.0]), np.array([20.0, 0.0]))
    assert [each.tolist() for each in Guarded("allocation", "mine", lambda *_: given)(CAPACITY, 100.0)] == [
        [10.0, 20.0],
        [20.0, 0.0],
    ]


def test_never_is_a_time() -> None:
    assert Guarded("duration", "mine", lambda *_: [1.0, math.inf])(0, DEVICE, JOB).tolist() == [1.0, math.inf]
    assert Guarded("availability", "mine", lambda *_: [math.inf, 4.0])(0, DEVICE, TIME).tolist() == [math.inf, 4.0]


def test_what_a_part_says_of_itself_passes_the_border() -> None:
    assert durations_vary(Guarded("duration", "mine", lambda *_: [1.0]))
    assert not durations_vary(Guarded("duration", "mine", UniformDuration()))
    assert always_available(Guarded("availability", "mine", Always()))
    assert not always_available(Guarded("availability", "mine", lambda *_: [1.0]))


def test_a_part_gets_and_gives_copies() -> None:
    kept: list[Any] = []

    def mine(seed: int, device: Any, job: Any) -> Any:
        assert not device.flags.writeable
        assert not np.shares_memory(device, DEVICE)
        kept.append(np.ones(2))
        return kept[-1]

    found = Guarded("duration", "mine", mine)(0, DEVICE, JOB)
    kept[0][:] = -1
    assert found.tolist() == [1.0, 1.0]
