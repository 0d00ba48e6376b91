from __future__ import annotations

import numpy as np

from fedtide.world.fleet import draw_durations


def test_durations_are_uniform_and_the_same_for_a_seed() -> None:
    drawn = draw_durations(3, 20_000, 0.2, 1.0)
    assert np.array_equal(drawn, draw_durations(3, 20_000, 0.2, 1.0))
    assert not np.array_equal(drawn, draw_durations(4, 20_000, 0.2, 1.0))
    assert drawn.min() > 0.2
    assert drawn.max() <= 1.0
    np.testing.assert_allclose(np.quantile(drawn, [0.1, 0.5, 0.9]), [0.28, 0.6, 0.92], atol=0.02)


def test_a_fast_device_still_takes_time() -> None:
    assert draw_durations(0, 100_000, 0.0, 1.0).min() > 0


def test_more_devices_do_not_change_the_first() -> None:
    assert np.array_equal(draw_durations(1, 5, 0, 1), draw_durations(1, 9, 0, 1)[:5])
