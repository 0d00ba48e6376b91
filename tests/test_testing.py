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


class Later:
    """Answers otherwise from its ninth call on."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, seed: int, device: Any, job: Any) -> Any:
        self.count += 1
        return np.full(len(device), 1.0 if self.count < 9 else 2.0)


class Last:
    """Answers with what it was asked before."""

    def __init__(self) -> None:
        self.seen = 0.0

    def __call__(self, capacity: Any, num_symbols: float) -> Any:
        before, self.seen = self.seen, float(capacity.sum())
        return np.full(len(capacity), num_symbols / len(capacity) / (1.0 + before))


def dealing(dataset: Any, num_devices: int, seed: int) -> Any:
    return np.array_split(np.random.permutation(len(dataset.train.labels)), num_devices)  # noqa: NPY002


class Deaf:
    def round(self) -> None:
        pass


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (Later, "duration", "gives another answer when it is called again"),
        (Last, "allocation", "gives another answer when it is called again"),
        (dealing, "partition", "gives another answer when it is called again"),
        (lambda clock: iter([np.random.random()]), "timeline", "gives another answer"),  # noqa: NPY002
        (lambda: np.random.random(3), "data", "gives another answer"),  # noqa: NPY002
        (Deaf, "tracker", r"cannot be called as round(record)"),
        (object, "tracker", "has none of begin, round, end"),
    ],
)
def test_hidden_state_and_other_kinds(wrong: Any, kind: str, says: str) -> None:
    assert says in "; ".join(testing.check(wrong, kind))


@pytest.mark.parametrize("kind", ["timeline", "partition", "model"])
def test_ours_of_other_kinds_are_found_good(kind: str) -> None:
    for name in builtin_parts(kind):
        filled: dict[str, Any] = {
            "fleet_durations": np.linspace(0.3, 1.0, 20),
            "data_size_spread": 0.5 * (name == "speed_sizes"),
        }
        made = name if kind == "model" else part(kind, name, **filled)
        assert testing.check(made, kind) == [], name


def test_a_kind_that_is_none() -> None:
    with pytest.raises(FedtideError, match="is not a kind of part"):
        testing.check(dice, "schedular")
    with pytest.raises(FedtideError, match=r"use check\(part, kind\)"):
        testing.check(lambda x: x)


def test_the_example() -> None:
    assert doctest.testmod(testing).failed == 0
