"""Private label histograms."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from memory_grid import Federation, terms

from fedtide.deploy import trace
from fedtide.deploy.privacy import privacy_cost, private_counts, secret_rng
from fedtide.errors import FedtideError


def test_the_noise_is_discrete_laplace() -> None:
    """P(z) = tanh(eps/2) exp(-eps |z|), checked at every value that matters; neighbours differ by a factor exp(eps)."""
    epsilon, count = 0.7, 200_000
    noisy = private_counts(np.full((1, count), 500), epsilon, 1000, secret_rng(b"secret"))[0] - 500
    for value in range(-4, 5):
        expected = math.tanh(epsilon / 2) * math.exp(-epsilon * abs(value))
        assert abs((noisy == value).mean() - expected) < 4 * math.sqrt(expected / count)
    assert abs(noisy.var() / (2 * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2) - 1) < 0.05


def test_counts_stay_in_range_and_never_vanish() -> None:
    noisy = private_counts(np.array([[0, 0, 0], [5, 900, 10**6]]), 0.1, 1000, secret_rng(b"a"))
    assert noisy.min() >= 0
    assert noisy.max() <= 1000
    rows = private_counts(np.zeros((1000, 2), np.int64), 5.0, 10, secret_rng(b"b"))
    assert (rows.sum(axis=1) >= 1).all()


def test_a_bad_epsilon() -> None:
    with pytest.raises(FedtideError, match="epsilon=0"):
        private_counts(np.ones(3, np.int64), 0.0, 10, secret_rng(b""))


def test_one_draw_per_node_and_none_that_the_server_could_repeat(tmp_path: Path) -> None:
    federation = Federation(terms(epsilon=0.5), tmp_path / "run", durations=())
    for part in range(6):
        federation.grid.join(part, 3.0, **{"privacy-key": "same text"} if part < 2 else {})
    federation.coordinator().run()
    rows: dict[int, set[tuple[int, ...]]] = {}
    for period in trace.read_trace(tmp_path / "run").periods:
        for device, counts, total in zip(period.ready, period.label_counts, period.num_samples, strict=True):
            rows.setdefault(device, set()).add(tuple(counts))
            assert sum(counts) == total
    assert all(len(each) == 1 for each in rows.values())
    again = Federation(terms(epsilon=0.5), tmp_path / "again", durations=())
    for part in range(6):
        again.grid.join(part, 3.0, **{"privacy-key": "same text"} if part < 2 else {})
    again.coordinator().run()
    first = trace.read_trace(tmp_path / "again").periods[0]
    assert [tuple(each) in rows[device] for device, each in zip(first.ready, first.label_counts, strict=True)] == [
        *[True] * 2,
        *[False] * 4,
    ]


def test_the_study_shows_the_price() -> None:
    rows = privacy_cost(terms({"policy": {"limit": 2}}).experiment, [0.01, 1.0, 100.0], draws=5)
    reached = [row.label_variance for row in rows]
    exact, rand = rows[0].exact, rows[0].random
    assert exact < rand
    assert reached[2] == pytest.approx(exact)
    assert exact <= reached[1] <= reached[0]
