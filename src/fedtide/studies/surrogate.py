"""A Gaussian process over settings: what those that did not run would score, by those that did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy import linalg, optimize, special

from fedtide.studies.design_space import Choice, Setting
from fedtide.types import Floats

_LEAST_NOISE: Final = 0.02  # standard deviation of a score that luck explains, in units of that of all scores
_USUAL_DECAY: Final = 0.5  # of the covariance with a distance of 1, before anything is known
_SPREAD: Final = 1.0  # of the logarithms of decays and noise around what is usual


class Surrogate(NamedTuple):
    """Scores of settings as a Gaussian process; the covariance is a product over choices."""

    known: Floats  # coordinates of the runs [n C]
    numeric: tuple[bool, ...]  # choices that have a distance; of others, two options are as far apart as any
    decays: Floats  # one for each choice [C]
    factor: Floats  # Cholesky's, of the covariance of the runs [n n]
    weights: Floats  # [n]
    mean: float
    scale: float

    def predict(self, places: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of the scores at some places [m C]."""
        cross = _covariance(places, self.known, self.numeric, self.decays)
        inside = linalg.solve_triangular(self.factor, cross.T, lower=True)
        spread = np.sqrt(np.maximum(1.0 - np.square(inside).sum(axis=0), 1e-12))
        return self.mean + self.scale * (cross @ self.weights), self.scale * spread


def coordinates(choices: Sequence[Choice], settings: Sequence[Setting], stage: int) -> Floats:
    """Return settings as numbers [m C + 1]: the logarithm of a number, of others the position; last, the stage of the runs."""
    tables = [_positions(choice) for choice in choices]
    return np.array(
        [[table[option] for table, option in zip(tables, each, strict=True)] + [float(stage)] for each in settings]
    )


def is_numeric(choice: Choice) -> bool:
    """Say whether the options of a choice are numbers of one quantity, such as `R 4` and `R 8`."""
    words = [option.split() for option in choice.options]
    return all(len(each) == 2 and _is_number(each[1]) and each[0] == words[0][0] for each in words)


def _positions(choice: Choice) -> dict[str, float]:
    if is_numeric(choice):
        return {option: float(np.log2(float(option.split()[1]))) for option in choice.options}
    return {option: float(at) for at, option in enumerate(choice.options)}


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _distances(one: Floats, other: Floats, numeric: Sequence[bool]) -> Floats:
    """Return how far apart settings are in every choice [C n m]."""
    apart = np.abs(one.T[:, :, None] - other.T[:, None, :])
    return np.where(np.array(numeric)[:, None, None], apart, (apart > 0).astype(np.float64))


def _covariance(one: Floats, other: Floats, numeric: Sequence[bool], decays: Floats) -> Floats:
    found: Floats = np.exp(-np.tensordot(decays, _distances(one, other, numeric), 1))
    return found


def fit_surrogate(places: Floats, scores: Floats, numeric: Sequence[bool]) -> Surrogate:
    """Return the process that explains scores [n] at some places [n C] best; how much a choice matters is learned from them."""
    mean, scale = float(scores.mean()), max(float(scores.std()), 1e-9)
    level, apart = (scores - mean) / scale, _distances(places, places, numeric)
    usual = np.log(np.array([_USUAL_DECAY] * len(numeric) + [0.1]))

    def loss(logs: Floats) -> tuple[float, Floats]:
        decays, noise = np.exp(logs[:-1]), np.exp(logs[-1]) + _LEAST_NOISE
        smooth = np.exp(-np.tensordot(decays, apart, 1))
        factor = linalg.cholesky(smooth + noise**2 * np.eye(len(level)), lower=True)
        inverse = linalg.cho_solve((factor, True), np.eye(len(level)))
        weights = inverse @ level
        slope = 0.5 * (inverse - np.outer(weights, weights))
        by_decay = -decays * np.tensordot(apart, slope * smooth, 2)
        by_noise = 2 * noise * (noise - _LEAST_NOISE) * np.trace(slope)
        away = (logs - usual) / _SPREAD
        value = 0.5 * level @ weights + np.log(np.diag(factor)).sum() + 0.5 * away @ away
        return float(value), np.append(by_decay, by_noise) + away / _SPREAD

    found = optimize.minimize(loss, usual, jac=True, method="L-BFGS-B", options={"maxiter": 40})
    decays, noise = np.exp(found.x[:-1]), np.exp(found.x[-1]) + _LEAST_NOISE
    factor = linalg.cholesky(_covariance(places, places, numeric, decays) + noise**2 * np.eye(len(level)), lower=True)
    return Surrogate(places, tuple(numeric), decays, factor, linalg.cho_solve((factor, True), level), mean, scale)


def with_believed(model: Surrogate, place: Floats) -> Surrogate:
    """Return the process as if a run at a place [C] had scored what is expected there: the next one is chosen elsewhere."""
    cross = _covariance(model.known, place[None], model.numeric, model.decays)[:, 0]
    row = linalg.solve_triangular(model.factor, cross, lower=True)
    last = np.sqrt(max(1.0 + _LEAST_NOISE**2 - row @ row, _LEAST_NOISE**2))
    factor = np.block([[model.factor, np.zeros((len(row), 1))], [row[None], np.array([[last]])]])
    return model._replace(
        known=np.vstack([model.known, place]), factor=factor, weights=np.append(model.weights, 0.0)
    )  # an expected score leaves all means as they are


def expected_improvement(mean: Floats, spread: Floats, best: float) -> Floats:
    """Return by how much a score beats the best one, on average [m]."""
    above = (mean - best) / spread
    found: Floats = spread * (above * special.ndtr(above) + np.exp(-above * above / 2) / np.sqrt(2 * np.pi))
    return found
