"""Updates that are clipped and noised before they leave a device, and what n of them spend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import fedtide
from fedtide.codec.private import Private, epsilon_of_uploads, secret_seed, spent_epsilon
from fedtide.errors import FedtideError
from fedtide.parts import registry
from fedtide.report.summary import summarise, summary_texts
from helpers import FakeTrainer, small, small_dataset


@pytest.mark.parametrize("length", [0.3, 40.0])
def test_an_update_is_clipped_and_noised(length: float) -> None:
    rng, update = np.random.default_rng(1), np.zeros(50_000, np.float32)
    update[7] = length
    codec = Private(clip=2.0, noise=0.5)
    received = codec.decode(codec.encode(update, 1e9, rng))
    noise = received - update * min(1.0, 2.0 / length)
    assert abs(noise.mean()) < 5 / math.sqrt(50_000)
    assert noise.std() == pytest.approx(0.5 * 2.0, rel=0.02)
    again = codec.encode(update, 1e9, np.random.default_rng(1))
    assert np.array_equal(codec.decode(again), received)


def test_two_updates_are_at_most_twice_the_clip_apart() -> None:
    codec, rng = Private(clip=0.5, noise=1e-9), np.random.default_rng(2)
    ends = [codec.decode(codec.encode(v, 1e9, rng)) for v in (np.full(9, 5e3, np.float32), np.full(9, -1, np.float32))]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(1.0, rel=1e-5)


# By dp-accounting 0.6.0, PLDAccountant with an interval of 1e-4: GaussianDpEvent(noise / 2) composed n times, delta = 1e-5
REFERENCE = [
    (1, 1.0, 9.9973),
    (1, 4.0, 1.9931),
    (5, 4.0, 4.9833),
    (20, 10.0, 3.8486),
    (3, 0.5, 52.7706),
    (100, 50.0, 1.555),
]


@pytest.mark.parametrize(("num_uploads", "noise", "epsilon"), REFERENCE)
def test_epsilon_is_that_of_an_independent_accountant(num_uploads: int, noise: float, epsilon: float) -> None:
    assert epsilon_of_uploads(num_uploads, noise) == pytest.approx(epsilon, rel=1e-4)


@given(st.integers(1, 5000), st.floats(0.05, 500), st.floats(1e-9, 0.1))
def test_epsilon_solves_its_equation(num_uploads: int, noise: float, delta: float) -> None:
    mu, epsilon = 2 * math.sqrt(num_uploads) / noise, epsilon_of_uploads(num_uploads, noise, delta)
    first, second = norm.logcdf(mu / 2 - epsilon / mu), epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
    assert epsilon >= 0
    spent = math.exp(first) * -math.expm1(min(second - first, 0.0))
    assert spent == pytest.approx(delta, rel=1e-3) if epsilon else spent <= delta * (1 + 1e-9)


def test_what_devices_have_spent() -> None:
    spent = spent_epsilon([[4, 1], [1], []], noise=4.0)
    assert list(spent) == [1, 4]
    assert spent[1] == epsilon_of_uploads(2, 4.0) > spent[4] == epsilon_of_uploads(1, 4.0)
    assert spent_epsilon([[1]] * 9, 1e6) == {1: 0.0}


def test_a_run_tells_what_was_spent() -> None:
    experiment = small(codec={"name": {"name": "private", "clip": 0.1, "noise": 2.0, "inner": "qsgd"}})
    run = fedtide.simulate(experiment, dataset=small_dataset(), trainer=FakeTrainer(num_parameters=300))
    summary = summarise(experiment, run.rounds, len(run.model))
    sent = [k for each in run.rounds for k, kept in zip(each.picked, each.num_kept, strict=True) if kept]
    assert summary["privacy"]["epsilon"] == {k: epsilon_of_uploads(sent.count(k), 2.0) for k in sorted(set(sent))}
    assert summary_texts(summary)["epsilon at delta 1e-05"].endswith("(median)")
    assert "privacy" not in summarise(small(), run.rounds, len(run.model))


def test_a_secret_names_the_noise_of_an_update() -> None:
    update = np.ones(5, np.float32)
    assert secret_seed(b"a", update) == secret_seed(b"a", update.copy())
    assert len({secret_seed(b"a", update), secret_seed(b"b", update), secret_seed(b"a", 2 * update)}) == 3


@pytest.mark.parametrize("around", ["error_feedback", "ef21", "private"])
def test_a_codec_around_it_would_change_the_noise(around: str) -> None:
    with pytest.raises(FedtideError, match="inner='private' adds noise"):
        registry.part("codec", around, {"inner": "private"})
