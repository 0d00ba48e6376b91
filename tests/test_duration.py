from __future__ import annotations

import numpy as np
import pytest

from fedtide.core import memory_budget
from fedtide.devices.duration import UniformDuration, durations_vary, first_duration
from fedtide.errors import FedtideError
from fedtide.rng import stream


def test_uniform_durations() -> None:
    drawn = first_duration(UniformDuration(0.2, 1.0), 3, 20_000)
    assert drawn.min() > 0.2
    assert drawn.max() <= 1.0
    np.testing.assert_allclose(np.quantile(drawn, [0.1, 0.5, 0.9]), [0.28, 0.6, 0.92], atol=0.02)


def test_uniform_keeps_the_bits_of_every_stored_result() -> None:
    drawn = 3.5 - stream(7, "duration").random(50) * (3.5 - 0.1)
    assert first_duration(UniformDuration(0.1, 3.5), 7, 50).tolist() == drawn.tolist()
    some = np.array([31, 4, 4])
    assert UniformDuration(0.1, 3.5)(7, some, np.array([1, 9, 2])).tolist() == drawn[some].tolist()  # whatever the job


def test_a_fast_device_still_takes_time() -> None:
    assert first_duration(UniformDuration(0.0, 1.0), 0, 100_000).min() > 0


def test_a_fleet_beyond_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_available_bytes", lambda: 2_000)
    with pytest.raises(FedtideError, match=r"a fleet of 100 devices would need 2\.4 kB of memory.*fleet\.num_devices"):
        first_duration(UniformDuration(0.0, 1.0), 0, 100)


def test_what_says_nothing_is_redrawn() -> None:
    assert durations_vary(lambda seed, device, job: np.ones(len(device)))
    assert not durations_vary(UniformDuration())
