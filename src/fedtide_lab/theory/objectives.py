"""Strongly convex objectives whose every constant can be computed: least squares and l2-regularised softmax regression.

F_k of device k is the mean over its samples of l(model, x), the l2 term included. Both have its loss, the gradients of single
samples, argmin of sum_k shares_k F_k to machine precision, and constants that hold for every model. N devices, n_k samples on
device k, d parameters, p features, c labels; all in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from fedtide.errors import FedtideError
from fedtide.types import Floats, Ints

# C_2 - 1 of least squares, as a multiple of the least value that any finite C_1 goes with.
_GROWTH_MARGIN = 1.5
_NEWTON_STEPS = 60


class Curvature(NamedTuple):
    """mu I <= Hessian of F_k <= L I, for every device and every model."""

    mu: float
    L: float


class Moments(NamedTuple):
    """E||g_B||^2 <= C_1 + C_2 ||grad F_k||^2 for every device and every model (eq:asmp3_2)."""

    C_1: float
    C_2: float


def _batch_factor(num_samples: int, batch_size: int) -> float:
    """Return s with Var(g_B) = s (1/n) sum_i ||g_i - g||^2: (n - b) / (b (n - 1)) for b out of n without replacement."""
    b = min(batch_size, num_samples)
    return 0.0 if b == num_samples else (num_samples - b) / (b * (num_samples - 1))


def _gradient(objective: Objective, device: int, model: Floats) -> Floats:
    """Return grad F_k(model) [d]."""
    return np.asarray(objective.sample_gradients(device, model).mean(axis=0))


@dataclass(frozen=True)
class LeastSquares:
    """l(theta, (x, y)) = (x.theta - y)^2 / 2 + (l2/2) ||theta||^2, d = p."""

    features: Sequence[Floats]  # [n_k p] per device
    targets: Sequence[Floats]  # [n_k] per device
    l2: float = 0.0

    @property
    def num_parameters(self) -> int:
        """D = p."""
        return int(self.features[0].shape[1])

    @property
    def num_samples(self) -> Ints:
        """|S_k| [N]."""
        return np.array([len(x) for x in self.features], np.int64)

    @property
    def label_counts(self) -> Ints:
        """There are no labels: one column with |S_k| [N 1]."""
        return self.num_samples[:, None]

    def loss(self, device: int, model: Floats) -> float:
        """Return F_k(model)."""
        residual = self.features[device] @ model - self.targets[device]
        return float((residual @ residual) / (2 * len(residual)) + self.l2 / 2 * (model @ model))

    def sample_gradients(self, device: int, model: Floats, which: Ints | slice = slice(None)) -> Floats:
        """Return x (x.theta - y) + l2 theta [b d]."""
        x = self.features[device][which]
        return np.asarray(x * (x @ model - self.targets[device][which])[:, None] + self.l2 * model)

    def hessian(self, device: int) -> Floats:
        """Return X'X/n + l2 I [d d], the same for every model."""
        x = self.features[device]
        return np.asarray(x.T @ x / len(x) + self.l2 * np.eye(self.num_parameters))

    def minimiser(self, shares: Floats) -> Floats:
        """Return argmin of sum_k shares_k F_k [d]: the normal equations, refined on the gradient itself."""
        hessian = sum((share * self.hessian(k) for k, share in enumerate(shares)), np.zeros(()))
        model = np.zeros(self.num_parameters)
        for _ in range(3):
            slope = sum((share * _gradient(self, k, model) for k, share in enumerate(shares)), np.zeros(()))
            model = model - np.linalg.solve(hessian, slope)
        return model

    def curvature(self) -> Curvature:
        """Take the extreme eigenvalues of all local Hessians: exact."""
        values = [np.linalg.eigvalsh(self.hessian(k)) for k in range(len(self.features))]
        return _checked(Curvature(min(float(v[0]) for v in values), max(float(v[-1]) for v in values)))

    def moments(self, batch_size: int) -> Moments:
        """Bound the variance of a batch, a quadratic in theta, by C_1 + (C_2 - 1) ||grad F_k||^2: for every theta.

        With psi = grad F_k(theta) the variance is s (psi'P psi + 2 q'psi + c). It has such a bound iff
        C_2 - 1 > s lambda_max(P) =: least, and then the smallest C_1 is s c + s^2 q' ((C_2 - 1) I - s P)^-1 q.
        C_2 - 1 is GROWTH_MARGIN times the largest `least` of the devices, C_1 the largest over the devices.
        """
        forms = [self._variance_form(k, batch_size) for k in range(len(self.features))]
        growth = _GROWTH_MARGIN * max(float(np.linalg.eigvalsh(p)[-1]) for p, _, _ in forms)
        if growth <= 0:
            return Moments(0.0, 1.0)  # full batches: no noise
        identity = np.eye(self.num_parameters)
        return Moments(max(c + float(q @ np.linalg.solve(growth * identity - p, q)) for p, q, c in forms), 1 + growth)

    def _variance_form(self, device: int, batch_size: int) -> tuple[Floats, Floats, float]:
        """Return s P [d d], s q [d] and s c of the variance as a quadratic in psi = grad F_k."""
        x, scale = self.features[device], _batch_factor(len(self.features[device]), batch_size)
        alone = np.zeros(len(self.features))
        alone[device] = 1.0
        residual = x @ self.minimiser(alone) - self.targets[device]
        noise = x * residual[:, None]
        noise = noise - noise.mean(axis=0)  # gradients at theta_k*, centred
        plain = x.T @ x / len(x)
        growth = (x * (x**2).sum(axis=1)[:, None]).T @ x / len(x) - plain @ plain
        cross = (x * (x * noise).sum(axis=1)[:, None]).mean(axis=0)
        inverse = np.linalg.inv(self.hessian(device))
        return (
            scale * (inverse @ growth @ inverse),
            scale * (inverse @ cross),
            scale * float((noise**2).sum(axis=1).mean()),
        )


@dataclass(frozen=True)
class Softmax:
    """l(theta, (x, y)) = log sum_j exp(theta_j.x) - theta_y.x + (l2/2) ||theta||^2, d = c p, theta row by row."""

    features: Sequence[Floats]  # [n_k p] per device
    labels: Sequence[Ints]  # [n_k] per device
    num_labels: int
    l2: float

    @property
    def num_parameters(self) -> int:
        """D = c p."""
        return self.num_labels * int(self.features[0].shape[1])

    @property
    def num_samples(self) -> Ints:
        """|S_k| [N]."""
        return np.array([len(x) for x in self.features], np.int64)

    @property
    def label_counts(self) -> Ints:
        """b_k [N c]."""
        return np.array([np.bincount(y, minlength=self.num_labels) for y in self.labels], np.int64)

    def loss(self, device: int, model: Floats) -> float:
        """Return F_k(model)."""
        x, y = self.features[device], self.labels[device]
        return float(self._log_loss(x, y, model).mean() + self.l2 / 2 * (model @ model))

    def sample_gradients(self, device: int, model: Floats, which: Ints | slice = slice(None)) -> Floats:
        """Return (softmax - onehot) x' + l2 theta [b d]."""
        x, y = self.features[device][which], self.labels[device][which]
        error = self._probabilities(x, model)
        error[np.arange(len(y)), y] -= 1
        return np.asarray((error[:, :, None] * x[:, None, :]).reshape(len(y), -1) + self.l2 * model)

    def minimiser(self, shares: Floats) -> Floats:
        """Return argmin of sum_k shares_k F_k [d]: Newton's method with backtracking until the gradient stops shrinking."""
        used = np.flatnonzero(shares).tolist()
        x = np.concatenate([self.features[k] for k in used])
        y = np.concatenate([self.labels[k] for k in used])
        weight = np.concatenate([np.full(len(self.labels[k]), shares[k] / len(self.labels[k])) for k in used])
        model = np.zeros(self.num_parameters)
        value, slope = self._value_and_slope(x, y, weight, model)
        for _ in range(_NEWTON_STEPS):
            step = np.linalg.solve(self._hessian(x, weight, model), slope)
            length = 1.0
            while True:
                trial = model - length * step
                trial_value, trial_slope = self._value_and_slope(x, y, weight, trial)
                if trial_value <= value or length < 1e-3:
                    break
                length /= 2
            if np.linalg.norm(trial_slope) >= np.linalg.norm(slope) and trial_value >= value - 1e-13 * abs(value):
                break
            model, value, slope = trial, trial_value, trial_slope
        return model

    def curvature(self) -> Curvature:
        """Bound the Hessian for every theta: diag(p) - pp' lies between 0 (attained along equal shifts) and I/2 (Bohning)."""
        largest = max(float(np.linalg.eigvalsh(x.T @ x / len(x))[-1]) for x in self.features)
        return _checked(Curvature(self.l2, largest / 2 + self.l2))

    def moments(self, batch_size: int) -> Moments:
        """Bound the variance for every theta by s (1/n) sum_i ||p - y||^2 ||x_i||^2 <= 2 s (1/n) sum_i ||x_i||^2; C_2 = 1."""
        spread = [2 * _batch_factor(len(x), batch_size) * float((x**2).sum(axis=1).mean()) for x in self.features]
        return Moments(max(spread), 1.0)

    def _scores(self, x: Floats, model: Floats) -> Floats:
        scores = x @ model.reshape(self.num_labels, -1).T
        return np.asarray(scores - scores.max(axis=1, keepdims=True))

    def _probabilities(self, x: Floats, model: Floats) -> Floats:
        powers = np.exp(self._scores(x, model))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def _log_loss(self, x: Floats, y: Ints, model: Floats) -> Floats:
        scores = self._scores(x, model)
        return np.asarray(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y])

    def _value_and_slope(self, x: Floats, y: Ints, weight: Floats, model: Floats) -> tuple[float, Floats]:
        error = self._probabilities(x, model)
        error[np.arange(len(y)), y] -= 1
        slope = ((error * weight[:, None]).T @ x).ravel() + self.l2 * model
        return float(weight @ self._log_loss(x, y, model) + self.l2 / 2 * (model @ model)), slope

    def _hessian(self, x: Floats, weight: Floats, model: Floats) -> Floats:
        p = self._probabilities(x, model)
        d, (c, width) = self.num_parameters, (self.num_labels, x.shape[1])
        outer = (p[:, :, None] * x[:, None, :]).reshape(len(x), d)
        hessian = -(outer * weight[:, None]).T @ outer
        for label in range(c):
            block = slice(label * width, (label + 1) * width)
            hessian[block, block] += (x * (weight * p[:, label])[:, None]).T @ x
        return np.asarray(hessian + self.l2 * np.eye(d))


def _checked(curvature: Curvature) -> Curvature:
    if not curvature.mu > 1e-10 * curvature.L:
        raise FedtideError(
            f"the objective is not strongly convex (mu = {curvature.mu:.3g}, L = {curvature.L:.3g}): Assumption 2 fails; "
            "raise l2, or give the devices more samples than features"
        )
    return curvature


Objective: TypeAlias = LeastSquares | Softmax
