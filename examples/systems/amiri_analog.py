"""Amiri and Gündüz, IEEE TSP 2020, A-DSGD: sparse updates, projected to a few channel uses, add up in the air."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.fft import dct, idct

from fedtide import Trained, arg


class Sparsified:
    """Devices send the k largest elements of update and error and keep the rest; everyone must be picked (policy.limit)."""

    takes_work = True

    def __init__(
        self, task, inner: Annotated[object, arg("who trains", part="trainer")] = "native", share: float = 0.25
    ):
        self.inner, self.share = inner, share  # share: k / d
        self.initial_model, self.evaluate = inner.initial_model, inner.evaluate

    def init(self, num_parameters):
        return {"error": np.zeros(num_parameters, np.float32)}

    def train(self, jobs):
        wanted = self.inner.train(jobs) + np.array([job.memory["error"] for job in jobs])
        least = np.quantile(np.abs(wanted), 1 - self.share, axis=1, keepdims=True)
        sent = np.where(np.abs(wanted) > least, wanted, 0).astype(np.float32)
        return Trained(sent, [{"error": error} for error in wanted - sent])


@dataclass(frozen=True)
class Projected:
    """All send A g_k at once at the amplitude that all reach; the server recovers the sum by approximate message passing."""

    uses: Annotated[float, arg("s / d: real channel uses per parameter", gt=0, le=1)] = 0.5
    min_snr = 0.0  # nobody is silent

    @property
    def symbols_per_parameter(self):
        return self.uses / 2  # a symbol is complex

    def __call__(self, updates, weights, snr, rng):
        d, s = updates.shape[1], int(self.uses * updates.shape[1])
        signs, rows, scale = rng.choice([-1.0, 1.0], d), rng.permutation(d)[:s], np.sqrt(d / s)

        def project(x):  # A x: signs flipped at random, a cosine transform, s of its rows
            return scale * dct(signs * x, norm="ortho")[..., rows]

        def project_back(y):
            return scale * signs * idct(np.bincount(rows, y, d), norm="ortho")

        sent = project(weights[:, None] * updates)  # [r s]
        noise = np.sqrt((np.square(sent).mean(axis=1) / snr).max())
        received = sent.sum(axis=0) + noise * rng.standard_normal(s)
        estimate, residual = np.zeros(d), received
        for _ in range(20):
            found = estimate + project_back(residual)
            estimate = np.sign(found) * np.maximum(np.abs(found) - np.linalg.norm(residual) / np.sqrt(s), 0)
            residual = received - project(estimate) + residual * np.count_nonzero(estimate) / s
        return estimate
