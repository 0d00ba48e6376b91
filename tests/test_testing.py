"""fedtide.testing.check finds what a part may not do, and leaves good parts alone."""

from __future__ import annotations

import doctest
import itertools
from typing import Any

import numpy as np
import pytest

from fedtide import testing
from fedtide.errors import FedtideError
from fedtide.parts.kinds import builtin_parts
from promises import part


def dice(candidates: Any, limit: int, rng: Any) -> Any:
    return np.random.permutation(len(candidates.device))[:limit]  # noqa: NPY002


def writes(num_samples: Any, age: Any) -> Any:
    num_samples += 1
    return num_samples / num_samples.sum()


class Counts:
    def __init__(self) -> None:
        self.count = itertools.count(1)

    def __call__(self, num_samples: Any, age: Any) -> Any:
        weight = num_samples + float(next(self.count)) * age
        return weight / weight.sum()


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (dice, None, "gives another answer when it is called again"),
        (dice, "scheduler", "np.random"),
        (writes, "weighting", "writes to what it is given"),
        (Counts, "weighting", "gives another answer when it is called again"),
        (lambda capacity, num_symbols: 1 / 0, "allocation", "raises ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_said(wrong: Any, kind: str | None, says: str) -> None:
    assert says in "; ".join(testing.check(wrong, kind))


@pytest.mark.parametrize("kind", ["scheduler", "weighting", "aggregator", "codec", "channel", "coverage", "allocation"])
def test_ours_are_found_good(kind: str) -> None:
    for name in builtin_parts(kind):
        assert testing.check(part(kind, name), kind) == [], name


def test_a_kind_that_is_none() -> None:
    with pytest.raises(FedtideError, match="is no kind of part"):
        testing.check(dice, "schedular")
    with pytest.raises(FedtideError, match=r"say check\(part, kind\)"):
        testing.check(lambda x: x)


def test_the_example() -> None:
    assert doctest.testmod(testing).failed == 0
