"""How old the models were that updates started from, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np

_AGES_LISTED = 10  # more ages than this are summed up


def ages_in_words(counts: Mapping[int, int]) -> str:
    """List how often each age occurs; of many ages tell mean, 95th percentile, maximum and the most frequent."""
    if len(counts) <= _AGES_LISTED:
        return ", ".join(f"{age}: {n:,}" for age, n in counts.items())
    ages, times = np.array(sorted(counts.items())).T
    most_of_them = ages[np.searchsorted(np.cumsum(times), math.ceil(0.95 * times.sum()))]
    most = ", ".join(f"{age}: {n:,}" for age, n in Counter(counts).most_common(5))
    return (
        f"{(ages * times).sum() / times.sum():.1f} on average, 95 % at most {most_of_them}, "
        f"largest {ages.max()}; most often {most}"
    )


def stale(largest_age: int | None, aggregations: int) -> str | None:
    """Return a warning if some model was very old when it came back: by more than a tenth of the aggregations, and ten."""
    if largest_age is None or largest_age <= max(aggregations / 10, 10):
        return None
    return (
        f"the oldest update started from the model of {largest_age:,} aggregations ago, of {aggregations:,} in all: a device "
        "that was away trains on with the model it has; let age count (policy.weighting, policy.age_base below 1) or pick "
        "fresh updates (policy.scheduler)"
    )
