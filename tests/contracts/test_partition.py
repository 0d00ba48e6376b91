"""What every partition promises."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.data.holdings import Holdings, checked_partition, has_virtual_holdings, holding_label_counts
from fedtide.parts.checks import Guarded
from fedtide.parts.kinds import builtin_parts
from fedtide.types import Dataset, Samples
from promises import frozen, part


def every_other(dataset: Dataset, num_devices: int, seed: int) -> Any:
    """A partition of a user's own, which answers with lists, in no order."""
    return ([*range(k, len(dataset.train.labels), num_devices)][::-1] for k in range(num_devices))


class Turns:
    """Virtual holdings of a user's own: the samples from the device's number on, so many as it says."""

    def __init__(self, labels: Any, num_devices: int) -> None:
        self.labels, self.num_devices = labels, num_devices

    def __len__(self) -> int:
        return self.num_devices

    def __getitem__(self, device: int) -> Any:
        return [(device + place) % len(self.labels) for place in range(3)]

    def num_samples(self, device: Any) -> Any:
        return np.full(len(device), 3)

    def label_counts(self, device: Any) -> Any:
        return np.array([np.bincount(self.labels[self[k]], minlength=5) for k in device.tolist()]).reshape(-1, 5)


def turns(dataset: Dataset, num_devices: int, seed: int) -> Any:
    return Turns(dataset.train.labels, num_devices)


OTHERS = {"my own": every_other, "my own, virtual": turns}


def dealt(name: str, dataset: Dataset, num_devices: int, seed: int) -> Holdings:
    duration = np.linspace(1, 0.1, num_devices)
    more = {"data_size_spread": 0.7} if name == "speed_sizes" else {}  # it wants sizes that differ
    made = OTHERS.get(name) or part("partition", name, fleet_durations=duration, data_num_shards=40, **more)
    answer = made(dataset, num_devices, seed)
    virtual = has_virtual_holdings(answer)
    assert virtual == ("virtual" in name)
    # One vector each, within range, never empty; whatever virtual ones answer is looked at when it is asked for.
    given = Hidden(answer) if virtual else answer
    return checked_partition(
        given, dataset.train.labels, dataset.num_labels, num_devices, Guarded("partition", name, made), name
    )


class Hidden:
    """Virtual holdings as one of a user's, so that what ours answer is looked at as well."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.num_samples, self.label_counts = answer, answer.num_samples, answer.label_counts

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, device: int) -> Any:
        return self.answer[device]


@pytest.mark.parametrize("name", [*builtin_parts("partition"), *OTHERS])
def test_contract(name: str) -> None:
    @settings(max_examples=30)
    @given(st.integers(2, 12), st.integers(0, 30), st.integers(0, 2**64), st.integers(0, 2**32))
    def check(num_devices: int, more: int, seed: int, drawn: int) -> None:
        rng, n = np.random.default_rng(drawn), 60 + more
        labels = frozen(rng.permutation(np.arange(n) % 5), np.uint8)
        train = Samples(np.zeros((n, 1, 1, 1), np.float32), labels)
        dataset = Dataset("made", train, train, 5, "test", frozen(np.arange(n) % 13))
        before = random.getstate(), labels.copy()
        found = dealt(name, dataset, num_devices, seed)
        everyone = np.concatenate(list(found))  # type: ignore[call-overload]
        if has_virtual_holdings(found):
            device = rng.permutation(num_devices)[: rng.integers(1, num_devices + 1)]
            held = holding_label_counts(labels, list(found), 5)  # type: ignore[call-overload]
            assert np.array_equal(found.label_counts(device), held[device])  # whoever else is asked
            assert np.array_equal(found.num_samples(device), held[device].sum(axis=1))
        else:
            assert len(np.unique(everyone)) == len(everyone)  # nothing belongs to two
        assert all(np.all(np.diff(mine) > 0) for mine in found)  # type: ignore[attr-defined]
        for one, two in zip(found, dealt(name, dataset, num_devices, seed), strict=True):  # type: ignore[call-overload]
            assert np.array_equal(one, two)  # it depends on its arguments alone
        assert random.getstate() == before[0]
        assert np.array_equal(labels, before[1])

    check()
