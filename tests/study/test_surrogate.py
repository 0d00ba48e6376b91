"""The model of scores behind advice: what it predicts, what it hopes for, and what a search with it finds."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.studies.design_space import Choice, DesignSpace, Setting
from fedtide.studies.results import RunResult
from fedtide.studies.screening import Screening
from fedtide.studies.surrogate import (
    Surrogate,
    coordinates,
    expected_improvement,
    fit_surrogate,
    is_numeric,
    with_believed,
)

RATE = Choice("rate", "r", {f"rate {2.0**each:g}": {} for each in range(-3, 4)})
CODEC = Choice("codec", "c", {name: {} for name in ("sparse", "dense", "top", "sign")})
SERVER = Choice("server", "s", {f"fedac {each}": {} for each in (1, 2)} | {"adam": {}, "mean": {}})
IDLE = Choice("idle", "i", {f"gamma {each}": {} for each in (0.5, 1.0, 2.0)})
CHOICES = (RATE, CODEC, SERVER, IDLE)
SETTINGS = [*itertools.product(*(choice.options for choice in CHOICES))]


def truth(setting: Setting) -> float:
    """Dense updates help with a small rate alone, so no single change of (rate 8, sparse) leads to the best."""
    rate, codec, server, _ = setting
    log = np.log2(float(rate.split()[1]))
    return float(
        (0.3 if codec == "dense" else 0.1) * np.exp(-((log + 2 if codec == "dense" else log - 2) ** 2) / 4)
    ) + (0.05 if server == "adam" else 0.0)


def fitted(number: int, noise: float = 0.005) -> tuple[Surrogate, list[Setting]]:
    rng = np.random.default_rng(5)
    order = [SETTINGS[each] for each in rng.permutation(len(SETTINGS))]
    scores = np.array([truth(each) + noise * rng.standard_normal() for each in order[:number]])
    return fit_surrogate(coordinates(CHOICES, order[:number], 0), scores, [*map(is_numeric, CHOICES), True]), order[
        number:
    ]


def test_numbers_are_told_from_names() -> None:
    assert [is_numeric(each) for each in CHOICES] == [True, False, False, True]
    places = coordinates(CHOICES, [("rate 2", "top", "adam", "gamma 0.5")], 1)
    assert places.tolist() == [[1.0, 2.0, 2.0, -1.0, 1.0]]


def test_it_predicts_what_it_has_not_seen_and_finds_what_does_not_matter() -> None:
    model, rest = fitted(100)
    mean, spread = model.predict(coordinates(CHOICES, rest, 0))
    wanted = np.array([truth(each) for each in rest])
    assert np.corrcoef(mean, wanted)[0, 1] > 0.95
    assert np.mean(np.abs(mean - wanted) < 2 * spread) > 0.9
    assert model.decays[3] < 0.2 * model.decays[1]  # gamma is idle, the codec is not


def test_predictions_are_those_of_the_textbook() -> None:
    model, rest = fitted(30)
    places = coordinates(CHOICES, rest[:5], 0)

    def cov(one: Any, other: Any) -> Any:
        apart = [
            abs(a - b) if numeric else float(a != b) for a, b, numeric in zip(one, other, model.numeric, strict=True)
        ]
        return np.exp(-sum(rate * each for rate, each in zip(model.decays, apart, strict=True)))

    known = [*model.known]
    inner = model.factor @ model.factor.T
    off = ~np.eye(30, dtype=bool)
    assert np.allclose(inner[off], np.array([[cov(a, b) for b in known] for a in known])[off])
    cross = np.array([[cov(a, b) for b in known] for a in places])
    mean, spread = model.predict(places)
    scores = model.mean + model.scale * (inner @ model.weights)
    assert np.allclose(mean, model.mean + cross @ np.linalg.inv(inner) @ (scores - model.mean))
    assert np.allclose(spread**2, model.scale**2 * (1 - np.diag(cross @ np.linalg.inv(inner) @ cross.T)))


def test_believing_what_is_expected_changes_no_expectation() -> None:
    model, rest = fitted(40)
    places = coordinates(CHOICES, rest, 0)
    before, after = model.predict(places), with_believed(model, places[0]).predict(places)
    assert np.allclose(before[0], after[0])
    assert (after[1] <= before[1] + 1e-12).all()
    assert after[1][0] < 0.1 * before[1][0]


@given(st.floats(-3, 3), st.floats(0.1, 2), st.floats(-3, 3))
def test_expected_improvement_is_an_average(mean: float, spread: float, best: float) -> None:
    drawn = mean + spread * np.random.default_rng(1).standard_normal(40_000)
    found = expected_improvement(np.array([mean]), np.array([spread]), best)[0]
    assert found == pytest.approx(np.maximum(drawn - best, 0).mean(), abs=0.04 * spread)


def test_a_search_finds_what_no_single_change_leads_to() -> None:
    space = DesignSpace.__new__(DesignSpace, None, CHOICES, ())  # type: ignore[arg-type]
    ran: list[Setting] = []

    def runs(settings: Any, seeds: Any, share: float, _: Any) -> Any:
        ran.extend(settings)
        bench.seconds += len(settings)

        def run(level: float) -> RunResult:
            column: dict[str, Any] = {"time": [0.0], "test_accuracy": [level]}
            return RunResult({"timeline": {"horizon": 4.0}}, column, {"num_labels": 10})

        return {each: {seed: run(0.5 + truth(each)) for seed in seeds} for each in settings}

    bench = SimpleNamespace(space=space, seconds=0.0, runs=runs, expected_seconds=lambda *_: 1.0)
    search = Screening(bench, lambda _: True, "time", None, 1.0, 60.0, lambda *_: None)  # type: ignore[arg-type]
    best = search.finalists(3)[0]
    assert truth(best) == max(map(truth, SETTINGS))
    assert len(ran) <= 60 < len(SETTINGS) / 5
    assert search.scores[1000].keys() == {*ran}
