"""Dinh et al., IEEE/ACM ToN 2021: FEDL's local problem, in which a global gradient takes the place of a device's own."""

from typing import Annotated

import numpy as np

from fedtide import arg
from fedtide.types import LocalWork


class Fedl:
    """min F_n(w) + <eta gradF - gradF_n(w0), w> from w0, by SGD of the trainer inside; models are [w, gradF]."""

    takes_work = True  # the one inside does what job.work says

    def __init__(
        self,
        task,
        inner: Annotated[object, arg("who trains", part="trainer")] = "native",
        eta: Annotated[float, arg("weight of the global gradient", gt=0)] = 1.0,
    ):
        self.inner, self.eta = inner, eta

    def initial_model(self, seed):
        start = self.inner.initial_model(seed)
        return np.concatenate([start, np.zeros_like(start)])

    def gradients(self, jobs, models):
        """Return gradF_n at these models [r d]: what one step over all samples takes away at the rate 1."""
        whole = [LocalWork(len(job.indices), None, 1, 0.0) for job in jobs]
        steps = [j._replace(start=m, work=w, learning_rate=1.0) for j, m, w in zip(jobs, models, whole, strict=True)]
        return -self.inner.train(steps)

    def train(self, jobs):
        start, shared = np.split(np.array([job.start for job in jobs]), 2, axis=1)  # w0 and gradF [r d]
        corrections = self.eta * shared - self.gradients(jobs, start)
        local = [j._replace(start=s, correction=c) for j, s, c in zip(jobs, start, corrections, strict=True)]
        moved = self.inner.train(local)
        return np.concatenate([moved, self.gradients(jobs, start + moved) - shared], axis=1)

    def evaluate(self, model, samples):
        return self.inner.evaluate(np.split(model, 2)[0], samples)
