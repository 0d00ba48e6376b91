"""Moderated variances: in a table of many differences from few seeds, the variance of each is estimated with the help of all.

Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray experiments", Stat. Appl.
Genet. Mol. Biol. 3 (2004), as limma's eBayes: s^2 ~ sigma^2 chi^2(d) / d, where 1 / sigma^2 ~ chi^2(d0) / (d0 s0^2) over the rows.
d0 and s0^2 come from mean and variance of log s^2. A row's variance is then (d0 s0^2 + d s^2) / (d0 + d), with d0 + d degrees of
freedom.

Differences from one reference are not independent: where it varies as much as the others, two of them have a correlation of 1/2
and their sample variances one of SHARED = 1/4. Taken for independent, they look more alike than they are, and a common variance
seems to be known better than it is. So tables take that share of the expected variance of log s^2 away, and claim at most
d / SHARED degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedtide.errors import FedtideError

FEWEST_MODERATED = 5  # differences; fewer say too little of how their variances differ
SHARED = 0.25  # correlation of the sample variances of two differences from one reference


class VariancePrior(NamedTuple):
    """What the variances of a table's differences have in common."""

    freedom: float  # d0: as many degrees of freedom are added to those of every row; infinite: all have one variance
    variance: float  # s0^2
    most: float  # degrees of freedom that are claimed at most

    def moderated(self, variance: float, freedom: int) -> tuple[float, float]:
        """Return the moderated variance of a difference, and its degrees of freedom."""
        share = 1.0 if math.isinf(self.freedom) else self.freedom / (self.freedom + freedom)
        return share * self.variance + (1 - share) * variance, max(min(self.freedom + freedom, self.most), freedom)


def variance_prior(variances: Sequence[float], freedom: Sequence[int], shared: float = 0.0) -> VariancePrior:
    """Estimate what variances have in common.

    variances: sample variances, of which those that are 0 are left out. freedom: degrees of freedom of each. shared: correlation
    between them; 0: they are independent, as in limma.

    Raises: FedtideError if there are too few.
    """
    from scipy.special import digamma, polygamma

    pairs = [(s, d) for s, d in zip(variances, freedom, strict=True) if s > 0 and d > 0]
    if len(pairs) < FEWEST_MODERATED:
        raise FedtideError(
            f"moderated intervals need {FEWEST_MODERATED} differences that vary over the seeds, and there are {len(pairs)}: "
            "leave moderate out, or compare more variants on two seeds or more"
        )
    s, d = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    logs = np.log(s) - digamma(d / 2) + np.log(d / 2)  # of mean log sigma^2
    spread = float(logs.var(ddof=1) - (1 - shared) * polygamma(1, d / 2).mean())
    most = float(d.sum()) if shared == 0 else float(d.mean()) / shared
    if spread <= 0:
        return VariancePrior(math.inf, float(d @ s / d.sum()), most)
    prior = 2 * _trigamma_inverse(spread)
    return VariancePrior(prior, float(np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))), most)


def _trigamma_inverse(value: float) -> float:
    """Return y with trigamma(y) = value, by Newton's method on 1 / trigamma, which is nearly linear."""
    from scipy.special import polygamma

    y = 0.5 + 1 / value
    for _ in range(50):
        at = float(polygamma(1, y))
        step = at * (1 - at / value) / float(polygamma(2, y))
        y += step
        if abs(step) <= 1e-10 * y:
            break
    return y
