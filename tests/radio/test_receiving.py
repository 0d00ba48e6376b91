"""How long a model takes to a device, against closed forms; on the clock, and in the ledger."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedtide.engine.system import build
from fedtide.errors import FedtideError
from fedtide.radio.cell import Equal
from fedtide.radio.downlink import Broadcast, Unicast, downlink_is_instant, downlink_is_shared
from fedtide.types import Floats, Ints
from helpers import small, small_dataset

DEVICE, NOW = np.arange(4), np.zeros(4)


def ladder(seed: int, device: Ints, time: Floats) -> Floats:
    """Give device k an average SNR of 2^k - 1, so k bit/symbol."""
    return 2.0**device - 1


def test_broadcast() -> None:
    assert Broadcast(2000.0)(0, DEVICE, NOW, 500.0).tolist() == [0.25] * 4
    assert downlink_is_shared(Broadcast())
    assert not downlink_is_shared(Unicast())
    assert not downlink_is_instant(Broadcast())
    assert not downlink_is_instant(Unicast())


def test_unicast() -> None:
    np.testing.assert_allclose(
        Unicast(100.0, coverage=ladder)(0, DEVICE, NOW, 600.0), [math.inf, 6.0, 3.0, 2.0], rtol=1e-12
    )
    stronger = Unicast(1.0, gain_db=10.0, coverage=Equal(0.0))(0, DEVICE, NOW, 1.0)
    np.testing.assert_allclose(stronger, 1 / np.log2(11), rtol=1e-12)


def test_fading_holds_for_its_coherence_time_and_is_exponential() -> None:
    device, fading = np.arange(20_000), Unicast(1.0, coherence=0.5, coverage=Equal(3.0))

    def gain(time: float, seed: int = 1) -> Floats:
        took = fading(seed, device, np.full(len(device), time), 1.0)
        return np.asarray((2 ** (1 / took) - 1) / 10**0.3)

    first = gain(0.0)
    np.testing.assert_array_equal(gain(0.49), first)
    for other in (gain(0.5), gain(0.0, seed=2)):
        assert abs(np.corrcoef(other, first)[0, 1]) < 0.03
    assert first.mean() == pytest.approx(1.0, abs=0.03)
    for level in (0.1, 1.0, 2.5):  # P(|h|^2 <= x) = 1 - exp(-x)
        assert (first <= level).mean() == pytest.approx(1 - math.exp(-level), abs=0.015)


def test_a_quick_one_changes_nothing() -> None:
    plain = build(small(), dataset=small_dataset())
    quick = build(small({"radio": {"downlink": {"name": "broadcast", "rate": 1e9}}}), dataset=small_dataset())
    assert [tick.ready.tolist() for tick in quick.ticks] == [tick.ready.tolist() for tick in plain.ticks]


def test_a_model_that_takes_for_ever_to_arrive_is_told_of() -> None:
    slow = small({"radio": {"downlink": {"name": "broadcast", "rate": 1.0}}})
    with pytest.raises(FedtideError, match=r"no aggregation .* radio\.downlink=broadcast .* speed up the downlink"):
        build(slow, dataset=small_dataset())


def test_a_download_of_a_period_is_a_period_more() -> None:
    plain = build(small(), dataset=small_dataset())
    model = 32.0 * _parameters(plain)
    wanted = small({"radio": {"downlink": {"name": "broadcast", "rate": model / small().timeline.period}}})
    later = build(wanted, dataset=small_dataset())
    age = {int(k): int(each.index - s) for each in plain.ticks for k, s in zip(each.ready, each.start, strict=True)}
    for tick in later.ticks:
        for k, start in zip(tick.ready.tolist(), tick.start.tolist(), strict=True):
            assert tick.index - start == age[k] + 1
    assert any(len(tick.ready) for tick in later.ticks)


def _parameters(system: object) -> int:
    from fedtide.learning.model import num_parameters

    return num_parameters(system.model)  # type: ignore[attr-defined]
